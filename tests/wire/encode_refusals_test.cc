// The encoder refuses values that no decoder would accept, and then appends nothing.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

void ExpectRefused(const Event& event) {
  EventBatch batch = BatchOf(AllBlocksCleared());
  batch.events.push_back(event);
  Payload payload = FromHex("aabb");
  for (const Dialect dialect : {Dialect::kVllm1, Dialect::kVllm11, Dialect::kSglang4}) {
    const Status status = EncodeBatch(batch, dialect, payload);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("event 1"), std::string::npos) << status.message();
    EXPECT_EQ(ToHex(payload), "aabb");
  }
}

template <typename Change>
void ExpectRefusedAfter(Change change) {
  BlockStored event = FullStored();
  change(event);
  ExpectRefused(event);
}

TEST(EncodeRefusals, NegativeSizes) {
  ExpectRefusedAfter([](BlockStored& e) { e.block_size = -1; });
  ExpectRefusedAfter([](BlockStored& e) { e.kv_cache_spec_sliding_window = -1; });
  ExpectRefusedAfter([](BlockStored& e) { e.token_offset = -1; });
}

TEST(EncodeRefusals, TokensThatDoNotFillTheirPositions) {
  ExpectRefusedAfter([](BlockStored& e) { e.tokens_per_position = 0; });
  ExpectRefusedAfter([](BlockStored& e) { e.tokens_per_position = 3; });
  ExpectRefusedAfter([](BlockStored& e) {
    e.tokens_per_position = 2;
    e.token_ids = {1, 2, 3};
  });
  ExpectRefusedAfter([](BlockStored& e) {
    e.tokens_per_position = 2;
    e.token_ids.reset();
  });
}

TEST(EncodeRefusals, LookaheadThatDoesNotFillItsBlocks) {
  ExpectRefusedAfter([](BlockStored& e) { e.lookahead = LookaheadTokens{-1, {}}; });
  ExpectRefusedAfter([](BlockStored& e) { e.lookahead = LookaheadTokens{0, {1, 2}}; });
  ExpectRefusedAfter([](BlockStored& e) { e.lookahead = LookaheadTokens{2, {1, 2}}; });
  ExpectRefusedAfter([](BlockStored& e) { e.lookahead = LookaheadTokens{1, {1, 2, 3}}; });
  ExpectRefusedAfter([](BlockStored& e) {
    e.lookahead = LookaheadTokens{1, {1, 2}};
    e.block_hashes.clear();
  });
}

TEST(EncodeRefusals, TextThatIsNotUtf8) {
  const std::string bad = "\xff";
  ExpectRefusedAfter([&](BlockStored& e) { e.medium = bad; });
  ExpectRefusedAfter([&](BlockStored& e) { e.lora_name = bad; });
  ExpectRefusedAfter([&](BlockStored& e) { e.kv_cache_spec_kind = bad; });
  ExpectRefusedAfter([&](BlockStored& e) { e.locality = bad; });
  ExpectRefusedAfter([&](BlockStored& e) { e.ownership = bad; });
  ExpectRefusedAfter([&](BlockStored& e) { e.session_id = bad; });
  ExpectRefusedAfter([&](BlockStored& e) { e.cache_salt = bad; });
  ExpectRefusedAfter(
      [&](BlockStored& e) { e.extra_keys = ExtraKeyEntries{ExtraKeys{ExtraKey::Text(bad)}}; });
  ExpectRefusedAfter([&](BlockStored& e) { e.metadata = {{bad, ExtraKey::Int(1)}}; });
  ExpectRefusedAfter([&](BlockStored& e) { e.metadata = {{"k", ExtraKey::Text(bad)}}; });
  BlockRemoved removed;
  removed.ownership = bad;
  ExpectRefused(removed);
}

TEST(EncodeRefusals, ListsThatAreNestedTooDeep) {
  ExtraKey deep = ExtraKey::Int(1);
  for (int i = 0; i < 100; ++i) deep = ExtraKey{ExtraKeyList{{deep}}};
  ExpectRefusedAfter([&](BlockStored& e) { e.extra_keys = ExtraKeyEntries{ExtraKeys{deep}}; });
  ExpectRefusedAfter([&](BlockStored& e) { e.metadata = {{"k", deep}}; });
}

}  // namespace
}  // namespace kvcast::wire
