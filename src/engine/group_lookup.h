// GroupLookup: the cache-hit lookup for the groups of one spec. It probes the pool.
//
// A block counts only if all these groups have the block. The lookup probes no more blocks than the
// rule of the kind can need, and each block at most once per request. The found blocks become a
// residency bitmap. The rules of reuse.h compute the hit from this bitmap.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/spec/reuse.h"
#include "src/engine/block_pool.h"
#include "src/spec/spec_groups.h"

namespace kvcast::engine {

class GroupLookup {
 public:
  // `alignment`: hit lengths are multiples of this number of tokens; see HitAlignment. The pool
  // must outlive the lookup.
  GroupLookup(const internal::SpecGroup& group, const BlockPool& pool, int64_t alignment);

  // Starts the lookup of another request. The first `tokens_before` tokens are already present.
  // `chain` is the part of the request's chain after these tokens. All lengths count from the end
  // of these tokens. The span is borrowed until the next Begin.
  void Begin(std::span<const Digest> chain, int64_t tokens_before = 0);

  // The longest prefix of at most max_tokens that the groups can serve. With `drop_eagle`, the
  // groups must also hold the drop unit after the prefix (see internal::DropUnit). This unit is not
  // part of the prefix, and the engine computes it again.
  int64_t LongestHit(int64_t max_tokens, bool drop_eagle);

  // Fills the block tables of a hit that LongestHit found, or of a shorter usable hit.
  void FillTables(int64_t hit_tokens, std::vector<std::vector<BlockId>>& tables) const;

 private:
  bool ProbeBlock(int64_t index);
  // Prefetches the memory that ProbeBlock(index) will read.
  void Prefetch(int64_t index) const;
  void ProbePartialEnd(int64_t end_unit);
  bool FindInAll(const Digest& digest, std::vector<std::vector<BlockId>>& ids, int64_t index);

  void ProbeFull(int64_t max_units);
  void ProbeForward(int64_t begin, int64_t end);
  int64_t HighestHit(int64_t max_units) const;
  int64_t SearchBackward(int64_t max_units);
  int64_t FirstNeededBlock(int64_t hit_tokens) const;

  GroupSpec spec_;
  std::vector<GroupIdx> members_;
  const BlockPool& pool_;
  int64_t alignment_;
  bool inside_blocks_;  // hits may end inside a block
  int64_t unit_;  // tokens per boundary: hash_block_size if inside_blocks_, otherwise block_size
  std::span<const Digest> chain_;

  GroupResidency residency_;
  Bitmap probed_blocks_;
  Bitmap probed_ends_;
  std::vector<std::vector<BlockId>> block_ids_;    // per member, by block
  std::vector<std::vector<BlockId>> partial_ids_;  // per member, by hash unit
};

}  // namespace kvcast::engine
