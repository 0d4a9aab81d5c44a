// The reuse rule: computes the prefix lengths of a prompt that all groups of a worker can serve
// together.
//
// For one prompt, one worker and one group, the residency is a bitmap over the block positions of
// the group. Each kind of group has a rule that converts this bitmap into a bitmap of usable
// boundaries. A boundary is a prefix length. The reusable prefix is the highest boundary that is
// usable in every group. The engine's block pool and the router's index use the same functions. All
// functions are pure and thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/spec/cache_spec.h"

namespace kvcast {

// A bitmap of a size that is set at run time. Bits beyond size() read as 0. Thread-compatible.
class Bitmap {
 public:
  Bitmap() = default;
  explicit Bitmap(int64_t bits) { Resize(bits); }

  int64_t size() const { return bits_; }
  // Sets the size. All bits become 0.
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
  // Bit j: block j of the prompt is resident. size() is the number of blocks that the prompt's
  // hashes cover.
  Bitmap blocks;
  // Bit i: a partial entry ends after hash unit i, at (i+1)*hash_block_size tokens, inside a block.
  // Empty if the group has no partial entries.
  Bitmap partial_ends;
  // Tokens of the prompt before block 0 of `blocks`, in whole blocks. These tokens are already
  // present, and boundaries count from the end of these tokens. Chunked local attention counts its
  // chunks from the start of these tokens.
  int64_t tokens_before = 0;
};

// Returns the usable boundaries of one group in steps of `hash_block_size` tokens. Bit b is set if
// and only if a prefix of b*hash_block_size tokens is usable in this group. The result has
// max_units + 1 bits; bit 0 is always set.
//
// `alignment` is the grid of the calling lookup in tokens (0: the group's block size). The EAGLE
// rule below depends on this grid. Bits off this grid have no meaning. REQUIRES: hash_block_size
// divides residency.spec.block_size.
//
// Rules (vLLM's find_longest_cache_hit of each manager, expressed as boundaries):
//   full, MLA, sink   every block before b is resident; if b is inside a block, also: the whole
//                     block is resident, or a partial entry of the block ends at or after b; the
//                     whole block or the entry must not end after max_units
//   sliding window W  the last N = ceil((W-1)/block_size) blocks before b are resident; without
//                     EAGLE, N is at least 1
//   chunked local C   the blocks from floor(b/C)*C to b are resident
//   Mamba             the state that ends at b is resident (EAGLE changes nothing here)
//   EAGLE, full       the rule holds at b + min(alignment, block_size) tokens
//   EAGLE, window     the rule holds at b and the block after b is resident too; on a grid of S > 1
//                     blocks, a boundary b of fewer than N blocks has another rule: b + S is also
//                     less than N blocks, and the first b + S + 1 blocks are resident
Bitmap UsableBoundaries(const GroupResidency& residency, int64_t hash_block_size, int64_t max_units,
                        int64_t alignment = 0);

// The highest set bit that is a multiple of `step`, or 0. REQUIRES: step > 0.
int64_t HighestBoundary(const Bitmap& usable, int64_t step);

// The part of one prompt that one worker can reuse.
struct Reuse {
  int64_t tokens = 0;  // length of the reusable prefix
  // Per group, in input order: the longest prefix that this group and the groups of equal spec
  // could serve without the other groups. 0 for a group that takes no part in prefix caching.
  std::vector<int64_t> per_group_tokens;
};

// Returns the highest boundary <= max_tokens that is a multiple of `alignment` and usable in all
// groups. The result is equal to the result of an engine's own lookup:
// - Groups with equal specs count as one group: a block is resident if all of these groups hold it.
// - Some rules depend on the limit of the lookup (EAGLE, hits inside blocks). For these rules, the
//   groups are searched in vLLM's order, full attention first. The results of the earlier groups
//   limit the search of each later group.
//
// An engine calls its lookup with max_tokens = prompt tokens - 1, because the last token is always
// computed. `eagle_limit`: see EagleLimit; a value below max_tokens counts as max_tokens. REQUIRES:
// hash_block_size divides alignment and the block size of every group that takes part in prefix
// caching.
Reuse ReusablePrefix(std::span<const GroupResidency> groups, int64_t hash_block_size,
                     int64_t alignment, int64_t max_tokens, int64_t eagle_limit = 0);

}  // namespace kvcast
