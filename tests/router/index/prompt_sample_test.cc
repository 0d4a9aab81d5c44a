// The sample of a worker chooses prompts, notes their stored blocks, drops prompts, and keeps its
// bounds.
// SPDX-License-Identifier: Apache-2.0
#include "router/sample/prompt_sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

constexpr int64_t kHashBlockSize = 16;

// Returns the content key of one unit of a prompt. The first `shared` units have prompt 0's keys.
ContentKey KeyOf(uint64_t prompt, uint64_t unit, uint64_t shared = 0) {
  return (unit < shared ? 1 : prompt + 1) << 32 | (unit + 1);
}

class PromptSampleTest : public ::testing::Test {
 protected:
  struct Prompt {
    uint64_t number;
    uint64_t shared = 0;  // the first `shared` units are the units of prompt 0
  };
  // Bytes of the index per block, if four workers hold each block.
  static constexpr uint64_t kIndexBytesABlock = 10;

  // Notes a batch with one store of units [first, first + count) of a prompt. A block has one unit.
  void Store(Prompt prompt, size_t first, size_t count, uint8_t group = 0) {
    sample_.BeginBatch();
    StoreInBatch(prompt, first, count, group);
  }
  void StoreInBatch(Prompt prompt, size_t first, size_t count, uint8_t group = 0) {
    BlockStored event = {.block_size = kHashBlockSize};
    event.block_hashes.assign(count, BlockHash(uint64_t{0}));
    StoreContent content = {.dense = true};
    for (size_t i = 0; i < count; ++i) {
      content.contents.push_back(KeyOf(prompt.number, first + i, prompt.shared));
    }
    const ContentKey parent =
        first == 0 ? kUnnamed : KeyOf(prompt.number, first - 1, prompt.shared);
    Note(event, {.at_root = first == 0, .parent = parent, .end = EndOf(first)}, content, group);
  }
  void Note(const BlockStored& event, const SpanStart& start, const StoreContent& content,
            uint8_t group) {
    held_ += event.block_hashes.size();
    sample_.NoteStore({.event = event,
                       .start = start,
                       .content = content,
                       .group = group,
                       .held = held_,
                       .index_bytes = held_ * kIndexBytesABlock,
                       .hash_block_size = kHashBlockSize,
                       .lookahead = 0},
                      keys_);
  }
  static uint32_t EndOf(size_t units) { return static_cast<uint32_t>(units * kHashBlockSize); }
  // Like Store, for a cache of `pool` blocks. A full cache evicts as many blocks as it stores.
  void StoreInPool(uint64_t pool, Prompt prompt, size_t first, size_t count) {
    if (held_ + count > pool) held_ = pool - count;
    Store(prompt, first, count);
  }

  const SampledPrompt* Find(Prompt prompt, size_t units) const {
    for (const SampledPrompt& sampled : sample_.prompts()) {
      if (sampled.HasPrefix(units, KeyOf(prompt.number, units - 1, prompt.shared))) return &sampled;
    }
    return nullptr;
  }
  // Number of sampled prompts that have exactly `units` units and are not cut.
  size_t Whole(size_t units) const {
    return static_cast<size_t>(std::ranges::count_if(
        sample_.prompts(),
        [&](const SampledPrompt& prompt) { return prompt.units() == units && !prompt.cut(); }));
  }

  const ContentKeys& keys_ = ContentKeys::OfProcess();
  PromptSample sample_;
  uint64_t held_ = 0;
};

// ---- The notes of a prompt.

TEST_F(PromptSampleTest, FollowsAPromptOverItsStores) {
  Store({1}, 0, 4);
  Store({1}, 4, 2);
  Store({1}, 6, 1);
  ASSERT_EQ(sample_.prompts().size(), 1u);
  const SampledPrompt& prompt = sample_.prompts()[0];
  ASSERT_EQ(prompt.units(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(prompt.keys()[i], KeyOf(1, i));
    EXPECT_TRUE(prompt.WasStored(i, 0));
    EXPECT_FALSE(prompt.WasStored(i, 1));
  }
  EXPECT_EQ(prompt.asked_for(), 0u);
  EXPECT_FALSE(prompt.cut());
}

// The worker does not hold the parent when the store arrives, so the position of the parent is
// unknown.
TEST_F(PromptSampleTest, FindsAParentWithoutItsPosition) {
  Store({1}, 0, 4);
  BlockStored event = {.block_size = kHashBlockSize};
  event.block_hashes.assign(1, BlockHash(uint64_t{0}));
  StoreContent content = {.contents = {KeyOf(1, 4)}, .dense = true};
  Note(event, {.parent = KeyOf(1, 3)}, content, 0);
  EXPECT_NE(Find({1}, 5), nullptr);
}

TEST_F(PromptSampleTest, APromptIsFollowedUpToTheMaximumOfUnits) {
  for (size_t unit = 0; unit < PromptSample::kMaxUnits; unit += 512) Store({1}, unit, 512);
  EXPECT_EQ(Whole(PromptSample::kMaxUnits), 1u);
  Store({1}, PromptSample::kMaxUnits, 1);
  ASSERT_EQ(sample_.prompts().size(), 1u);
  EXPECT_EQ(sample_.prompts()[0].units(), PromptSample::kMaxUnits);
  EXPECT_TRUE(sample_.prompts()[0].cut());
}

TEST_F(PromptSampleTest, GroupsNoteTheirStoresOnOnePrompt) {
  Store({1}, 0, 70, 0);
  StoreInBatch({1}, 0, 3, 5);
  Store({1}, 68, 2, 31);
  ASSERT_EQ(sample_.prompts().size(), 1u);
  const SampledPrompt& prompt = sample_.prompts()[0];
  EXPECT_TRUE(prompt.WasStored(69, 0));
  EXPECT_TRUE(prompt.WasStored(2, 5));
  EXPECT_FALSE(prompt.WasStored(3, 5));
  EXPECT_FALSE(prompt.WasStored(67, 31));
  EXPECT_TRUE(prompt.WasStored(69, 31));
  EXPECT_EQ(prompt.asked_for(), 0u);
}

TEST_F(PromptSampleTest, GroupsBeyondTheBoundAreNotFollowed) {
  Store({1}, 0, 3, PromptSample::kMaxGroups);
  EXPECT_TRUE(sample_.prompts().empty());
}

TEST_F(PromptSampleTest, ASecondStoreOfAGroupShowsTheRequestedPrefix) {
  Store({1}, 0, 3, 0);
  Store({1}, 0, 3, 1);
  EXPECT_EQ(sample_.prompts()[0].asked_for(), 0u);
  Store({1}, 0, 2, 1);
  EXPECT_EQ(sample_.prompts()[0].asked_for(), 2u);
}

TEST_F(PromptSampleTest, ABranchIsAPromptOfItsOwn) {
  Store({0}, 0, 100);
  Store({7, 70}, 70, 5);
  ASSERT_EQ(sample_.prompts().size(), 2u);
  const SampledPrompt& branch = sample_.prompts()[1];
  ASSERT_EQ(branch.units(), 75u);
  EXPECT_EQ(branch.keys()[69], KeyOf(0, 69));
  EXPECT_EQ(branch.keys()[70], KeyOf(7, 70));
  EXPECT_TRUE(branch.WasStored(69, 0));
  EXPECT_TRUE(branch.WasStored(74, 0));
  EXPECT_EQ(branch.asked_for(), 70u);
  EXPECT_EQ(sample_.prompts()[0].asked_for(), 70u);
  EXPECT_EQ(sample_.prompts()[0].units(), 100u);
}

// The blocks of one prompt after the branch do not belong to the other prompt.
TEST_F(PromptSampleTest, ABranchHasNoLaterBlocksOfTheOtherPrompt) {
  Store({0}, 0, 100);
  Store({7, 70}, 70, 5, 1);
  const SampledPrompt& branch = sample_.prompts()[1];
  EXPECT_TRUE(branch.WasStored(69, 0));
  EXPECT_FALSE(branch.WasStored(70, 0));
  EXPECT_TRUE(branch.WasStored(70, 1));
}

TEST_F(PromptSampleTest, AStoreIsNotedOnAllPromptsThatShareIt) {
  Store({0}, 0, 10);
  Store({1, 6}, 6, 10);
  Store({0}, 0, 4, 1);
  for (const SampledPrompt& prompt : sample_.prompts()) {
    EXPECT_TRUE(prompt.WasStored(3, 1));
    EXPECT_FALSE(prompt.WasStored(4, 1));
  }
}

// ---- Stores whose blocks have several units.

class StoresWithTokens : public PromptSampleTest {
 protected:
  // Stores `blocks` blocks of four units. A sparse store (`dense` false) contains only the last
  // block.
  void StoreTokens(size_t blocks, bool dense, uint8_t group) {
    constexpr size_t kBlock = 4 * kHashBlockSize;
    BlockStored event = {.block_size = kBlock};
    event.token_ids.emplace();
    for (size_t i = 0; i < blocks * kBlock; ++i) {
      event.token_ids->push_back(static_cast<TokenId>(i + 1));
    }
    ends_.resize(blocks * 4);
    keys_.ExtendBy(keys_.Root({}), *event.token_ids, kHashBlockSize, ends_);
    StoreContent content = {.dense = dense};
    for (size_t i = dense ? 0 : blocks - 1; i < blocks; ++i) {
      content.contents.push_back(ends_[i * 4 + 3]);
      event.block_hashes.emplace_back(uint64_t{i});
    }
    Note(event, {.at_root = true}, content, group);
  }
  std::vector<ContentKey> ends_;
};

TEST_F(StoresWithTokens, PrefixesInsideBlocksAreKnown) {
  StoreTokens(3, true, 0);
  const SampledPrompt& prompt = sample_.prompts()[0];
  ASSERT_EQ(prompt.units(), 12u);
  EXPECT_TRUE(std::ranges::equal(prompt.keys(), ends_));
  EXPECT_TRUE(prompt.WasStored(7, 0));
  EXPECT_FALSE(prompt.WasStored(6, 0));
}

TEST_F(StoresWithTokens, SparseStoresAreNotedWhereTheirBlocksAre) {
  StoreTokens(3, true, 0);
  StoreTokens(3, false, 1);
  ASSERT_EQ(sample_.prompts().size(), 1u);
  EXPECT_TRUE(sample_.prompts()[0].WasStored(11, 1));
  EXPECT_FALSE(sample_.prompts()[0].WasStored(7, 1));
}

TEST_F(StoresWithTokens, ASparseStoreMayBeTheFirstOfItsPrompt) {
  StoreTokens(3, false, 1);
  StoreTokens(3, true, 0);
  ASSERT_EQ(sample_.prompts().size(), 1u);
  EXPECT_TRUE(std::ranges::equal(sample_.prompts()[0].keys(), ends_));
  EXPECT_TRUE(sample_.prompts()[0].WasStored(11, 1));
  EXPECT_TRUE(sample_.prompts()[0].WasStored(3, 0));
}

// ---- Selection of prompts, and their number.

constexpr uint64_t kPool = 78'000;
constexpr size_t kLong = 625;  // units: 10,000 tokens

TEST_F(PromptSampleTest, FirstPromptsAreAllChosen) {
  for (uint64_t prompt = 0; prompt < 12; ++prompt) {
    Store({prompt}, 0, 100);
    EXPECT_EQ(Whole(100), prompt + 1);
  }
}

TEST_F(PromptSampleTest, OnePromptOfABatchIsSampled) {
  sample_.BeginBatch();
  StoreInBatch({1}, 0, 3);
  StoreInBatch({2}, 0, 3);
  ASSERT_EQ(sample_.prompts().size(), 1u);
  EXPECT_NE(Find({1}, 3), nullptr);
}

// The cache is full of long prompts, which the engine stores in steps of 512 units. The sample
// needs no removes of evicted blocks.
TEST_F(PromptSampleTest, ThereAreAlwaysEnoughLongPrompts) {
  for (uint64_t prompt = 0; prompt < 5 * kPool / kLong; ++prompt) {
    for (size_t first = 0; first < kLong; first += 512) {
      StoreInPool(kPool, {prompt}, first, std::min<size_t>(512, kLong - first));
      if (prompt * kLong < kPool) continue;
      ASSERT_GE(Whole(kLong), static_cast<size_t>(kMinTestedPrompts)) << prompt;
    }
  }
}

// The same test with an index. The worker evicts the oldest prompts.
TEST(PromptSampleOfAnIndex, AFullCacheOfLongPromptsIsDiagnosed) {
  constexpr uint64_t kPrompts = kPool / kLong;
  const auto hashes = [](uint64_t prompt, size_t first, size_t count) {
    return testing::Hashes((prompt + 1) << 20 | first, static_cast<int64_t>(count));
  };
  PrefixIndex index;
  WorkerConfig config{.name = "worker"};
  config.groups = {testing::Full(), testing::Window(1024)};
  ASSERT_TRUE(index.AddWorker(testing::kWorker, config).ok());
  for (uint64_t prompt = 0; prompt < 2 * kPrompts; ++prompt) {
    for (size_t first = 0; first < kLong; first += 512) {
      const size_t count = std::min<size_t>(512, kLong - first);
      EventBatch batch;
      for (const int64_t group : {0, 1}) {
        if (prompt >= kPrompts) {
          batch.events.emplace_back(testing::Remove(
              hashes(prompt - kPrompts, first == 0 ? kLong - count : 0, count), group));
        }
        BlockStored event = testing::Store(hashes(prompt, first, count), group);
        if (first > 0) event.parent_block_hash = hashes(prompt, first - 1, 1)[0];
        event.token_ids.emplace(count * kHashBlockSize, static_cast<TokenId>(prompt));
        batch.events.emplace_back(std::move(event));
      }
      EXPECT_TRUE(index.Apply(testing::kWorker, batch).left_out.empty());
      if (prompt < kPrompts) continue;
      const ReuseDiagnosis found = index.Diagnose(testing::kWorker);
      ASSERT_TRUE(found.enough_data()) << prompt << ": " << found.tested;
      ASSERT_EQ(found.lost, 0);
    }
  }
}

// A prompt that left the cache does not describe the cache. The sample must drop this prompt soon.
TEST_F(PromptSampleTest, PromptsThatLeftTheCacheLeaveTheSample) {
  const uint64_t prompts = kPool / kLong;
  for (uint64_t round = 0; round < 6; ++round) {
    for (uint64_t i = 0; i < prompts; ++i) {
      StoreInPool(kPool, {round * prompts + i}, 0, kLong);
      if (round < 2) continue;
      const ContentKey first = sample_.prompts().front().keys()[0];
      const uint64_t age = round * prompts + i - ((first >> 32) - 1);
      ASSERT_LE(age, prompts * 5 / 4);
      ASSERT_GE(age, prompts / 2);
    }
  }
}

// One prompt needs more memory than the other prompts leave free. The sample follows this prompt to
// its end, and keeps the other prompts.
TEST_F(PromptSampleTest, ALongPromptEvictsNoOtherPrompts) {
  for (uint64_t prompt = 0; prompt < 5; ++prompt) StoreInPool(kPool, {prompt}, 0, 300);
  for (size_t unit = 0; unit < 8000; unit += 500) StoreInPool(kPool, {5}, unit, 500);
  EXPECT_EQ(Whole(8000), 1u);
  EXPECT_EQ(Whole(300), 5u);
}

// If the sample has room for few prompts, a short prompt stays in the sample as long as it is in
// the cache. Later, the short prompt leaves the sample too.
TEST_F(PromptSampleTest, AShortPromptStaysAsLongAsInTheCache) {
  constexpr uint64_t kSmallPool = 20'000;
  StoreInPool(kSmallPool, {0}, 0, 100);
  uint64_t prompt = 1;
  for (; (prompt + 1) * kLong < kSmallPool; ++prompt) {
    StoreInPool(kSmallPool, {prompt}, 0, kLong);
    EXPECT_NE(Find({0}, 100), nullptr);
  }
  for (; prompt * kLong < 2 * kSmallPool; ++prompt) {
    StoreInPool(kSmallPool, {prompt}, 0, kLong);
  }
  EXPECT_EQ(Find({0}, 100), nullptr);
}

// If the cache is full, the sample follows only a share of the prompts. This bounds the time.
TEST_F(PromptSampleTest, MostStoresArePassedOver) {
  uint64_t chosen = 0;
  for (uint64_t prompt = 0; prompt < 40 * kPool / kLong; ++prompt) {
    StoreInPool(kPool, {prompt}, 0, kLong);
    chosen += Find({prompt}, kLong) != nullptr;
  }
  EXPECT_GE(chosen, 38 * PromptSample::kEnoughPrompts);
  EXPECT_LE(chosen, 46 * (PromptSample::kEnoughPrompts + 1));
}

TEST_F(PromptSampleTest, ShortPromptsAreBoundedInNumber) {
  for (uint64_t prompt = 0; prompt < 10'000; ++prompt) StoreInPool(kPool, {prompt}, 0, 10);
  EXPECT_EQ(sample_.prompts().size(), PromptSample::kMaxPrompts);
}

// Half of the requests store only the blocks after a shared prefix. No request stores the shared
// prefix again.
TEST_F(PromptSampleTest, ASharedPrefixIsNotLost) {
  Store({0}, 0, 50);
  for (uint64_t prompt = 1; prompt < 20'000; ++prompt) {
    StoreInPool(kPool, {prompt, prompt % 2 == 0 ? 50u : 0u}, prompt % 2 == 0 ? 50 : 0, 25);
  }
  const auto shared = std::ranges::count_if(sample_.prompts(), [](const SampledPrompt& prompt) {
    return prompt.HasPrefix(50, KeyOf(0, 49));
  });
  EXPECT_GT(shared, std::ssize(sample_.prompts()) / 4);
}

// ---- Memory.

TEST_F(PromptSampleTest, TheSampleOfALargeCacheTakesAShareOfTheIndexMemory) {
  for (const size_t units : {30u, 300u, 625u, 3000u, 8000u}) {
    sample_.Clear();
    held_ = 0;
    constexpr uint64_t kLargePool = 800'000;
    for (uint64_t prompt = 0; prompt < 3 * kLargePool / units; ++prompt) {
      StoreInPool(kLargePool, {prompt}, 0, units);
      if (prompt * units < kLargePool) continue;
      ASSERT_LE(sample_.Bytes(), kLargePool * kIndexBytesABlock / 20);
    }
  }
}

TEST_F(PromptSampleTest, TheSampleOfASmallCacheTakesAFixedMinimum) {
  for (const size_t units : {30u, 300u, 625u, 3000u, 8000u}) {
    sample_.Clear();
    held_ = 0;
    constexpr uint64_t kSmallPool = 20'000;
    for (uint64_t prompt = 0; prompt < 100'000 / units; ++prompt) {
      StoreInPool(kSmallPool, {prompt}, 0, units);
      const size_t growing = units * 10 > PromptSample::kMinBytes / 5 ? units * 10 : 0;
      ASSERT_LE(sample_.Bytes(), PromptSample::kMinBytes + growing);
    }
  }
}

// A unit takes 9 to 10 bytes: its key, the bits of the groups, the filter, and spare capacity.
TEST_F(PromptSampleTest, AUnitTakesTenBytes) {
  for (uint64_t prompt = 0; prompt < 3 * kPool / kLong; ++prompt) {
    StoreInPool(kPool, {prompt}, 0, kLong);
  }
  EXPECT_LE(sample_.Bytes(), PromptSample::kEnoughPrompts * kLong * 10);
  EXPECT_GE(sample_.Bytes(), PromptSample::kEnoughPrompts * kLong * 9);
}

}  // namespace
}  // namespace kvcast::router
