// PeerEngine: an engine for tests of the formats of TensorRT-LLM and Mooncake. It has a cache
// manager with a pool that evicts, and makes random prompts that share prefixes. Like TensorRT-LLM
// and Mooncake, it announces a block once, and a store covers only the tokens of the blocks that
// the store names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/engine/cache_manager.h"

namespace kvcast::testing {

inline constexpr int64_t kPeerBlock = 4;  // tokens

class PeerEngine {
 public:
  PeerEngine(std::vector<GroupSpec> groups, int64_t blocks, uint32_t seed,
             EventOptions events = {.announce_once = true, .exact_spans = true})
      : random_(seed) {
    CacheConfig config;
    config.groups = std::move(groups);
    config.num_blocks = blocks;
    config.max_model_len = 4096;
    config.max_in_flight_tokens = 4096;
    auto hasher = BlockHasher::FromSeed(HashAlgorithm::kSha256, "of another engine").value();
    cache_ = CacheManager::Create(ValidateCacheConfig(std::move(config)).value(), std::move(hasher),
                                  events)
                 .value();
  }

  // Returns the next prompt: a new prompt, or the beginning of an earlier prompt with another
  // continuation.
  std::vector<TokenId> NextPrompt() {
    std::vector<TokenId> prompt;
    if (!prompts_.empty() && Below(4) != 0) {
      prompt = prompts_[Below(prompts_.size())];
      prompt.resize(1 + Below(prompt.size()));
    }
    const size_t more = 1 + Below(24);
    for (size_t i = 0; i < more; ++i) prompt.push_back(static_cast<TokenId>(Below(50'000)));
    if (prompts_.size() < 12) {
      prompts_.push_back(prompt);
    } else {
      prompts_[Below(prompts_.size())] = prompt;
    }
    return prompt;
  }
  // Returns the number of tokens of the prompt that the engine's own lookup finds.
  int64_t Lookup(const std::vector<TokenId>& prompt) {
    CacheRequest request = RequestOf(prompt);
    cache_->BeginStep();
    return cache_->GetComputedBlocks(request).tokens;
  }
  // Computes the prompt, ends the request, and returns the events.
  std::vector<Event> Run(const std::vector<TokenId>& prompt) {
    CacheRequest request = RequestOf(prompt);
    cache_->BeginStep();
    const PrefixHit hit = cache_->GetComputedBlocks(request);
    const int64_t left = std::ssize(prompt) - hit.tokens;
    EXPECT_TRUE(cache_->AllocateSlots(request, {.new_tokens = left, .hit = &hit}));
    cache_->Free(request);
    return cache_->TakeEvents();
  }
  std::vector<Event> Reset() {
    EXPECT_TRUE(cache_->ResetPrefixCache());
    return cache_->TakeEvents();
  }
  size_t Below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }

 private:
  CacheRequest RequestOf(const std::vector<TokenId>& prompt) {
    CacheRequest request;
    request.id = std::to_string(next_id_++);
    request.tokens = prompt;
    request.prompt_tokens = std::ssize(prompt);
    return request;
  }

  std::mt19937 random_;
  std::unique_ptr<CacheManager> cache_;
  std::vector<std::vector<TokenId>> prompts_;
  int64_t next_id_ = 0;
};

inline GroupSpec PeerFull() { return {.kind = SpecKind::kFullAttention, .block_size = kPeerBlock}; }
inline GroupSpec PeerWindow(int64_t tokens) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = kPeerBlock, .sliding_window = tokens};
}

}  // namespace kvcast::testing
