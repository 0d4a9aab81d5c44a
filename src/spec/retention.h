// RetentionMask: which full blocks of a sparse group are worth caching.
//
// A sliding-window or Mamba hit needs only the blocks next to the boundary where it ends. Dense
// retention keeps those of every boundary that a lookup can return; retention r > 0 those of every
// r-th token and of the given boundaries; r = 0 those of the given boundaries alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/spec/cache_spec.h"
#include "kvcast/spec/reuse.h"

namespace kvcast::internal {

// The token lengths are those of the config: alignment = scheduler_block_size.
struct RetentionRule {
  GroupSpec spec;
  int64_t alignment = 0;
  std::optional<int64_t> interval;
};

// Bit i of `mask`: keep block begin + i. `boundaries` are prefix lengths in tokens. False: every
// block is kept, the mask is not filled.
bool FillRetentionMask(const RetentionRule& rule, int64_t begin, int64_t end,
                       std::span<const int64_t> boundaries, Bitmap& mask);

}  // namespace kvcast::internal
