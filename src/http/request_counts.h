// RequestCounts: answered requests by route and status.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/base/mutex.h"
#include "src/http/http_server.h"

namespace kvcast {

// Thread-safe. The number of entries is bounded by the routes and the statuses that the server
// uses.
class RequestCounts {
 public:
  // `path`: the path of the route; nullptr: no route has the request's path.
  void Note(const std::string* path, int status) {
    const MutexLock lock(mutex_);
    ++counts_[path == nullptr ? "other" : *path][status];
  }
  HttpRequestCounts Read() const {
    const MutexLock lock(mutex_);
    return counts_;
  }

 private:
  mutable Mutex mutex_;
  HttpRequestCounts counts_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast
