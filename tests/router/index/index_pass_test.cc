// A pass over the entries of a worker (PrefixIndex::ForEachResidency) is made in steps. Batches of
// other workers run between the steps, and the pass visits each entry of its worker once.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "router/index/run_pool.h"
#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

constexpr WorkerId kPassed{0};
constexpr WorkerId kBeside{1};
constexpr uint64_t kPassChains = 256;
constexpr int64_t kChainBlocks = 256;  // of a chain

std::vector<BlockHash> PassChain(uint64_t chain) { return Hashes(1 + chain * 1000, kChainBlocks); }

using router::RunPass;

// Returns the runs that the pass visits until its end. The store has 9 runs.
std::vector<uint32_t> RemainingRuns(RunPass& pass) {
  std::vector<uint32_t> runs;
  while (const uint32_t run = pass.Next(10)) runs.push_back(run);
  return runs;
}

TEST(RunPass, VisitsEachMovedBlockOnce) {
  RunPass pass;
  for (uint32_t run = 1; run <= 3; ++run) EXPECT_EQ(pass.Next(10), run);
  pass.NoteMove(2, 7);  // run 2 was visited
  pass.NoteMove(8, 1);  // run 8 was not visited
  pass.NoteMove(7, 9);  // the former run 2, which was visited
  pass.NoteMove(1, 2);  // the former run 8, which was not visited
  pass.NoteFree(1);
  pass.NoteFree(7);
  EXPECT_EQ(RemainingRuns(pass), (std::vector<uint32_t>{4, 5, 6, 7, 8, 2}));
}

TEST(RunPass, TheNumberOfAFreedRunMeansNothing) {
  RunPass pass;
  for (uint32_t run = 1; run <= 3; ++run) EXPECT_EQ(pass.Next(10), run);
  pass.NoteMove(1, 5);  // run 1 was visited
  pass.NoteFree(5);
  pass.NoteMove(6, 5);  // run 6 was not visited
  pass.NoteMove(7, 2);  // run 7 was not visited
  pass.NoteFree(2);
  pass.NoteMove(3, 2);  // run 3 was visited
  EXPECT_EQ(RemainingRuns(pass), (std::vector<uint32_t>{4, 5, 6, 7, 8, 9}));
}

class IndexPassTest : public ::testing::Test {
 protected:
  IndexPassTest() {
    for (const WorkerId worker : {kPassed, kBeside}) {
      EXPECT_TRUE(index.AddWorker(worker, Registered({Full()})).ok());
    }
    for (uint64_t chain = 0; chain < kPassChains; ++chain) {
      // Both workers share the runs of every second chain.
      if (chain % 2 == 0) index.Apply(kBeside, Batch(Store(PassChain(chain))));
      index.Apply(kPassed, Batch(Store(PassChain(chain))));
      for (const BlockHash& hash : PassChain(chain)) expected.push_back(hash.integer());
    }
    std::ranges::sort(expected);
  }
  ~IndexPassTest() override {
    stop = true;
    if (writer.joinable()) writer.join();
  }
  // Makes a pass. Returns the visited hashes in order.
  std::vector<uint64_t> Pass() {
    visited = 0;
    ++passes;
    std::vector<uint64_t> hashes;
    index.ForEachResidency(kPassed, [&](Tier, uint8_t, const BlockHash& hash, uint32_t) {
      hashes.push_back(hash.integer());
      ++visited;
    });
    std::ranges::sort(hashes);
    return hashes;
  }

  PrefixIndex index;
  std::vector<uint64_t> expected;
  std::atomic<size_t> visited = 0;  // in the current pass
  std::atomic<uint64_t> passes = 0;
  std::atomic<bool> stop = false;
  std::atomic<bool> ran = false;      // the order of events that the test waits for has occurred
  std::atomic<uint64_t> batches = 0;  // number of ended batches
  std::thread writer;
};

TEST_F(IndexPassTest, ABatchRunsBetweenTwoSteps) {
  writer = std::thread([&] {
    for (uint64_t hash = 1'000'000; !stop && !ran; ++hash) {
      const uint64_t pass = passes;
      if (visited == 0 || visited == expected.size()) {
        std::this_thread::yield();
        continue;
      }
      index.Apply(kBeside, Batch(Store(Hashes(hash, 1))));
      // The pass has begun before the batch, and has not ended.
      ran = passes == pass && visited < expected.size();
    }
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!ran && std::chrono::steady_clock::now() < deadline) Pass();
  EXPECT_TRUE(ran);
}

// If a large batch did not pause, each step would wait for the end of the batch.
TEST_F(IndexPassTest, APassEndsWhileALargeBatchIsPaused) {
  writer = std::thread([&] {
    // On a busy machine, two passes take longer than a small batch. So the batches grow.
    for (size_t blocks = 1 << 17; !stop; blocks = std::min<size_t>(2 * blocks, 1 << 22)) {
      const auto large = Hashes(1'000'000, blocks);
      for (const EventBatch& batch : {Batch(Store(large)), Batch(Remove(large))}) {
        index.Apply(kBeside, batch);
        ++batches;
      }
    }
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!ran && std::chrono::steady_clock::now() < deadline) {
    const uint64_t before = batches;
    const uint64_t pauses = index.batch_pauses();
    EXPECT_EQ(Pass(), expected);
    const uint64_t pauses_of_first = index.batch_pauses() - pauses;
    EXPECT_EQ(Pass(), expected);
    const uint64_t pauses_of_second = index.batch_pauses() - pauses - pauses_of_first;
    // The same batch paused for both passes, so it had not ended at the end of the first pass.
    ran = pauses_of_first > 0 && pauses_of_second > 0 && batches == before;
  }
  EXPECT_TRUE(ran);
}

TEST_F(IndexPassTest, VisitsEachEntryOnceBesideBatchesThatMoveRuns) {
  writer = std::thread([&] {
    std::mt19937_64 random(7);
    while (!stop) {
      const uint64_t chain = random() % kPassChains;
      std::vector<BlockHash> part = PassChain(chain);
      // Blocks that only the other worker holds. When most of these blocks are removed, the
      // remaining blocks move to smaller runs.
      for (const BlockHash& hash : PassChain(kPassChains + chain)) part.push_back(hash);
      index.Apply(kBeside, Batch(Store(part)));
      std::erase_if(part, [&](const BlockHash&) { return random() % 9 == 0; });
      index.Apply(kBeside, Batch(Remove(part)));
      index.Reclaim();
      ++batches;
    }
  });
  for (int disturbed = 0; disturbed < 20;) {
    const uint64_t before = batches;
    ASSERT_EQ(Pass(), expected) << "pass " << passes;
    disturbed += batches > before;
  }
}

}  // namespace
}  // namespace kvcast::testing
