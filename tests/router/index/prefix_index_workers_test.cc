// The blocks of one worker never appear in the answer of another worker. A removed worker leaves no
// blocks.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

constexpr WorkerId kA{1};
constexpr WorkerId kB{2};

struct TwoWorkers : ::testing::Test {
  TwoWorkers() {
    EXPECT_TRUE(index.AddWorker(kB, Registered({Full()})).ok());
    EXPECT_TRUE(index.AddWorker(kA, Registered({Full()})).ok());
  }
  int64_t Tokens(WorkerId worker) const {
    const WorkerId only[] = {worker};
    const auto matches = index.Match(chain, 16, 100, only);
    return matches.empty() ? -1 : matches[0].gpu_tokens;
  }

  PrefixIndex index;
  std::vector<BlockHash> chain = Hashes(1, 4);
};

TEST_F(TwoWorkers, AnswersComeInOrderOfRegistration) {
  const auto matches = index.Match(chain, 16, 100);
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].worker, kB);
  EXPECT_EQ(matches[1].worker, kA);
}

TEST_F(TwoWorkers, BlocksOfOneWorkerDoNotBelongToTheOtherWorker) {
  index.Apply(kA, Batch(Store(chain)));
  index.Apply(kB, Batch(Store(Hashes(1, 1))));
  EXPECT_EQ(Tokens(kA), 64);
  EXPECT_EQ(Tokens(kB), 16);
}

// Row S5 of tests/RELIABILITY.md.
TEST_F(TwoWorkers, AWorkerThatSendsTheHashesOfAnotherChangesOnlyItsOwnBlocks) {
  const auto blocks_of_b = [&] {
    std::vector<std::string> blocks;
    index.ForEachResidency(kB, [&](Tier tier, uint8_t group, const BlockHash& hash, uint32_t n) {
      blocks.push_back(std::to_string(static_cast<int>(tier)) + " " + std::to_string(group) + " " +
                       std::to_string(hash.integer()) + " " + std::to_string(n));
    });
    std::ranges::sort(blocks);
    return blocks;
  };
  index.Apply(kB, Batch(Store(chain), StoreIn("CPU", chain)));
  const auto before = blocks_of_b();
  ASSERT_EQ(before.size(), 2 * chain.size());
  const std::vector<BlockHash> backwards(chain.rbegin(), chain.rend());
  index.Apply(kA, Batch(Remove(chain)));
  index.Apply(kA, Batch(Store(backwards), Store(chain), Store(chain, /*group=*/1)));
  index.Apply(kA, Batch(Remove(chain), Remove(chain), Remove(chain, /*group=*/1)));
  index.Apply(kA, Batch(StoreIn("CPU", chain), AllBlocksCleared()));
  EXPECT_EQ(blocks_of_b(), before);
  EXPECT_EQ(Tokens(kB), 64);
}

TEST_F(TwoWorkers, RemovedWorkerIsForgottenExactly) {
  index.Apply(kA, Batch(Store(chain), StoreIn("CPU", chain)));
  index.Apply(kB, Batch(Store(chain)));
  index.RemoveWorker(kA);
  EXPECT_EQ(Tokens(kA), -1);
  EXPECT_EQ(Tokens(kB), 64);
  // A new worker may get the slot of the removed worker.
  ASSERT_TRUE(index.AddWorker(WorkerId(9), Registered({Full()})).ok());
  EXPECT_EQ(Tokens(WorkerId(9)), 0);
  EXPECT_EQ(index.counters(WorkerId(9)).residencies, 0u);
}

TEST_F(TwoWorkers, ClearWorkerForgetsAllTiersOfOneWorker) {
  index.Apply(kA, Batch(Store(chain), StoreIn("CPU", chain)));
  index.Apply(kB, Batch(Store(chain)));
  index.ClearWorker(kA);
  EXPECT_EQ(Tokens(kA), 0);
  EXPECT_EQ(Tokens(kB), 64);
  EXPECT_EQ(index.counters(kA).residencies, 0u);
  index.Apply(kA, Batch(Store(chain)));
  EXPECT_EQ(Tokens(kA), 64);
}

TEST_F(TwoWorkers, EventsOfAnUnknownWorkerAreDropped) {
  index.Apply(WorkerId(77), Batch(Store(chain)));
  EXPECT_EQ(Tokens(WorkerId(77)), -1);
  EXPECT_EQ(index.counters(WorkerId(77)).stored_blocks, 0u);
}

TEST_F(TwoWorkers, RegisteringTwiceIsRefused) {
  EXPECT_EQ(index.AddWorker(kA, Registered({Full()})).code(), StatusCode::kFailedPrecondition);
}

TEST_F(TwoWorkers, AWorkerNamedTwiceAnswersOnce) {
  const WorkerId twice[] = {kA, kA};
  EXPECT_EQ(index.Match(chain, 16, 100, twice).size(), 1u);
}

TEST(PrefixIndexWorkers, WorkersWithAnotherHashUnitAreLeftOut) {
  PrefixIndex index;
  ASSERT_TRUE(index.AddWorker(kA, Registered({Full(16)})).ok());
  ASSERT_TRUE(index.AddWorker(kB, Registered({Full(32)})).ok());
  const auto matches = index.Match(Hashes(1, 4), 32, 100);
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].worker, kB);
}

TEST(PrefixIndexWorkers, RestartForgetsLearnedGroupsAndKeepsRegisteredOnes) {
  PrefixIndex index;
  ASSERT_TRUE(index.AddWorker(kA, Registered({})).ok());
  ASSERT_TRUE(index.AddWorker(kB, Registered({Full(), Window(32)})).ok());
  for (const WorkerId worker : {kA, kB}) {
    index.Apply(worker, Batch(StoreFull(Hashes(1, 2), 0), StoreWindow(Hashes(1, 2), 1, 32)));
    index.RestartWorker(worker);
    EXPECT_EQ(index.counters(worker).residencies, 0u);
    EXPECT_EQ(index.counters(worker).stored_blocks, 4u);
  }
  EXPECT_TRUE(index.Groups(kA).empty());
  EXPECT_EQ(index.hash_block_size(kA), 0);
  EXPECT_EQ(index.Groups(kB).size(), 2u);
  // The engine of kA restarted with another model, which has one group.
  index.Apply(kA, Batch(StoreFull(Hashes(1, 2), 0)));
  const WorkerId only[] = {kA};
  EXPECT_EQ(index.Match(Hashes(1, 2), 16, 40, only)[0].gpu_tokens, 32);
}

}  // namespace
}  // namespace kvcast::testing
