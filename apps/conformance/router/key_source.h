// KeySource: the hash chains of a replayed run's prompts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "apps/conformance/scenario/scenario.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast::tools {

// Computes the engine's own hashes. The algorithm and the seed come from the recording.
class KeySource {
 public:
  // Not ok: the configuration is invalid.
  static Result<KeySource> Create(const ScenarioConfig& config);
  std::vector<BlockHash> Chain(std::span<const TokenId> tokens, const HashInputs& inputs);

 private:
  KeySource(const ScenarioConfig& config, BlockHasher hasher)
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
