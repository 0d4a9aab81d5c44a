// Holder: one (worker, tier, group) that has copies of a block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kvcast/prefix_index.h"

namespace kvcast::router {

// Dense number of a registered worker; reused after the worker left.
using WorkerSlot = uint16_t;

// 8 bytes, because the index holds one per residency.
struct Holder {
  uint32_t copies = 0;
  WorkerSlot slot = 0;
  uint8_t group = 0;
  Tier tier = Tier::kGpu;

  bool SamePlace(const Holder& other) const {
    return slot == other.slot && group == other.group && tier == other.tier;
  }
};
static_assert(sizeof(Holder) == 8);
static_assert(kMaxGroups <= 256);

}  // namespace kvcast::router
