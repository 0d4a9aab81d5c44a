// Published: the simulation's record of the batches that one life of a publisher (see engine.h)
// must have published, by sequence number. It shares no code with the publisher.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "src/stream_sim/oracle.h"

namespace kvcast::sim {

class Published {
 public:
  enum class Kind : uint8_t { kBatch, kHeartbeat, kRefused };

  // Records the use of the next sequence number. The events of a refused batch are in no published
  // batch, but the engine holds their blocks. The number gets the time stamp of `batch`. Exception:
  // the time stamp of a heartbeat is the latest time stamp plus the time since that time stamp.
  void Number(Kind kind, const EventBatch& batch, int64_t now_ms) {
    if (kind == Kind::kHeartbeat && last_ts_) {
      stamps_.push_back({kind, *last_ts_ + static_cast<double>(now_ms - last_ts_ms_) * 1e-3});
    } else {
      stamps_.push_back({kind, batch.ts});
    }
    oracle_.Add(batch);
    if (kind != Kind::kRefused) visible_end_ = next_seq();
    numbered_ms_ = now_ms;
  }
  // The publisher got this time stamp. Later heartbeats continue from this time.
  void NoteTime(double ts, int64_t now_ms) {
    last_ts_ = ts;
    last_ts_ms_ = now_ms;
  }

  uint64_t next_seq() const { return oracle_.next_seq(); }
  // One above the highest sequence number that readers of the stream can see.
  uint64_t visible_end() const { return visible_end_; }
  bool has_time() const { return last_ts_.has_value(); }
  int64_t numbered_ms() const { return numbered_ms_; }
  const Oracle& oracle() const { return oracle_; }

  // True: the batch with this time stamp has this sequence number.
  bool Has(uint64_t seq, double ts) const {
    if (seq >= stamps_.size() || stamps_[seq].kind == Kind::kRefused) return false;
    const double difference_s = std::abs(stamps_[seq].ts - ts);
    return stamps_[seq].kind == Kind::kBatch ? difference_s == 0 : difference_s < kRoundingS;
  }
  bool IsRefused(uint64_t seq) const {
    return seq >= stamps_.size() || stamps_[seq].kind == Kind::kRefused;
  }

 private:
  // Tolerance for rounding: the time of a heartbeat is a sum.
  static constexpr double kRoundingS = 0.1;
  struct Stamp {
    Kind kind;
    double ts;
  };

  Oracle oracle_;
  std::vector<Stamp> stamps_;  // by sequence number
  uint64_t visible_end_ = 0;
  std::optional<double> last_ts_;
  int64_t last_ts_ms_ = 0;
  int64_t numbered_ms_ = 0;  // when the latest sequence number was used
};

}  // namespace kvcast::sim
