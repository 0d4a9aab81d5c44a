// RelayRecord: the simulation's record of the batches that a relay has published, by epoch of the
// relay and sequence number.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <vector>

namespace kvcast::sim {

// A state of the engine: the state after the batches below `next_seq` of one life.
struct EnginePosition {
  int life = -1;  // -1: no batch was applied since the last reset
  uint64_t next_seq = 0;
  friend bool operator==(const EnginePosition&, const EnginePosition&) = default;
};

class RelayRecord {
 public:
  // An epoch begins. Its state is empty.
  void BeginEpoch() { epochs_.emplace_back(); }
  // The epoch uses the next number for a batch of the engine with this time stamp. `position`: the
  // state after this batch.
  void NoteBatch(const EnginePosition& position, double ts) {
    latest().after.push_back(position);
    by_time_[ts] = position;
  }
  // The epoch uses the next number for a batch that is missing.
  void NoteLost() {
    latest().lost_at = std::min(latest().lost_at, next_seq());
    NoteHeartbeat();
  }
  // The epoch uses the next number, and the state does not change.
  void NoteHeartbeat() { latest().after.push_back(At(epoch(), next_seq())); }

  // The number of the latest epoch.
  uint64_t epoch() const { return epochs_.size() - 1; }
  uint64_t next_seq() const { return epochs_.back().after.size(); }
  // The state after the batches below `next_seq` of the relay's epoch.
  EnginePosition At(uint64_t epoch, uint64_t next_seq) const {
    return next_seq == 0 ? EnginePosition{} : epochs_[epoch].after[next_seq - 1];
  }
  // The state after the published batch with this time stamp. nullopt: no batch of the engine has
  // this time stamp.
  std::optional<EnginePosition> Of(double ts) const {
    const auto it = by_time_.find(ts);
    return it == by_time_.end() ? std::nullopt : std::optional(it->second);
  }
  // True: one of the batches below `next_seq` of the epoch is missing.
  bool lacks_batches(uint64_t epoch, uint64_t next_seq) const {
    return epochs_[epoch].lost_at < next_seq;
  }

 private:
  struct Epoch {
    std::vector<EnginePosition> after;  // by sequence number
    uint64_t lost_at = std::numeric_limits<uint64_t>::max();
  };
  Epoch& latest() { return epochs_.back(); }

  std::deque<Epoch> epochs_;
  std::map<double, EnginePosition> by_time_;
};

}  // namespace kvcast::sim
