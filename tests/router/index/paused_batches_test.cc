// A large batch pauses between two of its changes, so that batches of other workers can run. The
// result is the same as without a pause, and no query sees a part of the paused batch.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "kvcast/router/prompt_contents.h"
#include "tests/support/content_events.h"
#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

constexpr WorkerId kLarge{0};
constexpr WorkerId kSmall{1};
constexpr int64_t kBatchBlock = 4;
constexpr uint64_t kSharedPrompts = 24;
constexpr int64_t kPromptBlocks = 400;  // of a prompt

// Makes batches of one worker. All workers store the same prompts, so they share runs.
class RandomBatches {
 public:
  explicit RandomBatches(uint32_t seed) : random_(seed) {}

  EventBatch Next(int events) {
    EventBatch batch;
    for (int i = 0; i < events; ++i) Append(batch);
    return batch;
  }

 private:
  void Append(EventBatch& batch) {
    const uint64_t prompt = random_() % kSharedPrompts;
    const auto blocks = static_cast<int64_t>(1 + random_() % kPromptBlocks);
    const std::vector<BlockHash> chain = Hashes(1 + prompt * 1000, blocks);
    const auto tokens = Tokens(static_cast<int>(prompt) * 100'000, blocks * kBatchBlock);
    const uint64_t kind = random_() % 16;
    if (kind < 8) {
      batch.events.emplace_back(StoreTokens(chain, tokens));
    } else if (kind < 10) {
      BlockStored unnamed = StoreIn(kMediumCpu, chain);
      unnamed.block_size = kBatchBlock;
      batch.events.emplace_back(std::move(unnamed));
    } else if (kind < 14) {
      batch.events.emplace_back(Remove(chain));
    } else if (kind < 15) {
      batch.events.emplace_back(RemoveFrom(kMediumCpu, chain));
    } else {
      batch.events.emplace_back(AllBlocksCleared{
          .medium = random_() % 2 == 0 ? std::optional<std::string>(kMediumGpu) : kMediumCpu});
    }
  }

  std::mt19937 random_;
};

using Residency = std::tuple<Tier, uint8_t, uint64_t, uint32_t>;

std::set<Residency> HeldBy(const PrefixIndex& index, WorkerId worker) {
  std::set<Residency> held;
  index.ForEachResidency(worker,
                         [&](Tier tier, uint8_t group, const BlockHash& hash, uint32_t copies) {
                           held.emplace(tier, group, hash.integer(), copies);
                         });
  return held;
}

std::vector<int64_t> AnswersOf(const PrefixIndex& index, WorkerId worker) {
  std::vector<int64_t> answers;
  const std::vector<WorkerId> asked = {worker};
  for (uint64_t prompt = 0; prompt < kSharedPrompts; ++prompt) {
    const auto tokens = Tokens(static_cast<int>(prompt) * 100'000, kPromptBlocks * kBatchBlock);
    const auto contents = PromptContents(index.keys(), tokens, kBatchBlock, 0, {});
    const PromptBlocks by_content{.hash_block_size = kBatchBlock,
                                  .prompt_tokens = kPromptBlocks * kBatchBlock + 1,
                                  .contents = contents};
    const auto chain = Hashes(1 + prompt * 1000, kPromptBlocks);
    const PromptBlocks by_hash{.hash_block_size = kBatchBlock,
                               .prompt_tokens = kPromptBlocks * kBatchBlock + 1,
                               .hashes = chain};
    for (const PromptBlocks& asks : {by_content, by_hash}) {
      const auto matches = index.Match(asks, asked);
      answers.push_back(matches.empty() ? -1 : matches[0].gpu_tokens);
      answers.push_back(matches.empty() ? -1 : matches[0].with_cpu_tokens);
    }
  }
  return answers;
}

void AddBoth(PrefixIndex& index) {
  for (const WorkerId worker : {kLarge, kSmall}) {
    ASSERT_TRUE(index.AddWorker(worker, Registered({Full(kBatchBlock)}, kBatchBlock)).ok());
  }
}

// Without a pause, the batches of other workers would wait for the end of each large batch.
TEST(PausedBatches, PauseForABatchThatWaits) {
  constexpr int kMostBatches = 2000;
  PrefixIndex index;
  AddBoth(index);
  std::atomic<bool> done{false};
  std::atomic<bool> begun{false};
  std::jthread small([&] {
    for (RandomBatches batches(2); !done; begun = true) index.Apply(kSmall, batches.Next(2));
  });
  while (!begun) std::this_thread::yield();
  RandomBatches large(1);
  for (int i = 0; i < kMostBatches && index.batch_pauses() == 0; ++i) {
    index.Apply(kLarge, large.Next(100));
  }
  done = true;
  EXPECT_GT(index.batch_pauses(), 0u);
}

TEST(PausedBatches, LeaveTheStateOfASequentialApplication) {
  constexpr uint64_t kPauses = 200;
  constexpr int kLargeEvents = 100;
  PrefixIndex index;
  PrefixIndex alone;
  AddBoth(index);
  AddBoth(alone);
  std::atomic<bool> done{false};
  std::atomic<uint32_t> small_batches{0};
  std::jthread small([&] {
    for (RandomBatches batches(2); !done; ++small_batches) index.Apply(kSmall, batches.Next(2));
  });
  RandomBatches large(1);
  RandomBatches again(1);
  for (int round = 0; index.batch_pauses() < kPauses; ++round) {
    index.Apply(kLarge, large.Next(kLargeEvents));
    alone.Apply(kLarge, again.Next(kLargeEvents));
    if (round % 32 != 0) continue;
    EXPECT_EQ(HeldBy(index, kLarge), HeldBy(alone, kLarge));
    EXPECT_EQ(AnswersOf(index, kLarge), AnswersOf(alone, kLarge));
  }
  done = true;
  small.join();
  RandomBatches small_again(2);
  for (uint32_t i = 0; i < small_batches; ++i) alone.Apply(kSmall, small_again.Next(2));
  for (const WorkerId worker : {kLarge, kSmall}) {
    EXPECT_EQ(HeldBy(index, worker), HeldBy(alone, worker));
    EXPECT_EQ(AnswersOf(index, worker), AnswersOf(alone, worker));
    EXPECT_EQ(index.counters(worker).residencies, alone.counters(worker).residencies);
  }
  // A batch that stores nothing new shows that no memory of a paused batch is left behind.
  for (PrefixIndex* const each : {&index, &alone}) {
    for (const WorkerId worker : {kLarge, kSmall}) {
      each->Apply(worker, Batch(AllBlocksCleared{.medium = kMediumGpu},
                                AllBlocksCleared{.medium = kMediumCpu}));
    }
    while (each->Reclaim()) {
    }
    EXPECT_EQ(HeldBy(*each, kLarge).size() + HeldBy(*each, kSmall).size(), 0u);
  }
}

TEST(PausedBatches, AreSeenWholeOrNotAtAll) {
  constexpr uint64_t kPauses = 200;
  constexpr uint64_t kChain = 2048;
  PrefixIndex index;
  AddBoth(index);
  const auto chain = Hashes(1, kChain);
  EventBatch store;
  // One event that begins inside a run, and one for the other blocks.
  const EventBatch remove = Batch(Remove(Hashes(40, kChain - 39)), Remove(Hashes(1, 39)));
  for (uint64_t i = 0; i < kChain; i += 16) {
    BlockStored stored = StoreFull(Hashes(1 + i, 16), 0, kBatchBlock);
    if (i > 0) stored.parent_block_hash = BlockHash::FromUnsigned(i);
    store.events.emplace_back(std::move(stored));
  }
  std::atomic<bool> done{false};
  std::atomic<int> torn{0};
  // The other workers join and leave the runs of the large batch, so the holder sets of these runs
  // are replaced.
  constexpr uint32_t kOthers = 12;
  for (uint32_t other = 2; other < 2 + kOthers; ++other) {
    ASSERT_TRUE(index.AddWorker(WorkerId(other), Registered({Full(kBatchBlock)})).ok());
  }
  std::jthread small([&] {
    std::mt19937 random(3);
    while (!done) {
      const WorkerId other(2 + random() % kOthers);
      const uint64_t first = 1 + 64 * (random() % (kChain / 64));
      index.Apply(other, Batch(StoreFull(Hashes(first, 64), 0, kBatchBlock)));
      if (random() % 4 == 0) index.Apply(other, Batch(AllBlocksCleared{}));
    }
  });
  std::jthread reader([&] {
    const std::vector<WorkerId> asked = {kLarge};
    const int64_t all = int64_t{kChain} * kBatchBlock;
    while (!done) {
      const auto matches = index.Match(
          {.hash_block_size = kBatchBlock, .prompt_tokens = all + 1, .hashes = chain}, asked);
      torn += matches.at(0).gpu_tokens != 0 && matches.at(0).gpu_tokens != all;
    }
  });
  while (index.batch_pauses() < kPauses) {
    index.Apply(kLarge, store);
    index.Apply(kLarge, remove);
  }
  done = true;
  small.join();
  reader.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(index.counters(kLarge).residencies, 0u);
}

// A batch pauses while it removes the blocks of one group. Then it removes the next blocks of
// another group, from a run whose holder set was replaced in the pause.
TEST(PausedBatches, ForgetTheCursorsOfAllGroups) {
  PrefixIndex index;
  ASSERT_TRUE(index.AddWorker(kLarge, Registered({Full(), Full()})).ok());
  constexpr uint32_t kOthers = 12;
  for (uint32_t other = 2; other < 2 + kOthers; ++other) {
    ASSERT_TRUE(index.AddWorker(WorkerId(other), Registered({Full()})).ok());
  }
  std::atomic<bool> done{false};
  std::jthread small([&] {
    for (uint32_t i = 0; !done; ++i) {
      const WorkerId other(2 + i % kOthers);
      index.Apply(other, Batch(StoreFull(Hashes(1, 64), 0)));
      if (i % 3 == 0) index.Apply(other, Batch(AllBlocksCleared{}));
    }
  });
  const EventBatch store = Batch(StoreFull(Hashes(1, 64), 0), StoreFull(Hashes(5000, 1024), 1));
  const EventBatch remove =
      Batch(Remove(Hashes(1, 32), 0), Remove(Hashes(5000, 1024), 1), Remove(Hashes(33, 32), 0));
  int wrong = 0;
  while (index.batch_pauses() < 500) {
    index.Apply(kLarge, store);
    index.Apply(kLarge, remove);
    wrong += index.counters(kLarge).residencies != 0 || !HeldBy(index, kLarge).empty();
  }
  done = true;
  small.join();
  EXPECT_EQ(wrong, 0);
}

// A change that is not a batch waits for the end of the paused batch.
TEST(PausedBatches, KeepTheirWorkerUntilTheirEnd) {
  PrefixIndex index;
  AddBoth(index);
  std::atomic<bool> done{false};
  std::jthread small([&] {
    for (RandomBatches batches(4); !done;) index.Apply(kSmall, batches.Next(1));
  });
  std::jthread admin([&] {
    while (!done) {
      index.ClearWorker(kLarge);
      index.RemoveWorker(kLarge);
      EXPECT_TRUE(index.AddWorker(kLarge, Registered({Full(kBatchBlock)}, kBatchBlock)).ok());
    }
  });
  RandomBatches large(5);
  while (index.batch_pauses() < 50) index.Apply(kLarge, large.Next(100));
  done = true;
  admin.join();
  small.join();
  index.ClearWorker(kLarge);
  EXPECT_TRUE(HeldBy(index, kLarge).empty());
}

// A batch pauses inside a remove. Its next remove names a tier on which the worker holds nothing.
// RemovalCursors has one entry for all holders with the same number modulo 4. The holders of the
// four workers have different entries, so one of these holders has the entry of kNoHolderId.
TEST(PausedBatches, ARemoveOnAnEmptyTierChangesNoOtherTier) {
  constexpr uint32_t kLargeWorkers = 4;
  constexpr WorkerId kPausingWorker{kLargeWorkers};
  PrefixIndex index;
  for (uint32_t id = 0; id <= kLargeWorkers; ++id) {
    ASSERT_TRUE(index.AddWorker(WorkerId(id), Registered({Full()})).ok());
    index.Apply(WorkerId(id), Batch(StoreFull(Hashes(1, 64), 0)));
  }
  std::atomic<bool> done{false};
  std::jthread small([&] {
    while (!done)
      index.Apply(kPausingWorker, Batch(StoreFull(Hashes(9000, 1), 0), Remove(Hashes(9000, 1))));
  });
  std::vector<BlockHash> unknown_and_first = Hashes(5000, 32);
  unknown_and_first.push_back(Hash(1));
  const EventBatch remove = Batch(Remove(unknown_and_first), RemoveFrom(kMediumCpu, {Hash(2)}));
  int wrong = 0;
  for (uint32_t i = 0; index.batch_pauses() < 500; ++i) {
    const WorkerId worker(i % kLargeWorkers);
    const uint64_t unknown = index.counters(worker).unknown_removes;
    index.Apply(worker, remove);
    wrong += index.counters(worker).unknown_removes != unknown + 33 ||
             index.counters(worker).residencies != 63;
    index.Apply(worker, Batch(StoreFull({Hash(1)}, 0)));
    if (index.counters(worker).residencies != 64) {
      index.Apply(worker, Batch(AllBlocksCleared{}));
      index.Apply(worker, Batch(StoreFull(Hashes(1, 64), 0)));
    }
  }
  done = true;
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace kvcast::testing
