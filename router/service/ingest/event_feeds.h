// EventFeeds: sources whose events arrive over HTTP. The router polls the events from the engine,
// or the engine pushes the events to the router.
//
// A poll removes the events from the engine, so each URL has only one poller. The poller gives each
// answer to all workers of the URL (attention-DP ranks). If another client polls the same URL, the
// poller loses events. The numbers of the events then show a gap.
//
// Threads: one polling thread per URL. All calls are thread-safe. For each worker, one thread at a
// time calls the sink.
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

// The endpoint of a source whose events are pushed.
inline constexpr std::string_view kPushEndpoint = "push";
// True: kPushEndpoint, or an HTTP URL.
inline bool IsFeedEndpoint(std::string_view endpoint) {
  return endpoint == kPushEndpoint || endpoint.starts_with("http://") ||
         endpoint.starts_with("https://");
}

// The receiver of the events. EventFeeds calls the functions only for added workers.
struct FeedSink {
  // Called for each answer with status 200 and for each push, unless the body is an empty list.
  // `payload` is the body, and is valid only during the call.
  std::function<BatchResult(WorkerId, Seq, std::span<const uint8_t> payload)> apply;
  // Must drop the worker's blocks. Called if `apply` returns kUndecodable, kRefuted or kTooLarge,
  // and because of Contradict.
  std::function<void(WorkerId, ResetReason)> on_reset;
};

struct FeedConfig {
  int64_t timeout_ms = 10000;             // of one poll; TensorRT-LLM waits up to 2 s for an event
  int64_t stale_ms = 3000;                // if polls fail for this time, the state is stale
  int64_t retry_ms = 500;                 // pause after a failed poll
  std::function<int64_t()> now_ms;        // monotonic clock
  stream::NameResolver::Function lookup;  // resolves host names; empty: the system's resolver
};

class EventFeeds {
 public:
  EventFeeds(FeedConfig config, FeedSink sink);
  ~EventFeeds();  // stops the pollers

  // Polling of a new URL starts at the next Begin. If the URL is polled already, the added worker
  // gets the events of the next answer. `poll_ms`: milliseconds between two polls; for several
  // workers of one URL, the value of the first worker counts. With kPushEndpoint, `poll_ms` has no
  // use. kInvalidArgument: the endpoint is invalid. Any other error: no file descriptor is
  // available.
  Status Add(WorkerId worker, const std::string& endpoint, int64_t poll_ms);
  // Starts to poll the added endpoints. A worker that is added to a URL later misses the URL's
  // earlier events.
  void Begin();
  // After the call, the sink is not called for this worker.
  void Remove(WorkerId worker);
  bool Has(WorkerId worker) const;

  // Takes events for a worker whose endpoint is kPushEndpoint. kFailedPrecondition: the worker is
  // unknown, or has another endpoint. kMalformed: the body could not be decoded, and the worker's
  // blocks are dropped.
  Status Push(WorkerId worker, std::string_view body);
  // Drops the worker's blocks, because the caller found them to be wrong. If another thread applies
  // events, that thread drops them afterwards.
  void Contradict(WorkerId worker);
  SourceStatus status(WorkerId worker) const;
  FeedCounters counters(WorkerId worker) const;

 private:
  class Worker;
  class Poller;
  std::shared_ptr<Worker> Find(WorkerId worker) const;

  const FeedConfig config_;
  const FeedSink sink_;
  stream::NameResolver resolver_;  // of the pollers
  mutable Mutex mutex_;
  std::unordered_map<WorkerId, std::shared_ptr<Worker>> workers_ KV_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Poller>> pollers_ KV_GUARDED_BY(mutex_);  // by endpoint
};

}  // namespace kvcast::router
