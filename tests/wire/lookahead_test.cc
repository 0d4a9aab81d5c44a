// `lookahead_token_ids` has one list of tokens per hash. All lists have the same length.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

// A batch of one store with a map head in the long form, as vLLM 0.33 writes it for any number of
// pairs. `hashes` and `lookahead` are copied unchanged.
Payload StoreWith(const Payload& hashes, const Payload& lookahead) {
  return FromHex("93 cb3ff8000000000000 91 de0006") + Text("type") + Text("BlockStored") +
         Text("block_hashes") + hashes + Text("parent_block_hash") + FromHex("c0") +
         Text("token_ids") + FromHex("9401020304") + Text("block_size") + FromHex("02") +
         Text("lookahead_token_ids") + lookahead + FromHex("00");
}

BlockStored OnlyStore(const Decoded& decoded) {
  EXPECT_TRUE(decoded.status.ok()) << decoded.status.ToString();
  EXPECT_EQ(decoded.counts.unknown_fields, 0u);
  EXPECT_EQ(decoded.batch.events.size(), 1u);
  if (decoded.batch.events.size() != 1) return {};
  return std::get<BlockStored>(decoded.batch.events[0]);
}

void ExpectRejected(const char* hashes, const char* lookahead, Reject reason) {
  const Decoded decoded = Decode(StoreWith(FromHex(hashes), FromHex(lookahead)));
  EXPECT_TRUE(decoded.status.ok()) << decoded.status.ToString();
  EXPECT_EQ(decoded.rejected(reason), 1u) << lookahead;
  EXPECT_EQ(decoded.counts.rejected_total(), 1u) << lookahead;
}

TEST(Lookahead, IsFlattenedWithItsWidth) {
  const BlockStored store =
      OnlyStore(Decode(StoreWith(FromHex("920b0c"), FromHex("92 93030405 93cd0100ff07"))));
  EXPECT_EQ(store.block_hashes.size(), 2u);
  EXPECT_EQ(store.lookahead, (LookaheadTokens{3, {3, 4, 5, 256, -1, 7}}));
}

TEST(Lookahead, NoListForNoHashHasNoWidth) {
  const BlockStored store = OnlyStore(Decode(StoreWith(FromHex("90"), FromHex("90"))));
  EXPECT_EQ(store.lookahead, LookaheadTokens{});
}

TEST(Lookahead, EmptyListsAreAccepted) {
  const BlockStored store = OnlyStore(Decode(StoreWith(FromHex("920b0c"), FromHex("929090"))));
  EXPECT_EQ(store.lookahead, LookaheadTokens{});
}

TEST(Lookahead, NilIsAbsent) {
  const BlockStored store = OnlyStore(Decode(StoreWith(FromHex("920b0c"), FromHex("c0"))));
  EXPECT_EQ(store.lookahead, std::nullopt);
}

TEST(Lookahead, ListsOfDifferentLengthsAreABadValue) {
  ExpectRejected("920b0c", "92 9103 920405", Reject::kBadValue);
  ExpectRejected("920b0c", "92 920405 9103", Reject::kBadValue);
  ExpectRejected("920b0c", "92 9103 90", Reject::kBadValue);
}

TEST(Lookahead, AnotherNumberOfListsThanOfHashesIsABadValue) {
  ExpectRejected("910b", "92 9103 9104", Reject::kBadValue);
  ExpectRejected("920b0c", "91 9103", Reject::kBadValue);
  ExpectRejected("920b0c", "90", Reject::kBadValue);
  ExpectRejected("90", "91 9103", Reject::kBadValue);
  ExpectRejected("90", "91 90", Reject::kBadValue);
}

TEST(Lookahead, RejectsValuesThatAreNoListsOfIntegerLists) {
  ExpectRejected("910b", "05", Reject::kBadType);
  ExpectRejected("910b", "9105", Reject::kBadType);
  ExpectRejected("910b", "91c0", Reject::kBadType);
  ExpectRejected("910b", "9191a161", Reject::kBadType);
  ExpectRejected("910b", "9191cfffffffffffffffff", Reject::kBadValue);
}

TEST(Lookahead, CountsWithTheTokensOfTheEventAndTheBatch) {
  const Payload payload = StoreWith(FromHex("920b0c"), FromHex("92 920506 920708"));
  WireLimits limits;
  limits.max_tokens = 8;
  limits.max_batch_tokens = 8;
  EXPECT_EQ(Decode(payload, limits).counts.decoded, 1u);
  limits.max_tokens = 7;
  EXPECT_EQ(Decode(payload, limits).rejected(Reject::kLimit), 1u);
  limits.max_tokens = 8;
  limits.max_batch_tokens = 7;
  EXPECT_EQ(Decode(payload, limits).status.code(), StatusCode::kLimit);
}

TEST(Lookahead, ListsAreBoundedByTheHashesAndTheDepth) {
  const Payload payload = StoreWith(FromHex("910b"), FromHex("92 90 90"));
  WireLimits limits;
  limits.max_hashes = 1;
  EXPECT_EQ(Decode(payload, limits).rejected(Reject::kLimit), 1u);
  const Payload nested = StoreWith(FromHex("910b"), FromHex("91 9103"));
  limits.max_depth = 5;
  EXPECT_EQ(Decode(nested, limits).counts.decoded, 1u);
  limits.max_depth = 4;
  EXPECT_EQ(Decode(nested, limits).rejected(Reject::kLimit), 1u);
}

TEST(Lookahead, IsSkippedWithTheTokens) {
  Decoded decoded;
  decoded.status = DecodeBatch(StoreWith(FromHex("920b0c"), FromHex("92 920506 920708")),
                               WireLimits(), {.token_ids = false}, decoded.batch, decoded.counts);
  EXPECT_EQ(OnlyStore(decoded).lookahead, (LookaheadTokens{2, {0, 0, 0, 0}}));
}

TEST(Lookahead, ListsOfAnEarlierEventDoNotRemain) {
  EventBatch batch;
  DecodeCounts counts;
  ASSERT_TRUE(DecodeBatch(StoreWith(FromHex("910b"), FromHex("919103")), {}, batch, counts).ok());
  ASSERT_TRUE(DecodeBatch(Encode(BatchOf(FullStored()), Dialect::kVllm11), {}, batch, counts).ok());
  EXPECT_EQ(std::get<BlockStored>(batch.events[0]).lookahead, std::nullopt);
}

}  // namespace
}  // namespace kvcast::wire
