// StateWeight: the confidence in the answers of a source, from 0 to 1. If the state of the source
// is neither kSynced nor kCleared, the weight falls with time, or is 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "kvcast/stream/subscriber.h"

namespace kvcast::stream {

// Thread-compatible. All times are in milliseconds of one monotonic clock.
class StateWeight {
 public:
  // Must be called after each change of the state.
  void Note(SourceState state, int64_t now_ms) {
    const bool sure = state == SourceState::kSynced || state == SourceState::kCleared;
    if (std::exchange(sure_, sure) && !sure) unsure_since_ms_ = now_ms;
  }
  // True: the weight does not change with time.
  bool is_sure() const { return sure_; }
  double At(SourceState state, int64_t now_ms) const {
    if (state == SourceState::kConnecting || state == SourceState::kBootstrap) return 0;
    if (state == SourceState::kQuarantined) return 0;
    if (state == SourceState::kSynced || state == SourceState::kCleared) return 1;
    const int64_t unsure_ms = now_ms - unsure_since_ms_;
    if (state == SourceState::kGap && unsure_ms <= 250) return 1;
    if (unsure_ms < 5000) return 0.5;
    return unsure_ms < 30000 ? 0.25 : 0;
  }

 private:
  bool sure_ = false;
  int64_t unsure_since_ms_ = 0;
};

}  // namespace kvcast::stream
