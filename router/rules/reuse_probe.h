// ReuseProbe: explains why a worker's blocks serve no part of a prefix. The causes are defined in
// kvcast/router/reuse_diagnosis.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcast/router/reuse_diagnosis.h"
#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// Holds references only: the referenced objects must outlive the probe.
struct ReuseProbe {
  // The groups that take part, with their blocks of the prefix.
  std::span<const GroupResidency> held;
  // The same groups, with their removed blocks added.
  std::span<const GroupResidency> held_or_removed;
  std::vector<bool> announced;  // by group of `held`
  int64_t hash_block_size = 0;
  int64_t tokens = 0;           // L of ReuseCause, a multiple of hash_block_size
  int64_t alignment = 0;        // A of ReuseCause
  int64_t group_alignment = 0;  // G of ReuseCause
  int64_t replay_tokens = 0;    // a hit of at most this length does not count
  // The worker holds blocks whose content is not known. They may belong to the prefix.
  bool content_unknown = false;
};

struct ProbeFinding {
  bool lost = false;                // the held blocks serve no part of the prefix
  std::optional<ReuseCause> cause;  // nullopt: no cause explains the loss
  std::optional<size_t> part;       // position of the group in `held`; nullopt: no single group
};

// REQUIRES: `held` is not empty and meets the requirements of ReusablePrefix.
ProbeFinding Explain(const ReuseProbe& probe);

// Returns one bitmap per group, with one bit per block. The bit is set if the block serves a
// boundary on the grid of `alignment` within `tokens`. Only boundaries that every group can serve
// count.
std::vector<Bitmap> UsableBlocks(std::span<const GroupResidency> groups, int64_t hash_block_size,
                                 int64_t alignment, int64_t tokens);

}  // namespace kvcast::router
