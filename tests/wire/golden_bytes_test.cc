// The encoder's output equals payloads that were written by hand from the format. There is one
// payload for each event class and each hash form.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

constexpr char kStored[] =
    "8b a474797065 ab426c6f636b53746f726564 ac626c6f636b5f686173686573 91 cf2d45fcb51d434798"
    "b1706172656e745f626c6f636b5f68617368 c0 a9746f6b656e5f696473 94 00010203"
    "aa626c6f636b5f73697a65 04 a76c6f72615f6964 c0 a66d656469756d a3475055 a96c6f72615f6e616d65 c0"
    "aa65787472615f6b657973 91 c0 a967726f75705f696478 00"
    "b26b765f63616368655f737065635f6b696e64 ae66756c6c5f617474656e74696f6e";
constexpr char kRemoved[] =
    "84 a474797065 ac426c6f636b52656d6f766564 ac626c6f636b5f686173686573 91 05 a66d656469756d "
    "a3475055 a967726f75705f696478 01";
constexpr char kCleared[] = "81 a474797065 b0416c6c426c6f636b73436c6561726564";

// [1.5, events, rank]
Payload Envelope(const std::string& events, const std::string& rank) {
  return FromHex("93 cb3ff8000000000000" + events + rank);
}

TEST(GoldenBytes, StoredMap) {
  BlockStored event;
  event.block_hashes = {BlockHash::FromUnsigned(3262291359910021016u)};
  event.token_ids = {0, 1, 2, 3};
  event.block_size = 4;
  event.medium = kMediumGpu;
  event.extra_keys = ExtraKeyEntries{std::nullopt};
  event.group_idx = 0;
  event.kv_cache_spec_kind = "full_attention";
  const Payload golden = Envelope(std::string("91") + kStored, "00");
  EXPECT_EQ(ToHex(Encode(BatchOf(event), Dialect::kVllm10)), ToHex(golden));
  EXPECT_EQ(Decode(golden).batch, BatchOf(event));
  // The default is the layout of vLLM 0.33, whose store heads have a 16-bit count.
  const Payload wide = Envelope("91 de000b" + std::string(kStored).substr(2), "00");
  EXPECT_EQ(ToHex(Encode(BatchOf(event))), ToHex(wide));
  EXPECT_EQ(Decode(wide).batch, BatchOf(event));
}

TEST(GoldenBytes, RemovedAndClearedMapsWithoutRank) {
  BlockRemoved removed;
  removed.block_hashes = {BlockHash::FromUnsigned(5)};
  removed.medium = kMediumGpu;
  removed.group_idx = 1;
  EventBatch batch = BatchOf(removed);
  batch.events.emplace_back(AllBlocksCleared());
  batch.data_parallel_rank.reset();
  const Payload golden = Envelope(std::string("92") + kRemoved + kCleared, "c0");
  EXPECT_EQ(ToHex(Encode(batch)), ToHex(golden));
  EXPECT_EQ(Decode(golden).batch, batch);
}

TEST(GoldenBytes, RemovedWithABytesHash) {
  BlockRemoved removed;
  removed.block_hashes = {BlockHash::FromBytes(Payload(32, 0xab))};
  removed.medium = kMediumCpu;
  std::string golden =
      "91 83 a474797065 ac426c6f636b52656d6f766564 ac626c6f636b5f686173686573 91 c420";
  for (int i = 0; i < 32; ++i) golden += "ab";
  golden += "a66d656469756d a3435055";
  EXPECT_EQ(ToHex(Encode(BatchOf(removed))), ToHex(Envelope(golden, "00")));
  EXPECT_EQ(Decode(Envelope(golden, "00")).batch, BatchOf(removed));
}

TEST(GoldenBytes, PositionalEventsKeepTrailingNils) {
  BlockStored event;
  event.block_hashes = {BlockHash::FromSigned(-2)};
  event.token_ids = {7};
  event.block_size = 1;
  const std::string stored = "9c ab426c6f636b53746f726564 91fe c0 9107 01 c0 c0 c0 c0 c0 c0 c0";
  EXPECT_EQ(ToHex(Encode(BatchOf(event), Dialect::kVllm8)), ToHex(Envelope("91" + stored, "00")));
}

TEST(GoldenBytes, FirstGenerationHasNoRank) {
  const Payload golden = FromHex("92 cb3ff8000000000000 91 91 b0416c6c426c6f636b73436c6561726564");
  EXPECT_EQ(ToHex(Encode(BatchOf(AllBlocksCleared()), Dialect::kVllm1)), ToHex(golden));
}

TEST(GoldenBytes, MetadataIsAnEighthElementOnlyWhereSet) {
  BlockStored event;
  event.token_ids.emplace();
  const std::string head = "ab426c6f636b53746f726564 90 c0 90 00 c0 c0";
  EXPECT_EQ(ToHex(Encode(BatchOf(event), Dialect::kSglang4)),
            ToHex(Envelope("91 97" + head, "00")));
  event.metadata = {{"k", ExtraKey::Int(1)}};
  EXPECT_EQ(ToHex(Encode(BatchOf(event), Dialect::kSglang4)),
            ToHex(Envelope("91 98" + head + "81 a16b 01", "00")));
}

}  // namespace
}  // namespace kvcast::wire
