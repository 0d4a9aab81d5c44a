// FillRetentionMask: selects which full blocks of a sparse group the cache keeps.
//
// A sliding-window or Mamba hit needs only the blocks next to the boundary where it ends. Dense
// retention keeps these blocks for every boundary that a lookup can return. Retention r > 0 keeps
// them for every boundary at a multiple of r tokens and for the given boundaries. Retention r = 0
// keeps them only for the given boundaries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/spec/cache_spec.h"
#include "kvcast/spec/reuse.h"

namespace kvcast::internal {

// All lengths are in tokens. In the cache, `alignment` is scheduler_block_size, or from v0.32 on
// HitAlignment. In offload rules, a block is a chunk, and `alignment` is
// OffloadLayout::store_alignment.
struct RetentionRule {
  GroupSpec spec;
  int64_t alignment = 0;
  std::optional<int64_t> interval;  // nullopt: dense retention
};

// The number of blocks that a hit at a boundary needs from this group: the state of a Mamba group,
// or the blocks of a window. With EAGLE, one of these blocks lies after the boundary.
int64_t TailBlocks(const GroupSpec& spec);

// Bit i of `mask` is set if block begin + i is kept. `boundaries` are prefix lengths in tokens.
// False: every block is kept, and the mask is not filled.
bool FillRetentionMask(const RetentionRule& rule, int64_t begin, int64_t end,
                       std::span<const int64_t> boundaries, Bitmap& mask);

}  // namespace kvcast::internal
