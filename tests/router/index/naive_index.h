// NaiveIndex: the definition of the index as code, for comparison. It keeps copies in a std::map
// and tries every boundary of every group in turn. It shares no code with the library.
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
  int64_t unit = 16;
  int64_t alignment = 16;
  // (tier, group, hash) -> copies
  std::map<std::tuple<int, int64_t, uint64_t>, int64_t> copies;

  void Store(int tier, int64_t group, uint64_t hash) { ++copies[{tier, group, hash}]; }
  bool Remove(int tier, int64_t group, uint64_t hash);
  void Clear(int tier);
  bool Holds(int64_t group, uint64_t hash) const { return copies.count({0, group, hash}) > 0; }

  // Reusable tokens of a prompt of `tokens` tokens.
  int64_t Match(const std::vector<uint64_t>& chain, int64_t tokens) const;
  // The longest prefix, in tokens, that could be served with blocks of the tiers 1 to `last_tier`
  // in addition to the first `local` tokens; `local` if none is longer. A gain of less than a block
  // counts. If states are kept inside blocks, the prefix may end there.
  int64_t Reach(const std::vector<uint64_t>& chain, int64_t tokens, int64_t local,
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
  int64_t WithTail(const std::vector<uint64_t>& chain, int64_t tokens, int64_t end,
                   int last_tier) const;
  bool PartialCovers(int64_t group, const std::vector<uint64_t>& chain, int64_t boundary,
                     int64_t max_tokens) const;
};

}  // namespace kvcast::testing
