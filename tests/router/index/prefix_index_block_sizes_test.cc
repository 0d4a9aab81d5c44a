// Groups of different block sizes share one hash chain with one hash per hash unit. Partial entries
// end inside a block.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

TEST(PrefixIndexBlockSizes, ABlockHasTheHashOfItsLastUnit) {
  OneWorker worker(Registered({Full(32), Window(8, 8)}));
  ASSERT_EQ(worker.index.hash_block_size(kWorker), 8);
  const auto chain = Hashes(1, 12);
  worker.Apply(Batch(StoreFull({chain[3], chain[7], chain[11]}, 0, 32)));
  worker.Apply(Batch(StoreWindow({chain[7], chain[11]}, 1, 8, 8)));
  EXPECT_EQ(worker.Match(chain, 97, 8), 96);
  EXPECT_EQ(worker.Match(chain, 96, 8), 64);
  worker.Apply(Batch(Remove({chain[7]}, 1)));
  EXPECT_EQ(worker.Match(chain, 96, 8), 0);
}

TEST(PrefixIndexBlockSizes, HitsAreMultiplesOfTheLeastCommonMultiple) {
  OneWorker worker(Registered({Full(32), Full(8)}));
  const auto chain = Hashes(1, 8);
  worker.Apply(Batch(StoreFull({chain[3]}, 0, 32), StoreFull(chain, 1, 8)));
  EXPECT_EQ(worker.Match(chain, 65, 8), 32);
}

TEST(PrefixIndexBlockSizes, ALearnedHashBlockSizeIsUsed) {
  OneWorker worker;
  worker.Apply(Batch(StoreFull(Hashes(1, 4), 0, 32)));
  EXPECT_EQ(worker.index.hash_block_size(kWorker), 32);
  EXPECT_TRUE(worker.index.LearnHashBlockSize(kWorker, 8).ok());
  EXPECT_EQ(worker.index.hash_block_size(kWorker), 8);
  std::vector<BlockHash> chain = Hashes(100, 8);
  chain[3] = Hashes(1, 1)[0];
  chain[7] = Hashes(2, 1)[0];
  EXPECT_EQ(worker.Match(chain, 65, 8), 64);
  EXPECT_FALSE(worker.index.LearnHashBlockSize(kWorker, 24).ok());
  EXPECT_FALSE(worker.index.LearnHashBlockSize(kWorker, 0).ok());
  EXPECT_FALSE(worker.index.LearnHashBlockSize(WorkerId(99), 8).ok());
  EXPECT_EQ(worker.index.hash_block_size(kWorker), 8);
  worker.index.RestartWorker(kWorker);
  EXPECT_EQ(worker.index.hash_block_size(kWorker), 0);
}

TEST(PrefixIndexBlockSizes, ARegisteredHashBlockSizeIsKept) {
  OneWorker worker(Registered({Full(32)}, 16));
  EXPECT_TRUE(worker.index.LearnHashBlockSize(kWorker, 16).ok());
  EXPECT_FALSE(worker.index.LearnHashBlockSize(kWorker, 32).ok());
  EXPECT_EQ(worker.index.hash_block_size(kWorker), 16);
}

TEST(PrefixIndexBlockSizes, RegisteredAlignmentIsKept) {
  WorkerConfig config = Registered({Full(16)});
  config.alignment = 64;
  OneWorker worker(config);
  const auto chain = Hashes(1, 7);
  worker.Apply(Batch(Store(chain)));
  EXPECT_EQ(worker.Match(chain, 113), 64);
}

TEST(PrefixIndexBlockSizes, PartialEntriesServeBoundariesInsideABlock) {
  OneWorker worker(Registered({Full(64), Mamba(64)}, 16));
  const auto chain = Hashes(1, 8);
  for (const int64_t group : {0, 1}) {
    BlockStored whole = Store({chain[3]}, group);
    whole.block_size = 64;
    worker.Apply(Batch(whole, Store({chain[5]}, group)));
  }
  EXPECT_EQ(worker.counters().bad_events, 0u);
  EXPECT_EQ(worker.Match(chain, 129), 96);
  EXPECT_EQ(worker.Match(chain, 96), 64);
}

TEST(PrefixIndexBlockSizes, PartialEntriesCountOnlyWherePartialHitsAreOn) {
  // Full attention stores partial entries in any model. Without Mamba no hit ends inside a block.
  OneWorker worker(Registered({Full(32), Window(8, 8)}));
  const auto chain = Hashes(1, 8);
  worker.Apply(Batch(StoreFull({chain[3]}, 0, 32), StoreFull({chain[5]}, 0, 8)));
  worker.Apply(Batch(StoreWindow(chain, 1, 8, 8)));
  EXPECT_EQ(worker.Match(chain, 65, 8), 32);
}

TEST(PrefixIndexBlockSizes, BlockSizeThatDoesNotDivideTheRegisteredOneIsBad) {
  OneWorker worker(Registered({Full(32)}, 16));
  for (const int64_t size : {24, 48, 64, 8, 0, -16}) {
    worker.Apply(Batch(StoreFull(Hashes(1, 1), 0, size)));
  }
  EXPECT_EQ(worker.counters().bad_events, 6u);
  EXPECT_EQ(worker.counters().residencies, 0u);
}

TEST(PrefixIndexBlockSizes, LearnedUnitIsTheGreatestCommonDivisor) {
  OneWorker worker;
  worker.Apply(Batch(StoreFull(Hashes(1, 1), 0, 64)));
  EXPECT_EQ(worker.index.hash_block_size(kWorker), 64);
  worker.Apply(Batch(StoreWindow(Hashes(1, 1), 1, 24, 8)));
  EXPECT_EQ(worker.index.hash_block_size(kWorker), 8);
}

}  // namespace
}  // namespace kvcast::testing
