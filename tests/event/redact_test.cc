// Redact removes the content of prompts from stores, and nothing else.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/core/redact.h"

#include <gtest/gtest.h>

#include "kvcast/wire/wire.h"

namespace kvcast {
namespace {

BlockStored FullStore() {
  BlockStored stored;
  stored.block_hashes = {BlockHash::FromUnsigned(1), BlockHash::FromUnsigned(2)};
  stored.parent_block_hash = BlockHash::FromUnsigned(3);
  stored.token_ids = std::vector<TokenId>(64, 5);
  stored.tokens_per_position = 2;
  stored.block_size = 16;
  stored.lora_id = 4;
  stored.lora_name = "tenant";
  stored.medium = kMediumGpu;
  stored.extra_keys = {ExtraKeys{{"salt"}}, std::nullopt};
  stored.group_idx = 1;
  stored.kv_cache_spec_kind = "sliding_window";
  stored.kv_cache_spec_sliding_window = 128;
  stored.session_id = "session";
  stored.cache_salt = "salt";
  stored.metadata.emplace().emplace_back("cache_salt", ExtraKey{"salt"});
  stored.token_offset = 32;
  stored.lookahead = LookaheadTokens{1, {7, 8}};
  return stored;
}

TEST(Redact, KeepsTheFieldsThatTheIndexNeeds) {
  BlockRemoved removed;
  removed.block_hashes = {BlockHash::FromUnsigned(9)};
  EventBatch batch;
  batch.events = {FullStore(), removed, AllBlocksCleared()};
  const EventBatch before = batch;
  Redact(batch);
  BlockStored expected = FullStore();
  expected.token_ids.emplace();
  expected.tokens_per_position = 1;
  expected.lora_name.reset();
  expected.extra_keys.reset();
  expected.session_id.reset();
  expected.cache_salt.reset();
  expected.metadata.reset();
  expected.lookahead = LookaheadTokens{1, {0, 0}};
  EXPECT_EQ(std::get<BlockStored>(batch.events[0]), expected);
  EXPECT_EQ(batch.events[1], before.events[1]);
  EXPECT_EQ(batch.events[2], before.events[2]);
}

// Readers of vLLM's format require a list of token ids.
TEST(Redact, TheListOfTokensIsEmptyAndNotNil) {
  EventBatch batch;
  batch.events = {FullStore()};
  Redact(batch);
  ASSERT_TRUE(std::get<BlockStored>(batch.events[0]).token_ids);
  EXPECT_TRUE(std::get<BlockStored>(batch.events[0]).token_ids->empty());
}

}  // namespace
}  // namespace kvcast
