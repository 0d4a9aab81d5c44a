// PromptNamer: the names of a prompt's blocks, for queries of the audit's indices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/engine/engine_options.h"
#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/content_key.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::tools {

// The names of one prompt's blocks. The vectors are shared, because the audit keeps them while an
// admission waits for its batches.
struct PromptNames {
  std::shared_ptr<const std::vector<ContentKey>> contents;  // nullptr: none
  std::shared_ptr<const std::vector<BlockHash>> chain;      // nullptr: none
};

// Thread-compatible.
class PromptNamer {
 public:
  // `cache` is the result of MakeCacheConfig(options). Not ok: the error names the flag.
  static Result<PromptNamer> Create(const CacheOptions& options, const CacheConfig& cache);

  // Returns the content keys, and with `with_chain` also the engines' hash chain.
  PromptNames Of(std::span<const TokenId> tokens, bool with_chain);

 private:
  PromptNamer(const CacheConfig& cache, BlockHasher hasher, EventHashForm form);

  const int64_t hash_block_size_;
  const ChainForm chain_form_;
  BlockHasher hasher_;
  const EventHashForm form_;
};

}  // namespace kvcast::tools
