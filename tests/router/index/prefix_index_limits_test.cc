// The index never predicts more than the prompt minus one token. For an invalid prompt, the answer
// is 0 tokens. For an invalid hash_block_size, the answer is empty. MatchPolicy::kFullOnly uses
// only the groups of full kinds.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <malloc.h>

#include <limits>

#include "router/rules/group_registry.h"
#include "src/base/byte_fields.h"
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

// With a sanitizer, mallinfo2 returns 0.
TEST(PrefixIndexMemory, QueriesOfUnknownWorkersKeepNoMemory) {
  const auto used = [] {
    const struct mallinfo2 memory = mallinfo2();
    return memory.uordblks + memory.hblkhd;
  };
  PrefixIndex index;
  const std::vector<BlockHash> chain = Hashes(1, 4);
  const std::vector<WorkerId> asked = {WorkerId(99)};
  EXPECT_TRUE(index.Match(chain, 16, 65, asked).empty());
  const size_t before = used();
  for (int i = 0; i < 100'000; ++i) (void)index.Match(chain, 16, 65, asked);
  EXPECT_LT(used(), before + (size_t{1} << 20));
}

TEST(GroupRegistryImage, TheHashBlockSizeMustDivideRegisteredBlocks) {
  for (const uint64_t size : {0, 1, 2, 3, 4, 8}) {
    FieldWriter to;
    to.Bool(false);  // no partial hits
    to.Int(0);       // no registered hash_block_size
    to.Int(size);
    to.Int(0);  // no learned groups
    auto registry = router::GroupRegistry::FromConfig(Registered({Full(4)})).value();
    FieldReader from(to.bytes());
    registry.Restore(from);
    EXPECT_EQ(from.ok(), size > 0 && 4 % size == 0) << size;
  }
}

TEST(PrefixIndexWorkerConfig, ASparseRuleOutOfRangeIsRefused) {
  const auto added = [](SparseRule rule) {
    PrefixIndex index;
    WorkerConfig config = Registered({Full(4)});
    config.sparse_rule = rule;
    return index.AddWorker(kWorker, config).ok();
  };
  EXPECT_TRUE(added({.alignment = 16, .retention_interval = std::nullopt}));
  EXPECT_TRUE(added({.alignment = kMaxWindow, .retention_interval = kMaxWindow}));
  EXPECT_FALSE(added({.alignment = 0, .retention_interval = std::nullopt}));
  EXPECT_FALSE(added({.alignment = kMaxWindow + 1, .retention_interval = std::nullopt}));
  EXPECT_FALSE(added({.alignment = 16, .retention_interval = -1}));
  EXPECT_FALSE(added({.alignment = 16, .retention_interval = kMaxWindow + 1}));
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
