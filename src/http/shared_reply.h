// SharedReply: a reply that is the same for all clients and expensive to make. All requests that
// wait while a reply is made share the next reply, so a client with many requests delays the others
// only for the time of one reply.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/http/http_server.h"

namespace kvcast {

// Thread-safe.
class SharedReply {
 public:
  explicit SharedReply(std::function<HttpReply()> make) : make_(std::move(make)) {}

  // `received_us`: see HttpRequest. The reply shows a state of this time or later.
  HttpReply Get(int64_t received_us) {
    const MutexLock lock(mutex_);
    if (began_us_ < received_us) {
      const int64_t now_us = SteadyUs();
      reply_ = make_();
      began_us_ = now_us;
    }
    return reply_;
  }

 private:
  const std::function<HttpReply()> make_;
  Mutex mutex_;
  int64_t began_us_ KV_GUARDED_BY(mutex_) = -1;  // when the making of reply_ began
  HttpReply reply_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast
