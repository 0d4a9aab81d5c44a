// FeedState: the state of a source whose events arrive over HTTP. The events carry the engine's own
// numbers, so the number of the next event shows whether events were lost. A lost event cannot be
// requested again.
// Thread-compatible. Times are arguments; the class reads no clock.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "kvcast/stream/subscriber.h"
#include "router/service/ingest/http_fetch.h"

namespace kvcast::router {

struct FeedCounters {
  uint64_t answers = 0;      // polls answered with status 200, and received pushes
  uint64_t failures = 0;     // polls without a connection, or with a status other than 200
  uint64_t cuts = 0;         // polls with a connection, but without a complete answer
  uint64_t undecodable = 0;  // answers and pushes that could not be decoded
};

class FeedState {
 public:
  // `polled` false: the engine pushes the events, so silence is not a fault. `stale_ms`: if polls
  // fail for this time, the state is stale.
  FeedState(bool polled, int64_t stale_ms, int64_t now_ms)
      : polled_(polled), stale_ms_(stale_ms), began_ms_(now_ms) {}

  // Call for an answer without events.
  void OnEmpty(int64_t now_ms) { OnHeard(now_ms); }
  // Call after events were applied. The worker's blocks count as complete if and only if the result
  // is kComplete or kEmptied. After kNoEvents, they count as before: several ranks can share the
  // answers, and the events of one rank do not show whether events of another rank were lost.
  void OnApplied(BatchResult result, int64_t now_ms);
  // Call after a poll that failed.
  // - kAnswered: `status` was not 200. Below 500, the engine has sent no events. From 500 on, the
  //   engine or a gateway may have taken events that did not arrive. The next event shows the gap.
  // - kCut: the engine may have sent events that did not arrive. The next event shows the gap.
  // - kUnreached: the engine may have ended, and another run may answer the next poll. The next
  //   event shows whether the engine is the same run.
  // REQUIRES: the outcome is not kStopped.
  void OnFailedPoll(FetchOutcome outcome, int status, int64_t now_ms);
  // Call after the worker's blocks were dropped for this reason.
  void OnReset(SourceReason reason);

  SourceStatus status(int64_t now_ms) const;
  const FeedCounters& counters() const { return counters_; }
  // Sequence number of the next batch.
  uint64_t next() const { return status_.next_seq; }

 private:
  void OnHeard(int64_t now_ms);
  SourceState StateAt(int64_t now_ms) const;

  const bool polled_;
  const int64_t stale_ms_;
  const int64_t began_ms_;
  bool heard_ = false;  // an answer or a push has arrived
  bool whole_ = false;  // no event is missing
  // Since the latest event, events may have been lost, or the engine may have restarted.
  bool cut_ = false;
  SourceReason why_ = SourceReason::kJoining;  // the reason if whole_ is false
  std::optional<int64_t> failing_since_ms_;
  int64_t unsure_since_ms_ = 0;  // the blocks may be out of date since this time
  SourceStatus status_;
  FeedCounters counters_;
};

}  // namespace kvcast::router
