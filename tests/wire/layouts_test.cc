// Batches with the same events decode to the same batch if the events are arrays, maps, or maps
// with a 16-bit count (wide heads). A round trip in a dialect keeps the fields of the dialect.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/wire/layout.h"
#include "tests/support/kept_fields.h"
#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

EventBatch Sample() {
  BlockStored stored = FullStored();
  stored.locality.reset();
  stored.ownership.reset();
  stored.session_id.reset();
  stored.lookahead.reset();
  EventBatch batch = BatchOf(stored);
  BlockRemoved removed;
  removed.block_hashes = {BlockHash::FromUnsigned(11)};
  removed.medium = kMediumGpu;
  removed.group_idx = 1;
  batch.events.emplace_back(removed);
  batch.events.emplace_back(AllBlocksCleared());
  return batch;
}

// Turns the outer array of an encoded batch into a map: ts, events and rank get keys.
Payload WithMapEnvelope(const Payload& payload) {
  const std::span<const uint8_t> all(payload);
  const size_t rank_at = payload.size() - 1;
  return FromHex("83") + Text("ts") + all.subspan(1, 9) + Text("events") +
         all.subspan(10, rank_at - 10) + Text("data_parallel_rank") + all.subspan(rank_at);
}

TEST(Layouts, OuterAndInnerArraysAndMapsAreEqual) {
  for (const Dialect dialect : {Dialect::kVllm8, Dialect::kVllm9}) {
    const Payload array = Encode(Sample(), dialect);
    EXPECT_EQ(Decode(array).batch, Sample()) << DialectName(dialect);
    EXPECT_EQ(Decode(WithMapEnvelope(array)).batch, Sample()) << DialectName(dialect);
  }
}

TEST(Layouts, ArraysAndMapsMixInOneBatch) {
  const Payload maps = Encode(Sample(), Dialect::kVllm9);
  const Payload arrays = Encode(Sample(), Dialect::kVllm8);
  const auto events = [](const Payload& p) { return std::span(p).subspan(11, p.size() - 12); };
  const Payload mixed =
      FromHex("93 cb3ff8000000000000 96") + events(maps) + events(arrays) + FromHex("00");
  EventBatch expected = Sample();
  for (const Event& event : Sample().events) expected.events.push_back(event);
  EXPECT_EQ(Decode(mixed).batch, expected);
}

TEST(Layouts, EachDialectKeepsItsFields) {
  EventBatch batch = BatchOf(FullStored());
  std::get<BlockStored>(batch.events[0]).cache_salt = "salt";
  std::get<BlockStored>(batch.events[0]).metadata = {{"cache_salt", ExtraKey::Text("salt")}};
  batch.events.push_back(Sample().events[1]);
  for (int i = 0; i <= static_cast<int>(Dialect::kKvcast1); ++i) {
    const auto dialect = static_cast<Dialect>(i);
    const Decoded decoded = Decode(Encode(batch, dialect));
    EXPECT_EQ(decoded.batch, KeptFields(batch, dialect)) << DialectName(dialect);
    EXPECT_EQ(decoded.counts.unknown_fields, 0u) << DialectName(dialect);
  }
}

TEST(Layouts, DialectNamesParseBack) {
  for (int i = 0; i <= static_cast<int>(Dialect::kKvcast1); ++i) {
    const auto dialect = static_cast<Dialect>(i);
    EXPECT_EQ(ParseDialect(DialectName(dialect)), dialect);
  }
  EXPECT_EQ(ParseDialect("map"), kDefaultDialect);
  EXPECT_EQ(ParseDialect("positional"), Dialect::kVllm8);
  EXPECT_EQ(ParseDialect("sglang"), Dialect::kSglang3);
  EXPECT_EQ(ParseDialect("vllm-13"), std::nullopt);
  EXPECT_EQ(ParseDialect(""), std::nullopt);
}

// An engine's encoder uses wide heads from 16 possible pairs on.
TEST(Layouts, OnlyTheDialectOfSixteenPairsHasWideHeads) {
  for (int i = 0; i < static_cast<int>(Dialect::kKvcast1); ++i) {
    const EventLayout& stored = LayoutOf(static_cast<Dialect>(i)).stored;
    EXPECT_EQ(stored.wide_head, stored.fields.size() + 1 == 16) << i;
    EXPECT_LE(stored.fields.size() + 1, 16u) << i;
  }
}

// [ts, [event], rank]: the head of the event is the twelfth byte. vLLM 0.33 writes the head in
// three bytes.
Payload WithWideHeader(const Payload& payload) {
  Payload wide(payload.begin(), payload.begin() + 11);
  const uint8_t fixmap = payload[11];
  EXPECT_EQ(fixmap & 0xf0, 0x80);
  wide = wide + Payload{0xde, 0, static_cast<uint8_t>(fixmap & 0x0f)};
  wide.insert(wide.end(), payload.begin() + 12, payload.end());
  return wide;
}

TEST(Layouts, StoresWithAWideHeaderAreCounted) {
  const Payload stored = Encode(BatchOf(FullStored()), Dialect::kVllm11);
  EXPECT_EQ(Decode(stored).counts.wide_stores, 0u);
  const Decoded wide = Decode(WithWideHeader(stored));
  EXPECT_EQ(wide.counts.wide_stores, 1u);
  EXPECT_EQ(wide.batch, Decode(stored).batch);
  const Payload removed = Encode(
      BatchOf(BlockRemoved{.block_hashes = {BlockHash(1)}, .medium = "GPU"}), Dialect::kVllm11);
  EXPECT_EQ(Decode(WithWideHeader(removed)).counts.wide_stores, 0u);
}

// Forks of older releases write the same header as vLLM 0.33.
TEST(Layouts, StoresWithASkippedFieldAreNotCountedAsWide) {
  BlockStored stored = FullStored();
  stored.session_id.reset();
  const Payload wide = WithWideHeader(Encode(BatchOf(stored), Dialect::kVllm11));
  ASSERT_EQ(Decode(wide).counts.wide_stores, 1u);
  EXPECT_EQ(Decode(wide).counts.skipped_fields, 0u);
  Payload forked(wide.begin(), wide.begin() + 14);
  ++forked.back();  // the number of pairs
  forked = forked + Text("skipped_token_ids") + FromHex("c0");
  forked.insert(forked.end(), wide.begin() + 14, wide.end());
  const Decoded decoded = Decode(forked);
  EXPECT_EQ(decoded.batch, Decode(wide).batch);
  EXPECT_EQ(decoded.counts.skipped_fields, 1u);
  EXPECT_EQ(decoded.counts.wide_stores, 0u);
}

// In vLLM 0.33, a store can have 16 pairs. vLLM's encoder therefore uses the wide head for every
// store.
TEST(Layouts, Vllm12WritesStoresWithWideHeads) {
  BlockStored stored = FullStored();
  stored.lookahead.reset();
  const Payload before = Encode(BatchOf(stored), Dialect::kVllm11);
  EXPECT_EQ(Encode(BatchOf(stored), Dialect::kVllm12), WithWideHeader(before));
  const BlockRemoved removed{.block_hashes = {BlockHash(1)}, .medium = "GPU"};
  EXPECT_EQ(Encode(BatchOf(removed), Dialect::kVllm12), Encode(BatchOf(removed), Dialect::kVllm11));
  stored.lookahead = {1, std::vector<TokenId>(stored.block_hashes.size(), 5)};
  const Decoded decoded = Decode(Encode(BatchOf(stored), Dialect::kVllm12));
  EXPECT_EQ(std::get<BlockStored>(decoded.batch.events.at(0)), stored);
}

}  // namespace
}  // namespace kvcast::wire
