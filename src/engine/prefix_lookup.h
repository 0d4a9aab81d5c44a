// PrefixLookup: the longest prefix that all groups of a pool can serve together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "src/engine/block_pool.h"
#include "src/engine/group_lookup.h"
#include "src/spec/spec_groups.h"

namespace kvcast::engine {

class PrefixLookup {
 public:
  // The pool must outlive the lookup. REQUIRES: a validated config.
  PrefixLookup(const CacheConfig& config, const BlockPool& pool);
  // As above, but hit lengths are multiples of `alignment` tokens in place of HitAlignment(config).
  // REQUIRES: `alignment` is a multiple of every block size, or HitAlignment(config).
  PrefixLookup(const CacheConfig& config, const BlockPool& pool, int64_t alignment);

  // The hit of at most max_tokens after the first `tokens_before` tokens, which are already
  // present. `chain` begins after these tokens, and the length of the hit counts from their end.
  PrefixHit Find(std::span<const Digest> chain, int64_t max_tokens, int64_t tokens_before = 0);

  // For each group, the longest prefix that the groups of its spec could serve; 0 for a group that
  // takes no part in prefix caching.
  std::vector<int64_t> FindPerGroup(std::span<const Digest> chain, int64_t max_tokens);

 private:
  void Begin(std::span<const Digest> chain, int64_t tokens_before);

  int64_t HashedTokens(std::span<const Digest> chain, int64_t max_tokens) const;
  int64_t LimitOfEagle(std::span<const Digest> chain, int64_t max_tokens) const;

  size_t num_groups_;
  EngineRules rules_;
  int64_t hash_block_size_;
  int64_t alignment_;
  std::vector<internal::SpecGroup> groups_;
  std::vector<GroupLookup> lookups_;  // one per spec group
};

}  // namespace kvcast::engine
