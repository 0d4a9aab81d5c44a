// EventFeeds: sources whose events come over HTTP: polled from the engine, or pushed to the router.
//
// A poll takes the events away from the engine, so a URL has one poller, whose answers go to all
// workers of that URL (attention-DP ranks). Another reader of the same URL takes events away from
// this one; the numbers of the events show it.
//
// Threads: one for each URL. All calls are thread-safe. The sink is called for one worker at a time
// by one thread at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/stream/subscriber.h"
#include "router/service/ingest/feed_state.h"
#include "src/base/mutex.h"

namespace kvcast::router {

// The endpoint of a source that is pushed to.
inline constexpr std::string_view kPushEndpoint = "push";
bool IsFeedEndpoint(std::string_view endpoint);  // kPushEndpoint, or of a scheme of HTTP

struct FeedSink {
  std::function<BatchResult(WorkerId, Seq, std::span<const uint8_t> payload)> apply;
  std::function<void(WorkerId, ResetReason)> on_reset;
};

struct FeedConfig {
  int64_t timeout_ms = 10000;       // of one poll; TensorRT-LLM waits up to 2 s for an event
  int64_t stale_ms = 3000;          // of failing polls
  int64_t retry_ms = 500;           // after a poll that failed
  std::function<int64_t()> now_ms;  // monotonic
};

class EventFeeds {
 public:
  EventFeeds(FeedConfig config, FeedSink sink);
  ~EventFeeds();  // ends the pollers

  // Not polled before Begin. kInvalidArgument: no such endpoint.
  Status Add(WorkerId worker, const std::string& endpoint, int64_t poll_ms);
  // Polls what has been added. Workers that are added to a URL later miss its earlier events.
  void Begin();
  // When it returns, the sink is not called for this worker any more.
  void Remove(WorkerId worker);
  bool Has(WorkerId worker) const;

  // Events for a worker whose endpoint is kPushEndpoint. kFailedPrecondition: it has another one.
  // kMalformed: not decoded, and what the worker held is dropped.
  Status Push(WorkerId worker, std::string_view body);
  // Drops what the worker holds: it was found to be wrong.
  void Contradict(WorkerId worker);
  SourceStatus status(WorkerId worker) const;
  FeedCounters counters(WorkerId worker) const;

 private:
  class Worker;
  class Poller;
  std::shared_ptr<Worker> Find(WorkerId worker) const;

  const FeedConfig config_;
  const FeedSink sink_;
  mutable Mutex mutex_;
  std::unordered_map<WorkerId, std::shared_ptr<Worker>> workers_ KV_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Poller>> pollers_ KV_GUARDED_BY(mutex_);  // by endpoint
};

}  // namespace kvcast::router
