// The reuse rule: which prefix lengths of a prompt all groups of a worker can serve together.
//
// For one prompt, one worker and one group, residency is a bitmap over the group's block positions.
// A rule per kind turns it into the bitmap of usable boundaries (a boundary is a prefix length);
// the reusable prefix is the highest boundary usable in every group. The engine's block pool and
// the router's index call the same rules.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/spec/cache_spec.h"

namespace kvcast {

// A growable bitmap. Bits beyond size() read as 0.
class Bitmap {
 public:
  Bitmap() = default;
  explicit Bitmap(int64_t bits) { Resize(bits); }

  int64_t size() const { return bits_; }
  // All bits become 0.
  void Resize(int64_t bits) {
    bits_ = bits;
    words_.assign(static_cast<size_t>((bits + 63) / 64), 0);
  }
  bool Test(int64_t i) const {
    return i >= 0 && i < bits_ && ((words_[static_cast<size_t>(i / 64)] >> (i % 64)) & 1u) != 0;
  }
  // REQUIRES: 0 <= i < size().
  void Set(int64_t i) { words_[static_cast<size_t>(i / 64)] |= uint64_t{1} << (i % 64); }
  std::span<uint64_t> words() { return words_; }
  std::span<const uint64_t> words() const { return words_; }

 private:
  int64_t bits_ = 0;
  std::vector<uint64_t> words_;
};

// Residency of one group for one prompt.
struct GroupResidency {
  GroupSpec spec;
  // Bit j: block j of the prompt is resident. size() = blocks that the prompt's hashes cover.
  Bitmap blocks;
  // Bit i: a partial entry ends after hash unit i, that is at (i+1)*unit tokens, inside a block.
  // Empty where the group has none.
  Bitmap partial_ends;
  // Tokens of the prompt before block 0 of `blocks`, in whole blocks: they are there already, and a
  // boundary counts from behind them. Chunked local attention counts its chunks from their start.
  int64_t tokens_before = 0;
};

// Boundaries of one group in steps of `unit` tokens: bit b of the result is set iff a prefix of
// b*unit tokens is usable in this group. The result has max_units + 1 bits; bit 0 is always set.
// `alignment` is the grid of the lookup that asks (0: the group's block size): EAGLE gives up one
// step of it near the start of a prompt, see below. Bits off that grid are not meaningful.
// REQUIRES: unit divides residency.spec.block_size.
// Rules (vLLM's find_longest_cache_hit of each manager, as boundaries):
//   full, MLA, sink   every block before b is resident; inside a block: a partial entry at or after
//                     b ends there, or the whole block lies below max_units and is resident
//   sliding window W  the last ceil((W-1)/block_size) blocks before b are resident
//   chunked local C   the blocks from floor(b/C)*C to b are resident
//   Mamba             the state that ends at b is resident (EAGLE changes nothing here)
//   EAGLE             the rule holds at b and the block after b is resident too; on a grid coarser
//                     than the block, a window that reaches the start of the prompt loses a whole
//                     step of the grid, and one that would need blocks before it serves nothing
Bitmap UsableBoundaries(const GroupResidency& residency, int64_t unit, int64_t max_units,
                        int64_t alignment = 0);

// The highest set bit that is a multiple of `step`, or 0. REQUIRES: step > 0.
int64_t HighestBoundary(const Bitmap& usable, int64_t step);

// What one worker can reuse of one prompt.
struct Reuse {
  int64_t tokens = 0;  // the reusable prefix
  // Per group, in input order, the longest prefix that this group, together with the groups of
  // equal spec, could serve if there were no others; 0 for a group that takes no part.
  std::vector<int64_t> per_group_tokens;
};

// The highest boundary <= max_tokens that is a multiple of `alignment` and usable in all groups, as
// an engine's own lookup finds it: groups with equal specs count as one (a block is resident if all
// of them hold it), and where a rule depends on how far a lookup looks (EAGLE, hits inside blocks)
// the groups are asked in vLLM's order, full attention first, each within what those before it
// left.
// An engine looks up with max_tokens = prompt tokens - 1: the last token is always computed.
// `eagle_limit`: see EagleLimit; below max_tokens it counts as max_tokens.
// REQUIRES: unit divides alignment and the block size of every group that takes part.
Reuse ReusablePrefix(std::span<const GroupResidency> groups, int64_t unit, int64_t alignment,
                     int64_t max_tokens, int64_t eagle_limit = 0);

}  // namespace kvcast
