// The index learns the content of blocks from the event bytes that real engines and connectors
// send.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/wire/wire.h"
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

// Returns the bytes of the hex digits. Ignores blanks.
std::vector<uint8_t> Bytes(std::string_view hex) {
  std::string digits;
  for (const char c : hex) {
    if (c != ' ') digits += c;
  }
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

class FieldWorker : public ContentWorker {
 public:
  using ContentWorker::ContentWorker;

  void Receive(std::string_view hex) {
    EventBatch batch;
    DecodeCounts counts;
    const Status status = DecodeBatch(Bytes(hex), WireLimits(), batch, counts);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(counts.rejected_total(), 0u);
    for (Event& event : batch.events) Apply(std::move(event));
  }
  // Returns the number of residencies by tier. Clears the tiers CPU and STORAGE.
  std::array<uint64_t, kTiers> CountAndClearTiers() {
    std::array<uint64_t, kTiers> held{};
    const uint64_t all = counters().residencies;
    for (const char* medium : {"CPU", "STORAGE"}) {
      const uint64_t before = counters().residencies;
      Apply(AllBlocksCleared{.medium = medium});
      held[medium[0] == 'C' ? 1 : 2] = before - counters().residencies;
    }
    held[0] = all - held[1] - held[2];
    return held;
  }
};

// [1.5, [["BlockStored", [-2, 7], nil, [1, 2, 3, 4, 5, 6, 7, 8], 4, nil, "GPU"]], nil]
constexpr std::string_view kSglangStore =
    "93 cb3ff8000000000000 91 97 ab426c6f636b53746f726564 92fe07 c0 980102030405060708 04 c0"
    "a3475055 c0";
// ["BlockStored", [-2, 7], nil, ..., "CPU_PINNED"]
constexpr std::string_view kSglangHostStore =
    "93 cb3ff8000000000000 91 97 ab426c6f636b53746f726564 92fe07 c0 980102030405060708 04 c0"
    "aa4350555f50494e4e4544 c0";
// [1.5, [["BlockRemoved", [7], "GPU"]], nil]
constexpr std::string_view kSglangRemove =
    "93 cb3ff8000000000000 91 93 ac426c6f636b52656d6f766564 9107 a3475055 c0";

TEST(ContentNamingField, SglangArraysWithSignedHashes) {
  FieldWorker worker;
  worker.Receive(kSglangStore);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  worker.Receive(kSglangRemove);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 4);
}

TEST(ContentNamingField, SglangHostTierIsApart) {
  FieldWorker worker;
  worker.Receive(kSglangStore);
  worker.Receive(kSglangHostStore);
  worker.Receive(kSglangRemove);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 4);
  EXPECT_EQ(worker.CountAndClearTiers(), (std::array<uint64_t, kTiers>{1, 2, 0}));
}

// Newer releases of SGLang repeat the store event of a block that the worker already holds. Older
// releases of vLLM send the same bytes for a second copy of the block.
TEST(ContentNamingField, ARepeatIsACopyOrARefreshAsRegistered) {
  FieldWorker copies;
  FieldWorker refreshes({}, {.repeats_are_refreshes = true});
  for (FieldWorker* worker : {&copies, &refreshes}) {
    worker->Receive(kSglangStore);
    worker->Receive(kSglangStore);
    worker->Receive(kSglangRemove);
  }
  EXPECT_EQ(copies.Reusable(Tokens(1, 8)), 8);
  EXPECT_EQ(refreshes.Reusable(Tokens(1, 8)), 4);
  EXPECT_EQ(refreshes.counters().residencies, 1u);
  refreshes.Receive(kSglangStore);
  EXPECT_EQ(refreshes.Reusable(Tokens(1, 8)), 8);
}

// With repeats_are_refreshes, a repeated store event is not a second copy, even if the content of
// the block is not known yet.
TEST(ContentNamingField, ARefreshOfABlockThatWaitsIsOneBlock) {
  ContentWorker worker({}, {.repeats_are_refreshes = true});
  const BlockStored child = StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1));
  worker.Apply(child, child, StoreTokens({Hash(1)}, Tokens(1, 4)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  worker.Apply(Remove({Hash(2)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 4);
}

// {"type": "BlockStored", "block_hashes": [7], "parent_block_hash": nil, "token_ids": [1, 2, 3, 4],
//  "block_size": 4, "lora_id": nil, "medium": "GPU", "cache_salt": "tenant"}
TEST(ContentNamingField, SglangMapsWithASalt) {
  FieldWorker worker;
  worker.Receive(
      "93 cb3ff8000000000000 91 88 a474797065 ab426c6f636b53746f726564 ac626c6f636b5f686173686573"
      "9107 b1706172656e745f626c6f636b5f68617368 c0 a9746f6b656e5f696473 9401020304"
      "aa626c6f636b5f73697a65 04 a76c6f72615f6964 c0 a66d656469756d a3475055"
      "aa63616368655f73616c74 a674656e616e74 c0");
  HashInputs tenant;
  tenant.cache_salt = "tenant";
  EXPECT_EQ(worker.Reusable(Tokens(1, 4), tenant), 4);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

// Eight elements; the last is a metadata map: {"cache_salt": "tenant"}.
TEST(ContentNamingField, SglangArraysWithMetadata) {
  FieldWorker worker;
  worker.Receive(
      "93 cb3ff8000000000000 91 98 ab426c6f636b53746f726564 9107 c0 9401020304 04 c0 a3475055"
      "81 aa63616368655f73616c74 a674656e616e74 c0");
  HashInputs tenant;
  tenant.cache_salt = "tenant";
  EXPECT_EQ(worker.Reusable(Tokens(1, 4), tenant), 4);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

// EAGLE: token_ids [[1, 2], [2, 3], [3, 4], [4, 5]].
TEST(ContentNamingField, SglangPairs) {
  FieldWorker worker;
  worker.Receive(
      "93 cb3ff8000000000000 91 97 ab426c6f636b53746f726564 9107 c0 94 920102 920203 920304 920405"
      "04 c0 a3475055 c0");
  EXPECT_EQ(worker.Reusable({1, 2, 3, 4, 5}, {}, 1), 4);
  EXPECT_EQ(worker.Reusable({1, 2, 3, 4, 5}), 0);
}

// LMCache sends signed hashes, parent 0 for the root, and medium "CPU" or a device. It sends no
// removes.
TEST(ContentNamingField, LmcacheStoresAreNeverOfTheGpu) {
  FieldWorker worker({}, {.zero_parent_is_root = true, .repeats_are_refreshes = true});
  // ["BlockStored", [-2], 0, [1, 2, 3, 4], 4, nil, "CPU"]
  constexpr std::string_view kCpu =
      "93 cb3ff8000000000000 91 97 ab426c6f636b53746f726564 91fe 00 9401020304 04 c0 a3435055 c0";
  worker.Receive(kCpu);
  worker.Receive(kCpu);
  // ["BlockStored", [9], -2, [5, 6, 7, 8], 4, nil, "cuda:0"]
  worker.Receive(
      "93 cb3ff8000000000000 91 97 ab426c6f636b53746f726564 9109 fe 9405060708 04 c0"
      "a6637564613a30 c0");
  EXPECT_TRUE(worker.Knows(Hash(9)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_EQ(worker.CountAndClearTiers(), (std::array<uint64_t, kTiers>{0, 1, 1}));
}

// A placeholder of an offloading connector: no tokens, block size 0, parent nil.
TEST(ContentNamingField, PlaceholdersOfTheCpuAreNamedByTheirHash) {
  FieldWorker worker;
  worker.Receive(kSglangStore);
  // ["BlockStored", [7, 99], nil, [], 0, nil, "CPU"]
  worker.Receive(
      "93 cb3ff8000000000000 91 97 ab426c6f636b53746f726564 920763 c0 90 00 c0 a3435055 c0");
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kNoTokens), 1u) << "block 99";
  EXPECT_EQ(worker.counters().unnamed_gpu, 0u);
  EXPECT_EQ(worker.CountAndClearTiers(), (std::array<uint64_t, kTiers>{2, 2, 0}));
}

// {"type": "BlockStored", "block_hashes": [8], "parent_block_hash": 7, "token_ids": [5 .. 12],
//  "block_size": 4, "group_idx": 1, "kv_cache_spec_kind": "sliding_window",
//  "kv_cache_spec_sliding_window": 5, "token_offset": 4}. The event has the tokens of two blocks,
// but only one hash.
TEST(ContentNamingField, ASparseStoreWithAnOffsetIsNotGuessed) {
  FieldWorker worker;
  worker.Receive(
      "93 cb3ff8000000000000 91 89 a474797065 ab426c6f636b53746f726564 ac626c6f636b5f686173686573"
      "9108 b1706172656e745f626c6f636b5f68617368 07 a9746f6b656e5f696473 98 05060708090a0b0c"
      "aa626c6f636b5f73697a65 04 a967726f75705f696478 01 b26b765f63616368655f737065635f6b696e64"
      "ae736c6964696e675f77696e646f77 bc6b765f63616368655f737065635f736c6964696e675f77696e646f77 05"
      "ac746f6b656e5f6f6666736574 04 c0");
  EXPECT_EQ(worker.unnamed_for(UnnamedReason::kUnknownParent), 1u);
  worker.Apply(StoreTokens({Hash(6), Hash(7)}, Tokens(1, 8)));
  EXPECT_FALSE(worker.Knows(Hash(8))) << "the hash may name either of two blocks";
  worker.Apply(StoreTokens({Hash(8)}, Tokens(9, 4), Hash(7)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 12) << "a dense store has named the block";
}

}  // namespace
}  // namespace kvcast::testing
