// FeedState: the state of a source whose events come over HTTP. The events carry the engine's own
// numbers, so a lost event shows in the next one, and no event can be asked for again.
// Thread-compatible; pure: times are given.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "kvcast/stream/subscriber.h"

namespace kvcast::router {

struct FeedCounters {
  uint64_t answers = 0;   // polls answered, and pushes taken
  uint64_t failures = 0;  // polls without a connection, or with another status than 200
  uint64_t cuts = 0;      // polls whose answer was lost on its way
  uint64_t undecodable = 0;
};

class FeedState {
 public:
  // `polled`: false: pushed; silence says nothing then. `stale_ms`: of failing polls.
  FeedState(bool polled, int64_t stale_ms, int64_t now_ms)
      : polled_(polled), stale_ms_(stale_ms), began_ms_(now_ms) {}

  // An answer without events.
  void OnEmpty(int64_t now_ms) { OnHeard(now_ms); }
  // Events came. The state lacks nothing if and only if the result is kComplete.
  void OnApplied(BatchResult result, int64_t now_ms);
  // No connection, or a refusal: the engine has given nothing away.
  void OnFailure(int64_t now_ms);
  // The engine may have given events away that did not arrive. The next event shows it.
  void OnCut(int64_t now_ms);
  // The state was dropped for this reason.
  void OnReset(SourceReason reason);

  SourceStatus status(int64_t now_ms) const;
  const FeedCounters& counters() const { return counters_; }
  // Number of the next batch.
  uint64_t next() const { return status_.next_seq; }

 private:
  void OnHeard(int64_t now_ms);
  SourceState StateAt(int64_t now_ms) const;

  const bool polled_;
  const int64_t stale_ms_;
  const int64_t began_ms_;
  bool heard_ = false;
  bool whole_ = false;                         // nothing is lacking
  bool cut_ = false;                           // an answer was lost since the last event
  SourceReason why_ = SourceReason::kJoining;  // not whole_
  std::optional<int64_t> failing_since_ms_;
  int64_t unsure_since_ms_ = 0;
  SourceStatus status_;
  FeedCounters counters_;
};

}  // namespace kvcast::router
