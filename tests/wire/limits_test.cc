// The decoder accepts input at every limit of WireLimits, and refuses the smallest input above the
// limit.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

std::vector<BlockHash> Hashes(size_t count) {
  std::vector<BlockHash> hashes;
  for (size_t i = 0; i < count; ++i) hashes.push_back(BlockHash::FromUnsigned(i));
  return hashes;
}

BlockRemoved Removed(size_t hashes) {
  BlockRemoved event;
  event.block_hashes = Hashes(hashes);
  return event;
}

BlockStored Tokens(size_t count, uint8_t per_position = 1) {
  BlockStored event;
  event.token_ids.emplace(count, 7);
  event.tokens_per_position = count > 0 ? per_position : 1;
  return event;
}

// A valid event follows the tested event. The decoder must accept the valid event even if it
// rejects the tested event.
Decoded DecodeWithNeighbour(Event event, const WireLimits& limits) {
  EventBatch batch = BatchOf(std::move(event));
  batch.events.emplace_back(AllBlocksCleared());
  return Decode(Encode(batch, Dialect::kVllm11), limits);
}

void ExpectAccepted(const Decoded& decoded) {
  EXPECT_TRUE(decoded.status.ok()) << decoded.status.ToString();
  EXPECT_EQ(decoded.counts.decoded, 2u);
  EXPECT_EQ(decoded.counts.rejected_total(), 0u);
}

void ExpectEventRejected(const Decoded& decoded) {
  EXPECT_TRUE(decoded.status.ok()) << decoded.status.ToString();
  EXPECT_EQ(decoded.rejected(Reject::kLimit), 1u);
  EXPECT_EQ(decoded.counts.rejected_total(), 1u);
  EXPECT_EQ(decoded.batch.events, std::vector<Event>{AllBlocksCleared()});
}

void ExpectBatchRefused(const Decoded& decoded) {
  EXPECT_EQ(decoded.status.code(), StatusCode::kLimit);
  EXPECT_TRUE(decoded.batch.events.empty());
}

TEST(WireLimitsTest, FrameBytes) {
  const Payload payload = Encode(BatchOf(Removed(3)));
  WireLimits limits;
  limits.max_frame_bytes = payload.size();
  EXPECT_TRUE(Decode(payload, limits).status.ok());
  limits.max_frame_bytes = payload.size() - 1;
  ExpectBatchRefused(Decode(payload, limits));
}

TEST(WireLimitsTest, EventsOfABatch) {
  EventBatch batch;
  batch.events.resize(WireLimits().max_events, AllBlocksCleared());
  EXPECT_EQ(Decode(Encode(batch)).counts.decoded, WireLimits().max_events);
  batch.events.emplace_back(AllBlocksCleared());
  ExpectBatchRefused(Decode(Encode(batch)));
}

TEST(WireLimitsTest, HashesOfAnEvent) {
  ExpectAccepted(DecodeWithNeighbour(Removed(65536), WireLimits()));
  ExpectEventRejected(DecodeWithNeighbour(Removed(65537), WireLimits()));
}

TEST(WireLimitsTest, BytesOfAHash) {
  BlockRemoved removed;
  removed.block_hashes = {BlockHash::FromBytes(Payload(256, 1))};
  ExpectAccepted(DecodeWithNeighbour(removed, WireLimits()));
  removed.block_hashes = {BlockHash::FromBytes(Payload(257, 1))};
  ExpectEventRejected(DecodeWithNeighbour(removed, WireLimits()));
  BlockStored stored = FullStored();
  stored.parent_block_hash = BlockHash::FromBytes(Payload(257, 1));
  ExpectEventRejected(DecodeWithNeighbour(stored, WireLimits()));
}

TEST(WireLimitsTest, TokensOfAnEvent) {
  WireLimits limits;
  limits.max_tokens = 100;
  ExpectAccepted(DecodeWithNeighbour(Tokens(100), limits));
  ExpectEventRejected(DecodeWithNeighbour(Tokens(101), limits));
  ExpectAccepted(DecodeWithNeighbour(Tokens(1u << 20), WireLimits()));
  ExpectEventRejected(DecodeWithNeighbour(Tokens((1u << 20) + 1), WireLimits()));
}

TEST(WireLimitsTest, TokenPairsCountAsTwo) {
  WireLimits limits;
  limits.max_tokens = 100;
  ExpectAccepted(DecodeWithNeighbour(Tokens(100, 2), limits));
  ExpectEventRejected(DecodeWithNeighbour(Tokens(102, 2), limits));
}

TEST(WireLimitsTest, ExtraKeysOfAnEvent) {
  WireLimits limits;
  limits.max_extra_keys = 5;
  BlockStored event = FullStored();
  // 2 entries, 1 key and 2 items of the key.
  event.extra_keys = ExtraKeyEntries{ExtraKeys{ExtraKey::Item("x", 1)}, std::nullopt};
  ExpectAccepted(DecodeWithNeighbour(event, limits));
  event.extra_keys->push_back(std::nullopt);
  ExpectEventRejected(DecodeWithNeighbour(event, limits));
}

TEST(WireLimitsTest, Depth) {
  BlockStored event = FullStored();
  event.extra_keys = ExtraKeyEntries{ExtraKeys{ExtraKey::Item("x", 1)}};  // the item is at level 6
  WireLimits limits;
  limits.max_depth = 6;
  ExpectAccepted(DecodeWithNeighbour(event, limits));
  limits.max_depth = 5;
  ExpectEventRejected(DecodeWithNeighbour(event, limits));
}

TEST(WireLimitsTest, StringBytes) {
  BlockStored event = FullStored();
  event.lora_name = std::string(1024, 'n');
  ExpectAccepted(DecodeWithNeighbour(event, WireLimits()));
  event.lora_name = std::string(1025, 'n');
  ExpectEventRejected(DecodeWithNeighbour(event, WireLimits()));
}

TEST(WireLimitsTest, SumsOverTheBatchRefuseTheBatch) {
  EventBatch hashes;
  hashes.events = {Removed(6), Removed(4)};
  WireLimits limits;
  limits.max_batch_hashes = 10;
  EXPECT_TRUE(Decode(Encode(hashes), limits).status.ok());
  limits.max_batch_hashes = 9;
  ExpectBatchRefused(Decode(Encode(hashes), limits));

  EventBatch tokens;
  tokens.events = {Tokens(6), Tokens(4)};
  limits = WireLimits();
  limits.max_batch_tokens = 10;
  EXPECT_TRUE(Decode(Encode(tokens), limits).status.ok());
  limits.max_batch_tokens = 9;
  ExpectBatchRefused(Decode(Encode(tokens), limits));

  EventBatch keys;
  keys.events = {FullStored(), FullStored()};  // two entries and one key each
  limits = WireLimits();
  limits.max_batch_extra_keys = 6;
  EXPECT_TRUE(Decode(Encode(keys), limits).status.ok());
  limits.max_batch_extra_keys = 5;
  ExpectBatchRefused(Decode(Encode(keys), limits));
}

TEST(WireLimitsTest, DefaultSumsOverTheBatch) {
  EventBatch batch;
  for (int i = 0; i < 16; ++i) batch.events.emplace_back(Removed(65536));
  EXPECT_TRUE(Decode(Encode(batch)).status.ok());
  batch.events.emplace_back(Removed(1));
  ExpectBatchRefused(Decode(Encode(batch)));
}

}  // namespace
}  // namespace kvcast::wire
