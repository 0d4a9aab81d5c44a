// A plain decode is a decode without options. Options change the events of a plain decode in only
// two ways: all tokens are 0, and adjacent removes that differ only in their hashes are merged.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <variant>

#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

constexpr DecodeOptions kNoTokens{.token_ids = false};
constexpr DecodeOptions kMerged{.merge_removes = true};
constexpr DecodeOptions kBoth{.token_ids = false, .merge_removes = true};

Decoded DecodeWith(const DecodeOptions& options, std::span<const uint8_t> payload,
                   const WireLimits& limits = {}) {
  Decoded decoded;
  // The batch is not empty at the start: contents of an earlier batch must not remain.
  decoded.batch = BatchOf(FullStored());
  decoded.batch.events.emplace_back(BlockRemoved{.block_hashes = {BlockHash(1)}, .medium = "X"});
  decoded.status = DecodeBatch(payload, limits, options, decoded.batch, decoded.counts);
  return decoded;
}

bool DifferOnlyInHashes(BlockRemoved a, BlockRemoved b) {
  a.block_hashes.clear();
  b.block_hashes.clear();
  return a == b;
}

EventBatch Expected(const EventBatch& plain, const DecodeOptions& options) {
  EventBatch batch = plain;
  batch.events.clear();
  for (Event event : plain.events) {
    auto* stored = std::get_if<BlockStored>(&event);
    if (stored != nullptr && stored->token_ids && !options.token_ids) {
      std::fill(stored->token_ids->begin(), stored->token_ids->end(), 0);
    }
    if (stored != nullptr && stored->lookahead && !options.token_ids) {
      auto& lookahead = stored->lookahead->token_ids;
      std::fill(lookahead.begin(), lookahead.end(), 0);
    }
    const auto* removed = std::get_if<BlockRemoved>(&event);
    auto* last = batch.events.empty() ? nullptr : std::get_if<BlockRemoved>(&batch.events.back());
    if (options.merge_removes && removed && last && DifferOnlyInHashes(*removed, *last)) {
      last->block_hashes.insert(last->block_hashes.end(), removed->block_hashes.begin(),
                                removed->block_hashes.end());
      continue;
    }
    batch.events.push_back(std::move(event));
  }
  return batch;
}

// The number of payloads with each effect.
struct Effects {
  int refused = 0;    // a plain decode returns an error
  int rejected = 0;   // a plain decode rejects some events
  int no_tokens = 0;  // the option kNoTokens changes the events
  int merged = 0;     // the option kMerged changes the events
  int wide = 0;       // a plain decode counts wide stores
};

void ExpectAsPlain(std::span<const uint8_t> payload, Effects& effects,
                   const WireLimits& limits = {}) {
  SCOPED_TRACE(ToHex(payload));
  const Decoded plain = Decode(payload, limits);
  for (const DecodeOptions& options : {kNoTokens, kMerged, kBoth}) {
    const Decoded decoded = DecodeWith(options, payload, limits);
    ASSERT_EQ(decoded.status.ToString(), plain.status.ToString());
    EXPECT_EQ(decoded.counts.decoded, plain.counts.decoded);
    EXPECT_EQ(decoded.counts.rejected, plain.counts.rejected);
    EXPECT_EQ(decoded.counts.unknown_fields, plain.counts.unknown_fields);
    EXPECT_EQ(decoded.counts.wide_stores, plain.counts.wide_stores);
    EXPECT_EQ(decoded.counts.skipped_fields, plain.counts.skipped_fields);
    EXPECT_EQ(decoded.counts.component_fields, plain.counts.component_fields);
    const EventBatch expected = Expected(plain.batch, options);
    EXPECT_TRUE(decoded.batch.events == expected.events);
    EXPECT_EQ(decoded.batch.data_parallel_rank, expected.data_parallel_rank);
    // A damaged time may be NaN.
    EXPECT_EQ(std::bit_cast<uint64_t>(decoded.batch.ts), std::bit_cast<uint64_t>(expected.ts));
  }
  effects.refused += !plain.status.ok();
  effects.rejected += plain.counts.rejected_total() > 0;
  effects.no_tokens += Expected(plain.batch, kNoTokens).events != plain.batch.events;
  effects.wide += plain.counts.wide_stores > 0;
  effects.merged += Expected(plain.batch, kMerged).events != plain.batch.events;
}

BlockRemoved RemoveOf(std::vector<BlockHash> hashes) {
  return {.block_hashes = std::move(hashes), .medium = kMediumGpu, .group_idx = 0};
}

EventBatch OneStep(std::mt19937_64& random) {
  EventBatch batch;
  const auto any_hash = [&] {
    const uint64_t value = random();
    return BlockHash(value >> (random() % 3 == 0 ? random() % 64 : 0));
  };
  const size_t events = random() % 20;
  for (size_t i = 0; i < events; ++i) {
    if (random() % 6 == 0) {
      BlockStored stored = FullStored();
      stored.block_hashes.assign(random() % 40, any_hash());
      stored.lookahead->token_ids.assign(stored.block_hashes.size(), 7);
      stored.token_ids->clear();
      // Without session_id the event has fewer than 16 pairs. The layout of vLLM 0.33 still gives
      // it a 16-bit header, and a decode counts it as a wide store.
      if (random() % 2 == 0) stored.session_id.reset();
      const size_t tokens = random() % 700;
      const uint64_t bits = random() % 20;
      for (size_t t = 0; t < tokens; ++t) {
        const uint64_t wide = bits == 0 ? 40 : bits;
        stored.token_ids->push_back(static_cast<TokenId>(random() & ((1ull << wide) - 1)));
      }
      if (random() % 8 == 0) stored.token_ids->push_back(-5);
      batch.events.emplace_back(std::move(stored));
    } else if (random() % 20 == 0) {
      batch.events.emplace_back(AllBlocksCleared{});
    } else {
      BlockRemoved removed = RemoveOf({any_hash()});
      if (random() % 5 == 0) removed.block_hashes.push_back(any_hash());
      if (random() % 5 == 0) removed.group_idx = 1;
      if (random() % 9 == 0) removed.medium = kMediumCpu;
      if (random() % 9 == 0) removed.block_hashes.clear();
      batch.events.emplace_back(std::move(removed));
    }
  }
  return batch;
}

TEST(DecodeOptions, RemovesOfOneStepBecomeOneEvent) {
  EventBatch batch;
  for (const unsigned long long hash : {7ull, 1ull << 60, (1ull << 60) + 1, ~0ull}) {
    batch.events.emplace_back(RemoveOf({BlockHash(hash)}));
  }
  const Decoded decoded = DecodeWith(kMerged, Encode(batch));
  ASSERT_EQ(decoded.batch.events.size(), 1u);
  EXPECT_EQ(std::get<BlockRemoved>(decoded.batch.events[0]),
            RemoveOf({BlockHash(7), BlockHash(1ull << 60), BlockHash((1ull << 60) + 1),
                      BlockHash(~0ull)}));
  EXPECT_EQ(decoded.counts.decoded, 4u);
}

TEST(DecodeOptions, RemovesOfOtherTiersAndGroupsStayApart) {
  EventBatch batch;
  for (int i = 0; i < 3; ++i) {
    BlockRemoved removed = RemoveOf({BlockHash(~0ull - static_cast<uint64_t>(i))});
    batch.events.emplace_back(removed);
    removed.group_idx = 1;
    batch.events.emplace_back(removed);
    removed.medium = kMediumCpu;
    batch.events.emplace_back(removed);
    batch.events.emplace_back(removed);
  }
  EXPECT_EQ(DecodeWith(kMerged, Encode(batch)).batch.events.size(), 9u);
}

TEST(DecodeOptions, AStoreBetweenRemovesKeepsTheirOrder) {
  EventBatch batch;
  batch.events.emplace_back(RemoveOf({BlockHash(~0ull)}));
  batch.events.emplace_back(FullStored());
  batch.events.emplace_back(RemoveOf({BlockHash(~1ull)}));
  const Payload payload = Encode(batch);
  EXPECT_EQ(DecodeWith(kMerged, payload).batch, Decode(payload).batch);
}

// With the option that leaves out token ids, a store has as many tokens as the payload, and each
// token is 0.
TEST(DecodeOptions, TokensAreCountedAndSetToZero) {
  EventBatch batch = BatchOf(FullStored());
  auto& tokens = *std::get<BlockStored>(batch.events[0]).token_ids;
  tokens.assign(1000, 150'000);
  const Decoded decoded = DecodeWith(kNoTokens, Encode(batch));
  ASSERT_EQ(decoded.batch.events.size(), 1u);
  EXPECT_EQ(*std::get<BlockStored>(decoded.batch.events[0]).token_ids,
            std::vector<TokenId>(1000, 0));
}

TEST(DecodeOptions, EveryRecordedPayload) {
  Effects effects;
  for (const Payload& payload : GoodPayloads()) ExpectAsPlain(payload, effects);
  EXPECT_EQ(effects.refused, 0);
  EXPECT_GT(effects.no_tokens, 0);
}

TEST(DecodeOptions, RandomBatchesInEveryDialect) {
  std::mt19937_64 random(3);
  Effects effects;
  for (int i = 0; i < 300; ++i) {
    const EventBatch batch = OneStep(random);
    const auto dialect = static_cast<Dialect>(random() % kDialects);
    Payload payload;
    ASSERT_TRUE(EncodeBatch(batch, dialect, payload).ok());
    ExpectAsPlain(payload, effects);
  }
  EXPECT_EQ(effects.refused, 0);
  EXPECT_GT(effects.wide, 0);
  EXPECT_GT(effects.no_tokens, 100);
  EXPECT_GT(effects.merged, 100);
}

TEST(DecodeOptions, DamagedBatches) {
  std::mt19937_64 random(4);
  Effects effects;
  for (int i = 0; i < 300; ++i) {
    Payload payload = Encode(OneStep(random), i % 2 == 0 ? Dialect::kVllm10 : Dialect::kVllm8);
    for (uint64_t damage = random() % 3 + 1; damage > 0; --damage) {
      payload[random() % payload.size()] = static_cast<uint8_t>(random());
    }
    if (i % 10 == 0) payload.resize(random() % payload.size());
    ExpectAsPlain(payload, effects);
  }
  EXPECT_GT(effects.refused, 30);
  EXPECT_GT(effects.rejected, 30);
  EXPECT_GT(effects.no_tokens, 30);
  EXPECT_GT(effects.merged, 30);
}

// With small limits, the decode options change neither the status nor the numbers of rejected
// events.
TEST(DecodeOptions, LimitsHoldAsInAPlainDecode) {
  std::mt19937_64 random(5);
  Effects effects;
  for (int i = 0; i < 500; ++i) {
    const WireLimits limits{.max_hashes = static_cast<uint32_t>(random() % 4),
                            .max_tokens = static_cast<uint32_t>(random() % 1000),
                            .max_batch_hashes = random() % 20,
                            .max_batch_tokens = random() % 2000};
    ExpectAsPlain(Encode(OneStep(random)), effects, limits);
  }
  EXPECT_GT(effects.refused + effects.rejected, 100);
  EXPECT_GT(effects.no_tokens, 10);
  EXPECT_GT(effects.merged, 30);
}

// Merged removes are equal in all decoded fields except the hash. The test's events also have an
// unknown field with the bytes of a hash. This field may differ too, because it is not decoded.
TEST(DecodeOptions, OnlyTheHashMayDifferBetweenMergedRemoves) {
  const auto event = [](uint8_t hash, uint8_t other) {
    return FromHex("84") + Text("type") + Text("BlockRemoved") + Text("unknown") +
           FromHex("91 cf00000000000000") + Payload{other} + Text("block_hashes") +
           FromHex("91 cf00000000000000") + Payload{hash} + Text("medium") + Text("GPU");
  };
  const Payload payload =
      FromHex("92 cb3ff8000000000000 94") + event(1, 1) + event(2, 1) + event(2, 2) + event(3, 2);
  Effects effects;
  ExpectAsPlain(payload, effects);
  const Decoded decoded = DecodeWith(kMerged, payload);
  ASSERT_EQ(decoded.batch.events.size(), 1u);
  EXPECT_EQ(std::get<BlockRemoved>(decoded.batch.events[0]).block_hashes,
            (std::vector<BlockHash>{BlockHash(1), BlockHash(2), BlockHash(2), BlockHash(3)}));
}

}  // namespace
}  // namespace kvcast::wire
