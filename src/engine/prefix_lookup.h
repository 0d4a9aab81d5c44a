// PrefixLookup: the longest prefix that all groups of a pool can serve together.
//
// vLLM's fixed point: every spec group in turn accepts the candidate length or shortens it, until a
// whole round leaves it alone. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/cache_manager.h"
#include "src/engine/block_pool.h"
#include "src/engine/group_lookup.h"

namespace kvcast::engine {

class PrefixLookup {
 public:
  // The pool outlives the lookup. REQUIRES: a validated config.
  PrefixLookup(const CacheConfig& config, const BlockPool& pool);

  // The hit of at most max_tokens.
  PrefixHit Find(std::span<const Digest> chain, int64_t max_tokens);

  // Per group, the longest prefix that it, looked up with the groups of its spec, could serve.
  std::vector<int64_t> FindPerGroup(std::span<const Digest> chain, int64_t max_tokens);

 private:
  struct Candidate {
    int64_t tokens;
    int64_t longest;  // the longest prefix that any group served on the way
  };
  void Begin(std::span<const Digest> chain);
  Candidate FixedPoint(int64_t max_tokens);
  // One round over all groups; returns the shortened candidate.
  int64_t Round(int64_t tokens, int64_t max_tokens, int64_t& longest);
  int64_t SearchOne(size_t index, int64_t tokens, int64_t max_tokens);
  bool OneRoundSuffices() const;

  size_t num_groups_;
  bool unitary_;
  std::vector<GroupLookup> lookups_;  // full kinds first
  std::vector<int64_t> full_hits_;    // per lookup; full kinds only: -1 before the first search
  std::vector<bool> eagle_verified_;  // per lookup
};

}  // namespace kvcast::engine
