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
  // The arguments are those of CacheManager::Create. Of `events`, only hash_form has an effect.
  // Error: kInvalidArgument if the config is not valid.
  static Result<std::unique_ptr<ChainProver>> Create(CacheConfig config, BlockHasher hasher,
                                                     const EventOptions& events);
  ~ChainProver();

  // Returns one store event for each challenge prompt. The prompts are made from the nonce; see
  // kvcast/hash/chain_challenge.h. The events have the form of the engine's own events.
  // - The first prompt has no extra keys. It fills one block of the group with the smallest blocks,
  //   or one hash unit if caching is off.
  // - The second prompt has a cache salt.
  // - The third prompt has a multimodal item.
  // - The fourth prompt has an adapter. It exists only with ExtraKeyScheme::kBare, because with
  //   kTagged the hash covers the path of the adapter, and no event carries this path.
  //
  // Each prompt with an extra key fills one hash unit, because the extra keys of an event do not
  // determine the extra keys of several units. Cost: the hashes of one block and of at most three
  // units.
  EventBatch Answer(uint64_t nonce);

 private:
  class Impl;
  explicit ChainProver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
