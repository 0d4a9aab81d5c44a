// GroupBlindIndex: one set of block hashes, without groups, tiers or copies, as several routers
// keep it. A remove of a hash by any group takes the block from all of them. To measure its error
// only: the exact index cannot be asked this way, because the set has lost what it would need.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>

#include "apps/conformance/router/policy_index.h"
#include "kvcast/spec/cache_spec.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::tools {

class GroupBlindIndex : public PolicyIndex {
 public:
  // Such a router knows one block size: here the smallest of the groups'. Without groups, the hash
  // unit of the query.
  explicit GroupBlindIndex(std::span<const GroupSpec> groups);

  std::vector<size_t> Apply(const EventBatch& batch) override;
  // The run of blocks in the set from the start of the prompt, at most prompt_tokens - 1.
  Promise Match(std::span<const BlockHash> chain, int64_t unit, int64_t prompt_tokens) override;

 private:
  int64_t block_size_ = 0;  // 0: the unit of the query
  std::unordered_set<BlockHash, router::SeededHash> held_;
};

}  // namespace kvcast::tools
