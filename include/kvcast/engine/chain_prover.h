// ChainProver: answers challenges for an engine. The answer shows the hash scheme of the engine:
// algorithm, NONE_HASH, hash_block_size, lookahead, and the form of the extra keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast {

// Thread-safe.
class ChainProver {
 public:
  // The arguments are those of CacheManager::Create. Error: the config is not valid.
  static Result<std::unique_ptr<ChainProver>> Create(CacheConfig config, BlockHasher hasher,
                                                     const EventOptions& events);
  ~ChainProver();

  // Store events of prompts that are made from the nonce; see kvcast/hash/chain_challenge.h. The
  // first prompt has no keys and fills a block of the group with the smallest blocks. Each other
  // prompt fills one hash unit, because the keys of an event do not determine the keys of several
  // units. These prompts have a cache salt, a multimodal item and, if the hash covers no path of an
  // adapter, an adapter. The events have the form of the engine's own events. Cost: the hashes of
  // the block, and of three units.
  EventBatch Answer(uint64_t nonce);

 private:
  class Impl;
  explicit ChainProver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
