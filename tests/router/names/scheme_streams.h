// Streams of stores under a chosen hash scheme: single hand-made stores, and the event stream of a
// real cache manager.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast::testing {

// The scheme of an engine.
struct EngineScheme {
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::string seed{kDefaultHashSeed};
  int64_t hash_block_size = 16;
  EventHashForm form = EventHashForm::kInt64;
  ChainForm chain = {};
};

inline BlockHasher HasherOf(const EngineScheme& scheme) {
  return BlockHasher::FromSeed(scheme.algorithm, scheme.seed).value();
}

inline std::vector<TokenId> SchemeTokens(int64_t count, TokenId first) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Returns a store of blocks [from, to) of a prompt, in a group with this block size. The store
// announces every block. The prompt must contain the lookahead tokens of the last block. `arrived`:
// number of tokens when the request arrived; the other tokens were appended later. 0: all tokens.
inline BlockStored DenseStore(const EngineScheme& scheme, const std::vector<TokenId>& prompt,
                              int64_t from, int64_t to, int64_t block_size = 16,
                              const HashInputs& inputs = {}, size_t arrived = 0) {
  std::vector<Digest> chain;
  BlockHasher hasher = HasherOf(scheme);
  const std::vector<TokenId> head(
      prompt.begin(), arrived == 0 ? prompt.end() : prompt.begin() + static_cast<int64_t>(arrived));
  hasher.ExtendChain(head, scheme.hash_block_size, inputs, chain, scheme.chain);
  hasher.ExtendChain(prompt, scheme.hash_block_size, inputs, chain, scheme.chain);
  const int64_t units = block_size / scheme.hash_block_size;
  const auto hash = [&](int64_t block) {
    return ToEventHash(BlockDigest(chain, block, units), scheme.form);
  };
  BlockStored store;
  store.extra_keys.emplace();
  for (int64_t block = from; block < to; ++block) {
    store.block_hashes.push_back(hash(block));
    ExtraKeys keys = ExtraKeysFor(inputs, block * block_size, (block + 1) * block_size,
                                  {.lookahead = scheme.chain.lookahead});
    store.extra_keys->push_back(keys.empty() ? std::nullopt : std::optional(std::move(keys)));
  }
  if (const int64_t width = scheme.chain.lookahead; width > 0) {
    store.lookahead.emplace().width = width;
    for (int64_t block = from; block < to; ++block) {
      const auto behind = prompt.begin() + (block + 1) * block_size;
      auto& sent = store.lookahead->token_ids;
      sent.insert(sent.end(), behind, behind + width);
    }
  }
  if (from > 0) store.parent_block_hash = hash(from - 1);
  store.token_ids.emplace(prompt.begin() + from * block_size, prompt.begin() + to * block_size);
  store.block_size = block_size;
  store.medium = kMediumGpu;
  store.group_idx = 0;
  if (!inputs.lora_name.empty()) {
    store.lora_id = 1;
    store.lora_name = inputs.lora_name;
  }
  return store;
}

// Returns `dense` with the hashes of only these blocks, in this order. The tokens stay. `blocks`:
// positions in dense.block_hashes.
inline BlockStored Announcing(const BlockStored& dense, const std::vector<size_t>& blocks) {
  BlockStored store = dense;
  store.block_hashes.clear();
  store.extra_keys->clear();
  if (store.lookahead) store.lookahead->token_ids.clear();
  for (const size_t block : blocks) {
    store.block_hashes.push_back(dense.block_hashes[block]);
    store.extra_keys->push_back((*dense.extra_keys)[block]);
    if (!store.lookahead) continue;
    const auto width = store.lookahead->width;
    const auto first = dense.lookahead->token_ids.begin() + static_cast<int64_t>(block) * width;
    store.lookahead->token_ids.insert(store.lookahead->token_ids.end(), first, first + width);
  }
  return store;
}

// Returns a store of the first block of prompt number `n`. All numbers give different blocks.
inline BlockStored RootStore(const EngineScheme& scheme, int64_t n) {
  return DenseStore(scheme, SchemeTokens(scheme.hash_block_size, 1000 * n), 0, 1,
                    scheme.hash_block_size);
}

// Returns the events of an engine that runs `requests` requests in chunks of 64 tokens. Some
// requests are plain. Some requests have a LoRA adapter, a salt or an image.
inline std::vector<Event> EngineStream(const EngineScheme& scheme, std::vector<GroupSpec> groups,
                                       int64_t requests = 8) {
  CacheConfig config;
  config.groups = std::move(groups);
  config.num_blocks = 2000;
  config.hash_block_size = scheme.hash_block_size;
  auto cache = CacheManager::Create(config, HasherOf(scheme), {.hash_form = scheme.form}).value();
  for (int64_t n = 0; n < requests; ++n) {
    CacheRequest request;
    request.id = std::to_string(n);
    request.tokens = SchemeTokens(256, 1000 * n);
    request.prompt_tokens = 256;
    if (n % 4 == 1) request.hash_inputs.lora_name = "adapter";
    if (n % 4 == 2) request.hash_inputs.cache_salt = "tenant";
    if (n % 4 == 3) request.hash_inputs.mm_items = {{"image", 70, 100}};
    for (int64_t done = 0; done < 256; done += 64) {
      cache->BeginStep();
      cache->AllocateSlots(request, {.computed_tokens = done, .new_tokens = 64});
    }
    cache->Free(request);
  }
  return cache->TakeEvents();
}

}  // namespace kvcast::testing
