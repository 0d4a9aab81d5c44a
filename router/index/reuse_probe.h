// ReuseProbe: why nothing of a prefix can be reused from what a worker holds. The causes are
// defined in kvcast/reuse_diagnosis.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcast/router/reuse_diagnosis.h"
#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// Holds references only: the objects outlive it.
struct ReuseProbe {
  // The groups that take part: their blocks of the prefix.
  std::span<const GroupResidency> held;
  // The same with their removed blocks.
  std::span<const GroupResidency> held_or_removed;
  std::vector<bool> announced;  // by group of `held`
  int64_t unit = 0;
  int64_t tokens = 0;            // L, a multiple of the unit
  int64_t alignment = 0;         // A
  int64_t group_alignment = 0;   // G
  int64_t replay_tokens = 0;     // hits of no more than these are none
  bool content_unknown = false;  // the worker holds blocks that may be of the prefix
};

struct ProbeFinding {
  bool lost = false;
  std::optional<ReuseCause> cause;  // nullopt: none of the causes explains it
  std::optional<size_t> part;       // position in `held` of the group; nullopt: no single one
};

// REQUIRES: `held` is not empty, and as ReusablePrefix requires.
ProbeFinding Explain(const ReuseProbe& probe);

// By group: blocks of it that serve a boundary on the grid of `alignment` within `tokens`, that
// every group serves alone. As many bits as blocks.
std::vector<Bitmap> UsableBlocks(std::span<const GroupResidency> groups, int64_t unit,
                                 int64_t alignment, int64_t tokens);

}  // namespace kvcast::router
