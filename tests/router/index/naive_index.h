// NaiveWorker defines the answers of the index for one worker, in simple code. Tests compare the
// index with NaiveWorker. NaiveWorker keeps copies in a std::map, and tries every boundary for
// every group. Of the library, it uses only kvcast/spec/cache_spec.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "kvcast/spec/cache_spec.h"

namespace kvcast::testing {

struct NaiveWorker {
  std::vector<GroupSpec> groups;
  int64_t hash_block_size = 16;
  int64_t alignment = 16;
  // (tier, group, hash) -> copies
  std::map<std::tuple<int, int64_t, uint64_t>, int64_t> copies;

  void Store(int tier, int64_t group, uint64_t hash) { ++copies[{tier, group, hash}]; }
  bool Remove(int tier, int64_t group, uint64_t hash);
  void Clear(int tier);
  bool Holds(int64_t group, uint64_t hash) const { return copies.count({0, group, hash}) > 0; }

  // Returns the number of reusable tokens of a prompt with `tokens` tokens.
  int64_t Match(const std::vector<uint64_t>& chain, int64_t tokens) const;
  // Returns the longest prefix, in tokens, that the worker could serve after loads of whole blocks
  // from the tiers 1 to `last_tier`. The first `local` tokens need no load. Returns `local` if no
  // longer prefix is possible. A prefix may be longer than `local` by less than one block.
  int64_t WithLoads(const std::vector<uint64_t>& chain, int64_t tokens, int64_t local,
                    int last_tier) const;
  // Returns the longest prefix, in tokens, at whose end each group has an entry on a lower tier.
  // The prefix is longer than `end` by less than one block. `end` may lie inside a block. If the
  // prefix contains this whole block, each group without states must have the block on a lower tier
  // too. Returns `end` if there is no such prefix, or if the groups keep no Mamba states inside
  // blocks.
  int64_t WithTail(const std::vector<uint64_t>& chain, int64_t tokens, int64_t end,
                   int last_tier) const;

 private:
  bool Usable(int64_t group, const std::vector<uint64_t>& chain, int64_t boundary,
              int64_t max_tokens) const;
  bool HoldsBlock(int64_t group, const std::vector<uint64_t>& chain, int64_t block,
                  int64_t max_tokens) const;
  bool Loadable(int64_t group, const std::vector<uint64_t>& chain, int64_t end, int64_t local,
                int last_tier) const;
  bool OnLowerTier(int64_t group, const std::vector<uint64_t>& chain, int64_t end,
                   int last_tier) const;
  bool EndsInsideBlocks() const;
  bool PartialCovers(int64_t group, const std::vector<uint64_t>& chain, int64_t boundary,
                     int64_t max_tokens) const;
};

}  // namespace kvcast::testing
