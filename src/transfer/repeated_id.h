// RepeatedId: finds an id that occurs twice in a list.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvcast::transfer {

// A bit for every id below a bound. All bits are clear between calls. Reuse the object to keep its
// memory.
class RepeatedId {
 public:
  // Returns the index of the first id that also occurs earlier in the list; ids.size() if there is
  // no such id. Ids outside [first, bound) are ignored.
  template <typename Id>
  size_t Find(std::span<const Id> ids, size_t first, size_t bound) {
    if (seen_.size() < bound / kBits + 1) seen_.resize(bound / kBits + 1);
    size_t index = 0;
    for (; index < ids.size(); ++index) {
      if (ids[index].value < first || ids[index].value >= bound) continue;
      uint64_t& word = seen_[ids[index].value / kBits];
      const uint64_t bit = uint64_t{1} << (ids[index].value % kBits);
      if ((word & bit) != 0) break;
      word |= bit;
    }
    for (const Id id : ids.first(index)) {
      if (id.value < bound) seen_[id.value / kBits] = 0;
    }
    return index;
  }

 private:
  static constexpr size_t kBits = 64;
  std::vector<uint64_t> seen_;
};

}  // namespace kvcast::transfer
