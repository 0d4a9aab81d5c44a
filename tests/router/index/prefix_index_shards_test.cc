// An index with several shards answers for the workers of all shards, sorted by shard. Writers of
// different shards do not wait for each other.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <semaphore>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

constexpr uint32_t kWorkers = 7;
constexpr size_t kShards = 3;

// Worker w holds the first w + 1 blocks of one chain of kWorkers blocks.
class PrefixIndexShards : public ::testing::Test {
 protected:
  PrefixIndexShards() {
    for (uint32_t w = 0; w < kWorkers; ++w) {
      EXPECT_TRUE(index_.AddWorker(WorkerId(w), Registered({Full()})).ok());
      index_.Apply(WorkerId(w), Batch(Store(Hashes(1, w + 1))));
    }
  }
  std::vector<WorkerMatch> Match(std::span<const WorkerId> workers = {}) const {
    return index_.Match(Hashes(1, kWorkers), 16, kWorkers * 16 + 1, workers);
  }

  PrefixIndex index_{ContentKeys::OfProcess(), kShards};
};

TEST_F(PrefixIndexShards, EachWorkerBelongsToTheShardOfItsId) {
  EXPECT_EQ(index_.shards(), kShards);
  for (uint32_t w = 0; w < kWorkers; ++w) EXPECT_EQ(index_.ShardOf(WorkerId(w)), w % kShards);
}

TEST_F(PrefixIndexShards, AQueryOfAllWorkersIsSortedByShardAndThenByRegistration) {
  std::vector<uint32_t> order;
  for (const WorkerMatch& match : Match()) {
    EXPECT_EQ(match.gpu_tokens, (match.worker.value + 1) * 16);
    order.push_back(match.worker.value);
  }
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 3, 6, 1, 4, 2, 5}));
}

TEST_F(PrefixIndexShards, AQueryOfSomeWorkersAnswersForThemAlone) {
  const std::array asked = {WorkerId(5), WorkerId(0), WorkerId(99), WorkerId(3), WorkerId(2)};
  std::vector<uint32_t> order;
  for (const WorkerMatch& match : Match(asked)) {
    EXPECT_EQ(match.gpu_tokens, (match.worker.value + 1) * 16);
    order.push_back(match.worker.value);
  }
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 3, 5, 2}));
  EXPECT_EQ(Match(std::array{WorkerId(4)}).size(), 1u);
  EXPECT_TRUE(Match(std::array{WorkerId(99)}).empty());
}

// After each batch, the next query of all shards sees this batch.
TEST_F(PrefixIndexShards, ScoresFollowEachBatch) {
  const auto hashes = Hashes(1, kWorkers);
  const PromptBlocks prompt = {
      .hash_block_size = 16, .prompt_tokens = kWorkers * 16 + 1, .hashes = hashes};
  for (uint32_t round = 0; round < 100; ++round) {
    const uint32_t worker = round % kWorkers;
    index_.Apply(WorkerId(worker), Batch(Remove(Hashes(1, 1))));
    std::set<uint32_t> found;
    for (const WorkerScore& score : index_.Scores(prompt)) found.insert(score.worker.value);
    EXPECT_EQ(found.size(), kWorkers - 1);
    EXPECT_FALSE(found.contains(worker));
    index_.Apply(WorkerId(worker), Batch(Store(Hashes(1, 1))));
    EXPECT_EQ(index_.Scores(prompt).size(), kWorkers);
  }
}

TEST_F(PrefixIndexShards, ReclaimFreesTheBlocksOfEachShard) {
  while (index_.Reclaim()) {
  }
  for (uint32_t w = 0; w < kShards; ++w) {
    index_.ClearWorker(WorkerId(w));
    EXPECT_TRUE(index_.Reclaim()) << w;
    while (index_.Reclaim()) {
    }
    EXPECT_EQ(Match(std::array{WorkerId(w)}).at(0).gpu_tokens, 0);
  }
}

// ForEachResidency holds the lock of the worker's shard while it calls `visit`.
TEST_F(PrefixIndexShards, AWriterDoesNotWaitForAnotherShard) {
  std::binary_semaphore applied(0);
  std::jthread writer;
  index_.ForEachResidency(WorkerId(0), [&](Tier, uint8_t, const BlockHash&, uint32_t) {
    writer = std::jthread([&] {
      index_.Apply(WorkerId(1), Batch(Store(Hashes(100, 1))));
      applied.release();
    });
    EXPECT_TRUE(applied.try_acquire_for(std::chrono::minutes(1)));
  });
  ASSERT_TRUE(writer.joinable()) << "the worker holds no block";
  writer.join();
  EXPECT_EQ(index_.counters(WorkerId(1)).residencies, 3u);
}

TEST_F(PrefixIndexShards, LocksOfAllShardsAreCounted) {
  const uint64_t before = index_.writer_locks();
  for (uint32_t w = 0; w < kWorkers; ++w)
    index_.Apply(WorkerId(w), Batch(Store(Hashes(200 + w, 1))));
  EXPECT_EQ(index_.writer_locks() - before, kWorkers);
}

}  // namespace
}  // namespace kvcast::testing
