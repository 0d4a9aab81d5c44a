// FloorMap and MaskFloorMap: the baselines ("floors") of the benchmarks. Each is a plain hash map
// of 64-bit keys and values that gets the same operations as the index. The maps do less than the
// index: they count no copies, and do not find the workers that hold the blocks of a prompt.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "apps/bench/index/churn.h"

namespace kvcast::bench {

// A map with one entry per residency, that is, per worker, group and block.
class FloorMap {
 public:
  // The key of an operation, and its kind: erase or insert.
  struct Op {
    uint64_t key;
    bool erase;
  };
  static uint64_t KeyOf(const ResidencyOp& op) {
    return Mix64(op.hash + ((uint64_t{op.worker} << 8) | op.group));
  }
  static void Translate(std::span<const ResidencyOp> ops, std::vector<Op>& out) {
    out.clear();
    for (const ResidencyOp& op : ops) out.push_back({KeyOf(op), op.erase});
  }

  // Executes the operations one after another.
  void Apply(std::span<const Op> ops) {
    for (const Op& op : ops) Do(op);
  }
  // Like Apply, but prefetches the cache line that the operation 8 places later will need.
  void ApplyPrefetched(std::span<const Op> ops) {
    constexpr size_t kAhead = 8;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (i + kAhead < ops.size()) map_.prefetch(ops[i + kAhead].key);
      Do(ops[i]);
    }
  }
  // Returns the number of keys that exist. Prefetches the cache line of each key.
  size_t CountPrefetched(std::span<const uint64_t> keys) const {
    constexpr size_t kAhead = 8;
    for (size_t i = 0; i < keys.size() && i < kAhead; ++i) map_.prefetch(keys[i]);
    size_t found = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i + kAhead < keys.size()) map_.prefetch(keys[i + kAhead]);
      const auto it = map_.find(keys[i]);
      if (it != map_.end()) found += it->second;
    }
    return found;
  }
  size_t size() const { return map_.size(); }

 private:
  void Do(const Op& op) {
    if (op.erase) {
      map_.erase(op.key);
    } else {
      map_.emplace(op.key, 1);
    }
  }

  absl::flat_hash_map<uint64_t, uint64_t> map_;
};

// A map with one entry per block and group. The value has one bit per worker. Workers whose numbers
// are equal modulo 64 share a bit.
class MaskFloorMap {
 public:
  struct Op {
    uint64_t key;
    uint64_t bit;
    bool erase;
  };
  static void Translate(std::span<const ResidencyOp> ops, std::vector<Op>& out) {
    out.clear();
    for (const ResidencyOp& op : ops) {
      out.push_back({op.hash + op.group, uint64_t{1} << (op.worker % 64), op.erase});
    }
  }
  void Apply(std::span<const Op> ops) {
    for (const Op& op : ops) {
      if (!op.erase) {
        map_[op.key] |= op.bit;
        continue;
      }
      const auto it = map_.find(op.key);
      if (it == map_.end()) continue;
      it->second &= ~op.bit;
      if (it->second == 0) map_.erase(it);
    }
  }

 private:
  absl::flat_hash_map<uint64_t, uint64_t> map_;
};

}  // namespace kvcast::bench
