// Finds the cause if the blocks of a worker serve no part of a prefix.
// kvcast/router/reuse_diagnosis.h defines the causes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcast/router/reuse_diagnosis.h"
#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// The tested prefix, and the blocks that the worker holds of it. The probe refers to the arrays of
// its spans, so these arrays must outlive the probe.
struct ReuseProbe {
  // The groups that take part, with their blocks of the prefix.
  std::span<const GroupResidency> held;
  // The same groups, with their removed blocks added.
  std::span<const GroupResidency> held_or_removed;
  // By group of `held`; see ReuseCause::kNeverAnnounced.
  std::vector<bool> announced;
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
  std::optional<ReuseCause> cause;  // nullopt: not lost, or the cause is not known
  // Position in ReuseProbe::held of the group that has the cause; nullopt: no single group.
  std::optional<size_t> group;
};

// REQUIRES: probe.held is not empty and meets the requirements of ReusablePrefix.
ProbeFinding Explain(const ReuseProbe& probe);

// Returns one bitmap per group, with one bit per block. The bit is set if the block serves a
// boundary that is a multiple of `alignment` and at most `tokens`. Only boundaries that every group
// can serve count.
std::vector<Bitmap> UsableBlocks(std::span<const GroupResidency> groups, int64_t hash_block_size,
                                 int64_t alignment, int64_t tokens);

}  // namespace kvcast::router
