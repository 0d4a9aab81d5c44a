// OffloadGeometry: the division of host memory into slots, and the number of slots per chunk.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kvcast/offload/offload_manager.h"

namespace kvcast::offload {

struct OffloadGeometry {
  int64_t slot_bytes = 0;
  int64_t num_slots = 0;
  std::vector<uint32_t> slots_per_chunk;  // by group

  static Result<OffloadGeometry> Create(const OffloadConfig& config);
};

}  // namespace kvcast::offload
