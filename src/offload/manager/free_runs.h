// FreeRuns: the free slots, as runs of adjacent slots.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>

#include <cstdint>
#include <iterator>
#include <utility>

namespace kvcast::offload {

struct SlotRun {
  uint32_t first = 0;
  uint32_t count = 0;
};

class FreeRuns {
 public:
  // REQUIRES: no slot of the run is free.
  void Add(SlotRun run) {
    auto next = end_of_.upper_bound(run.first);
    if (next != end_of_.end() && next->first == run.first + run.count) {
      run.count += next->second - next->first;
      next = Erase(next);
    }
    if (next != end_of_.begin()) {
      const auto before = std::prev(next);
      if (before->second == run.first) {
        run = {before->first, run.count + run.first - before->first};
        Erase(before);
      }
    }
    Insert(run);
  }
  // Takes up to `count` adjacent slots: a part of the shortest run that has at least `count` slots,
  // otherwise the whole longest run. Returns {} if there is no run.
  SlotRun Take(uint32_t count) {
    if (by_count_.empty()) return {};
    auto found = by_count_.lower_bound({count, 0});
    if (found == by_count_.end()) found = std::prev(found);
    const SlotRun run{found->second, found->first};
    Erase(end_of_.find(run.first));
    if (run.count <= count) return run;
    Insert({run.first + count, run.count - count});
    return {run.first, count};
  }
  // The length of the run that Take would use.
  uint32_t RunLengthFor(uint32_t count) const {
    if (by_count_.empty()) return 0;
    const auto found = by_count_.lower_bound({count, 0});
    return found == by_count_.end() ? std::prev(found)->first : found->first;
  }
  void Clear() {
    end_of_.clear();
    by_count_.clear();
  }

  // Visits the slots in ascending order.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const auto& [first, end] : end_of_) {
      for (uint32_t slot = first; slot < end; ++slot) visit(slot);
    }
  }

 private:
  using Runs = absl::btree_map<uint32_t, uint32_t>;

  void Insert(SlotRun run) {
    end_of_.emplace(run.first, run.first + run.count);
    by_count_.emplace(run.count, run.first);
  }
  Runs::iterator Erase(Runs::iterator run) {
    by_count_.erase({run->second - run->first, run->first});
    return end_of_.erase(run);
  }

  Runs end_of_;                                              // by the first slot of a run
  absl::btree_set<std::pair<uint32_t, uint32_t>> by_count_;  // count and first slot
};

}  // namespace kvcast::offload
