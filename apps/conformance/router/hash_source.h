// HashSource: computes the block hashes of the prompts of a recorded run, as the engine computed
// them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "apps/conformance/scenario/scenario.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast::tools {

// The algorithm, the seed and the forms of the hashes come from the recording.
class HashSource {
 public:
  // Errors: see BlockHasher::FromNoneHash.
  static Result<HashSource> Create(const ScenarioConfig& config);
  // Returns the hash of each whole hash unit of the prompt, from the first to the last.
  std::vector<BlockHash> Chain(std::span<const TokenId> tokens, const HashInputs& inputs);

 private:
  HashSource(const ScenarioConfig& config, BlockHasher hasher)
      : hash_block_size_(config.cache.hash_block_size),
        hash_form_(config.hash_form),
        chain_form_(config.chain_form),
        hasher_(std::move(hasher)) {}

  int64_t hash_block_size_;
  EventHashForm hash_form_;
  ChainForm chain_form_;
  BlockHasher hasher_;
};

}  // namespace kvcast::tools
