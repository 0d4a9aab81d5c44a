// GroupBlindIndex: one set of block hashes, without groups, tiers or copies. Several other routers
// keep such a set. A remove of a hash by any group removes the block for all groups. This class
// exists to measure the error of the set. The exact index cannot imitate the set, because the
// index does not store which groups have removed a block.
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
  // The index has one block size: the smallest block size of `groups`. If there are no groups, it
  // is the hash block size of the query.
  explicit GroupBlindIndex(std::span<const GroupSpec> groups);

  std::vector<size_t> Apply(const EventBatch& batch) override;
  // Returns the length of the run of held blocks from the start of the prompt, at most
  // prompt_tokens - 1.
  Promise Match(std::span<const BlockHash> chain, int64_t hash_block_size,
                int64_t prompt_tokens) override;

 private:
  int64_t block_size_ = 0;  // 0: the hash block size of the query
  std::unordered_set<BlockHash, router::SeededHash> held_;
};

}  // namespace kvcast::tools
