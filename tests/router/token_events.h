// An index fed in token mode, and builders of stores with token ids, for its tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/prefix_index.h"
#include "kvcast/token_keys.h"
#include "tests/router/index_events.h"

namespace kvcast::testing {

// Tokens first, first + 1, ...
inline std::vector<TokenId> Tokens(TokenId first, int64_t count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline BlockHash Hash(uint64_t value) { return BlockHash::FromUnsigned(value); }

// A store in blocks of 4 tokens: `hashes` of the span `tokens` behind `parent`.
inline BlockStored StoreTokens(std::vector<BlockHash> hashes, std::vector<TokenId> tokens,
                               std::optional<BlockHash> parent = std::nullopt, int64_t group = 0,
                               int64_t block_size = 4) {
  BlockStored event = StoreFull(std::move(hashes), group, block_size);
  event.token_ids = std::move(tokens);
  event.parent_block_hash = std::move(parent);
  return event;
}

// As vLLM sends it: extra keys for every hash.
inline BlockStored WithExtraKeys(BlockStored event,
                                 std::vector<std::optional<ExtraKeys>> extra_keys) {
  event.extra_keys = std::move(extra_keys);
  return event;
}
inline BlockStored WithNoExtraKeys(BlockStored event) {
  event.extra_keys.emplace(event.block_hashes.size(), std::nullopt);
  return event;
}

class TokenModeWorker {
 public:
  explicit TokenModeWorker(TokenKeysConfig config = {}, std::vector<GroupSpec> groups = {},
                           HitReports hit_reports = HitReports::kUnknown)
      : keys_(Complete(std::move(config), groups)) {
    WorkerConfig worker;
    worker.hit_reports = hit_reports;
    worker.groups = std::move(groups);
    worker.hash_block_size = 4;
    EXPECT_TRUE(index_.AddWorker(kWorker, worker).ok());
  }

  template <typename... Events>
  void Apply(Events... events) {
    keys_.NoteLeftOut(index_.Apply(kWorker, keys_.Rekey(Batch(std::move(events)...))));
  }
  // What is promised of a prompt of these tokens and one more.
  int64_t Reusable(std::vector<TokenId> tokens, const HashInputs& inputs = {},
                   int tokens_per_position = 1) const {
    tokens.push_back(-1);
    const auto chain = ContentChain(tokens, 4, inputs, tokens_per_position);
    const auto matches = index_.Match(chain, 4, std::ssize(tokens));
    return matches.empty() ? -1 : matches[0].gpu_tokens;
  }

  TokenKeys& keys() { return keys_; }
  PrefixIndex& index() { return index_; }
  TokenKeysCounters counters() const { return keys_.counters(); }
  uint64_t unresolved(Unresolved reason) const {
    return keys_.counters().unresolved_held[static_cast<size_t>(reason)];
  }

 private:
  static TokenKeysConfig Complete(TokenKeysConfig config, const std::vector<GroupSpec>& groups) {
    config.groups = groups;
    config.hash_block_size = 4;
    return config;
  }

  TokenKeys keys_;
  PrefixIndex index_;
};

}  // namespace kvcast::testing
