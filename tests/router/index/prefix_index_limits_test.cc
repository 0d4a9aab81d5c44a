// The index never predicts more than the prompt minus one token. For an invalid prompt, the answer
// is 0 tokens. For an invalid hash_block_size, the answer is empty. MatchPolicy::kFullOnly uses
// only the groups of full kinds.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

struct Limits : ::testing::Test {
  Limits() { worker.Apply(Batch(Store(chain))); }
  OneWorker worker{Registered({Full()})};
  std::vector<BlockHash> chain = Hashes(1, 4);
};

TEST_F(Limits, TheLastTokenIsAlwaysComputed) {
  EXPECT_EQ(worker.Match(chain, 65), 64);
  EXPECT_EQ(worker.Match(chain, 64), 48);
  EXPECT_EQ(worker.Match(chain, 49), 48);
  EXPECT_EQ(worker.Match(chain, 17), 16);
  EXPECT_EQ(worker.Match(chain, 16), 0);
}

TEST_F(Limits, EmptyAndNegativePromptsReuseNothing) {
  EXPECT_EQ(worker.Match({}, 100), 0);
  EXPECT_EQ(worker.Match(chain, 0), 0);
  EXPECT_EQ(worker.Match(chain, -7), 0);
}

TEST_F(Limits, APromptLongerThanItsChainReusesTheTokensOfTheChain) {
  EXPECT_EQ(worker.Match(chain, std::numeric_limits<int64_t>::max()), 64);
}

TEST_F(Limits, HashBlockSizesOutOfRangeMatchNoWorker) {
  for (const int64_t hash_block_size : {int64_t{0}, int64_t{-16}, kMaxBlockSize + 1}) {
    EXPECT_TRUE(worker.index.Match(chain, hash_block_size, 100).empty()) << hash_block_size;
  }
}

TEST_F(Limits, AHoleEndsTheFullAttentionPrefix) {
  worker.Apply(Batch(Remove(Hashes(3, 1))));
  EXPECT_EQ(worker.Match(chain, 65), 32);
}

TEST(PrefixIndexFullOnly, IgnoresWindowsEagleAndPartialEntries) {
  GroupSpec full = Full();
  full.eagle = true;
  OneWorker worker(Registered({Window(32), full}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Store(chain, 1)));
  EXPECT_EQ(worker.Match(chain, 65), 0);
  EXPECT_EQ(worker.Match(chain, 65, 16, MatchPolicy::kFullOnly), 64);
  EXPECT_EQ(worker.Match(chain, 64, 16, MatchPolicy::kFullOnly), 48);
}

TEST(PrefixIndexFullOnly, NeedsAllFullGroups) {
  OneWorker worker(Registered({Full(), Full()}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Store(chain, 0), Store(Hashes(1, 2), 1)));
  EXPECT_EQ(worker.Match(chain, 65, 16, MatchPolicy::kFullOnly), 32);
}

TEST(PrefixIndexFullOnly, SeesNothingInAModelWithoutFullAttention) {
  OneWorker worker(Registered({Window(32)}));
  worker.Apply(Batch(Store(Hashes(1, 4))));
  EXPECT_EQ(worker.Match(Hashes(1, 4), 65), 64);
  EXPECT_EQ(worker.Match(Hashes(1, 4), 65, 16, MatchPolicy::kFullOnly), 0);
}

}  // namespace
}  // namespace kvcast::testing
