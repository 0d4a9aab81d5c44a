// Readers run concurrently with writers. A query sees a whole batch or no part of the batch.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "kvcast/router/prompt_contents.h"
#include "tests/support/content_events.h"
#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

constexpr int kWriters = 2;
constexpr int kReaders = 2;
constexpr int kRounds = 300;
constexpr int kMoves = 20000;

// Starts kWriters threads. Each thread stores and removes the blocks of its worker kRounds times,
// and then lowers `writing` by one.
void StartWriters(PrefixIndex& index, const EventBatch& store, const EventBatch& remove,
                  std::atomic<int>& writing, std::vector<std::jthread>& threads) {
  for (uint32_t w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      for (int i = 0; i < kRounds; ++i) {
        index.Apply(WorkerId(w), store);
        index.Apply(WorkerId(w), remove);
      }
      --writing;
    });
  }
}

// The parameter is the number of shards.
class PrefixIndexConcurrency : public ::testing::TestWithParam<size_t> {};

INSTANTIATE_TEST_SUITE_P(Shards, PrefixIndexConcurrency, ::testing::Values(1, 2));

TEST_P(PrefixIndexConcurrency, ABatchIsSeenWholeOrNotAtAll) {
  PrefixIndex index(ContentKeys::OfProcess(), GetParam());
  const auto chain = Hashes(1, 64);
  for (uint32_t w = 0; w < kWriters; ++w) {
    ASSERT_TRUE(index.AddWorker(WorkerId(w), Registered({Full(), Window(32)})).ok());
  }
  const EventBatch store =
      Batch(Store(chain, 0), Store(Hashes(1, 32), 1), Store(Hashes(33, 32), 1));
  const EventBatch remove =
      Batch(Remove(Hashes(33, 32), 1), Remove(Hashes(1, 32), 1), Remove(chain, 0));
  std::atomic<int> writing{kWriters};
  std::atomic<int> torn{0};
  std::vector<std::jthread> threads;
  StartWriters(index, store, remove, writing, threads);
  for (int r = 0; r < kReaders; ++r) {
    threads.emplace_back([&] {
      do {
        for (const WorkerMatch& match : index.Match(chain, 16, 1025)) {
          torn += match.gpu_tokens != 0 && match.gpu_tokens != 1024;
        }
        for (const WorkerScore& score :
             index.Scores({.hash_block_size = 16, .prompt_tokens = 1025, .hashes = chain})) {
          torn += score.gpu_tokens != 1024;
        }
      } while (writing > 0);
    });
  }
  threads.clear();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(index.counters(WorkerId(0)).residencies, 0u);
}

// The same test for workers with one full-attention group. The number of leading blocks decides the
// answer. The blocks lie in three runs.
TEST_P(PrefixIndexConcurrency, ABatchOfOneFullGroupIsSeenWholeOrNotAtAll) {
  constexpr int64_t kBlocks = 150;
  constexpr uint32_t kIdle = 3;  // workers whose blocks do not change
  PrefixIndex index(ContentKeys::OfProcess(), GetParam());
  const auto chain = Hashes(1, kBlocks);
  const auto tokens = Tokens(0, kBlocks * 4);
  const auto contents = PromptContents(index.keys(), tokens, 4, 0, {});
  const EventBatch store = Batch(StoreTokens(chain, tokens));
  const EventBatch remove = Batch(Remove(chain));
  for (uint32_t w = 0; w < kWriters + kIdle; ++w) {
    ASSERT_TRUE(index.AddWorker(WorkerId(w), Registered({Full(4)}, 4)).ok());
    if (w >= kWriters) index.Apply(WorkerId(w), store);
  }
  std::atomic<int> writing{kWriters};
  std::atomic<int> torn{0};
  const auto ask = [&](const PromptBlocks& prompt) {
    do {
      uint32_t idle = 0;
      for (const WorkerScore& score : index.Scores(prompt)) {
        torn += score.gpu_tokens != kBlocks * 4;
        idle += score.worker.value >= kWriters;
      }
      torn += idle != kIdle;
    } while (writing > 0);
  };
  std::vector<std::jthread> threads;
  StartWriters(index, store, remove, writing, threads);
  const int64_t prompt = kBlocks * 4 + 1;
  threads.emplace_back(
      ask, PromptBlocks{.hash_block_size = 4, .prompt_tokens = prompt, .contents = contents});
  threads.emplace_back(
      ask, PromptBlocks{.hash_block_size = 4, .prompt_tokens = prompt, .hashes = chain});
  threads.clear();
  EXPECT_EQ(torn, 0);
}

// One worker always holds the first blocks of a run. Another worker repeatedly stores and removes
// all blocks of the run. The run therefore moves repeatedly.
TEST(PrefixIndexReaders, AMoveOfARunChangesNoAnswer) {
  PrefixIndex index;
  const auto chain = Hashes(1, 64);
  const auto tokens = Tokens(0, 64 * 4);
  const auto contents = PromptContents(index.keys(), tokens, 4, 0, {});
  for (uint32_t w = 0; w < 2; ++w) {
    ASSERT_TRUE(index.AddWorker(WorkerId(w), Registered({Full(4)}, 4)).ok());
  }
  index.Apply(WorkerId(0), Batch(StoreTokens(Hashes(1, 8), Tokens(0, 8 * 4))));
  const EventBatch store = Batch(StoreTokens(chain, tokens));
  const EventBatch remove = Batch(Remove(chain));
  std::atomic<bool> done{false};
  std::atomic<int> shorter{0};
  std::atomic<int> ambiguous{0};
  const auto ask = [&](const PromptBlocks& prompt) {
    while (!done) {
      const auto matches = index.Match(prompt);
      shorter += matches.at(0).gpu_tokens != 8 * 4;
      ambiguous += matches.at(0).ambiguous;
    }
  };
  std::jthread by_content(
      ask, PromptBlocks{.hash_block_size = 4, .prompt_tokens = 257, .contents = contents});
  std::jthread by_hash(ask,
                       PromptBlocks{.hash_block_size = 4, .prompt_tokens = 257, .hashes = chain});
  for (int i = 0; i < kMoves; ++i) {
    index.Apply(WorkerId(1), store);
    index.Apply(WorkerId(1), remove);
  }
  done = true;
  by_content.join();
  by_hash.join();
  EXPECT_EQ(shorter, 0);
  EXPECT_EQ(ambiguous, 0);
}

TEST(PrefixIndexReaders, WorkersAreAddedAndRemovedDuringQueries) {
  PrefixIndex index;
  const auto chain = Hashes(1, 8);
  ASSERT_TRUE(index.AddWorker(WorkerId(0), Registered({Full()})).ok());
  index.Apply(WorkerId(0), Batch(Store(chain)));
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::jthread reader([&] {
    while (!done) {
      const auto matches = index.Match(chain, 16, 129);
      wrong += matches.empty() || matches[0].gpu_tokens != 128;
      wrong += index.Groups(WorkerId(0)).size() != 1;
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(index.AddWorker(WorkerId(1), Registered({})).ok());
    index.Apply(WorkerId(1), Batch(StoreFull(chain, 0), AllBlocksCleared{}, StoreFull(chain, 0)));
    index.RemoveWorker(WorkerId(1));
  }
  done = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace kvcast::testing
