// StateSender: answers a request of another router for the state of this router. For each shard, a
// child process writes the state into a pipe, and the HTTP server sends the bytes of the pipe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "router/service/state/shard_save.h"
#include "src/base/logger.h"
#include "src/base/mutex.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// Counters since the start.
struct StateSendReport {
  uint64_t sends = 0;  // sends that began
  // Sends that ended early: the child failed, or the client closed the connection.
  uint64_t errors = 0;
  uint64_t bytes = 0;
};

// Thread-safe.
class StateSender {
 public:
  // The index, the fleet and the log must outlive the sender; `log` may be nullptr. The HTTP server
  // must have ended before the sender is destroyed.
  StateSender(SavedRouter router, Logger* log);

  // The reply has the stream of state_stream.h in pieces. If the state cannot be written, the
  // stream ends without its checksum. 503: another reply is being sent. If the client stops
  // reading, the child waits. HttpOptions limits the time of the reply.
  HttpReply Answer(const HttpRequest& request);
  StateSendReport report() const { return {.sends = sends_, .errors = errors_, .bytes = bytes_}; }

 private:
  class Sending;
  void Abandon(std::unique_ptr<ShardSave> save);

  const SavedRouter router_;
  Logger* const log_;
  std::atomic<bool> sending_{false};
  std::atomic<uint64_t> sends_{0};
  std::atomic<uint64_t> errors_{0};
  std::atomic<uint64_t> bytes_{0};
  Mutex mutex_;
  // The latest save whose child was killed; nullptr: none.
  std::unique_ptr<ShardSave> abandoned_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::router
