// The index keeps groups apart. A prefix is reusable only if every group of the worker can serve
// the prefix.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

TEST(PrefixIndexGroups, EveryGroupMustServeThePrefix) {
  OneWorker worker(Registered({Full(), Window(32)}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Store(chain, 0)));
  EXPECT_EQ(worker.Match(chain, 65), 0);
  worker.Apply(Batch(Store(chain, 1)));
  EXPECT_EQ(worker.Match(chain, 65), 64);
}

TEST(PrefixIndexGroups, TheLowestOfTheGroupsOwnHitsIsNotTheAnswer) {
  // The window group holds the blocks that end at 32 and 128 tokens. Full attention reaches 96
  // tokens.
  OneWorker worker(Registered({Full(), Window(17)}));
  const auto chain = Hashes(1, 8);
  worker.Apply(Batch(Store(Hashes(1, 6), 0), Store({chain[1], chain[7]}, 1)));
  const auto matches = worker.index.Match(chain, 16, 129);
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].per_group_tokens, (std::vector<int64_t>{96, 128}));
  EXPECT_EQ(matches[0].gpu_tokens, 32);
}

TEST(PrefixIndexGroups, AWindowGroupMayComeFirst) {
  OneWorker worker(Registered({Window(32), Full()}));
  const auto chain = Hashes(1, 6);
  worker.Apply(Batch(Store(Hashes(3, 2), 0), Store(chain, 1)));
  EXPECT_EQ(worker.Match(chain, 97), 64);
  worker.Apply(Batch(Remove(Hashes(2, 1), 1)));
  EXPECT_EQ(worker.Match(chain, 97), 0);
}

TEST(PrefixIndexGroups, AModelWithoutFullAttentionIsServedByItsWindows) {
  OneWorker worker(Registered({Window(32), Window(64)}));
  const auto chain = Hashes(1, 8);
  worker.Apply(Batch(Store(Hashes(5, 4), 0), Store(Hashes(5, 4), 1)));
  EXPECT_EQ(worker.Match(chain, 129), 128);
  worker.Apply(Batch(Remove(Hashes(5, 1), 1)));
  EXPECT_EQ(worker.Match(chain, 129), 0);
}

TEST(PrefixIndexGroups, AStoreInAnotherGroupBetweenRemovalsOfNeighboursChangesNothing) {
  OneWorker worker(Registered({Full(), Full()}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Store(chain, 0)));
  worker.Apply(Batch(Remove({chain[3]}, 0), Store({chain[0], chain[1]}, 1), Remove({chain[2]}, 0),
                     Remove({chain[1]}, 1)));
  std::set<std::pair<int, uint64_t>> held;
  worker.index.ForEachResidency(kWorker, [&](Tier, uint8_t group, const BlockHash& hash, uint32_t) {
    held.emplace(group, hash.integer());
  });
  EXPECT_EQ(held, (std::set<std::pair<int, uint64_t>>{{0, 1}, {0, 2}, {1, 1}}));
}

TEST(PrefixIndexGroups, RemoveInOneGroupLeavesTheOthers) {
  OneWorker worker(Registered({Full(), Window(17)}));
  const auto chain = Hashes(1, 2);
  worker.Apply(Batch(Store(chain, 0), Store(chain, 1), Remove(Hashes(2, 1), 1)));
  const auto matches = worker.index.Match(chain, 16, 40);
  EXPECT_EQ(matches[0].per_group_tokens, (std::vector<int64_t>{32, 16}));
  EXPECT_EQ(matches[0].gpu_tokens, 16);
}

TEST(PrefixIndexGroups, AbsentGroupIsGroupZero) {
  OneWorker worker(Registered({Full()}));
  const auto chain = Hashes(1, 2);
  worker.Apply(Batch(Store(chain, std::nullopt)));
  EXPECT_EQ(worker.Match(chain, 40), 32);
  worker.Apply(Batch(Remove(Hashes(2, 1), 0)));
  EXPECT_EQ(worker.Match(chain, 40), 16);
}

TEST(PrefixIndexGroups, EncoderOnlyGroupTakesNoPart) {
  GroupSpec encoder;
  encoder.kind = SpecKind::kEncoderOnlyAttention;
  OneWorker worker(Registered({Full(), encoder}));
  const auto chain = Hashes(1, 2);
  worker.Apply(Batch(Store(chain, 0), Store(chain, 1)));
  EXPECT_EQ(worker.Match(chain, 40), 32);
  EXPECT_EQ(worker.counters().unknown_kinds, 1u);
  EXPECT_EQ(worker.counters().residencies, 2u);
}

// The scheduler aligns hits to the blocks of all groups.
TEST(PrefixIndexGroups, BlocksOfGroupsThatTakeNoPartAlignHits) {
  OneWorker worker(Registered({Full(), {.kind = SpecKind::kCircularBuffer, .block_size = 24}}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Store(chain, 0)));
  EXPECT_EQ(worker.index.hash_block_size(kWorker), 16);
  EXPECT_EQ(worker.Match(chain, 65), 48);
}

TEST(PrefixIndexGroups, WorkerWithoutCacheableGroupsPromisesNothing) {
  GroupSpec encoder;
  encoder.kind = SpecKind::kEncoderOnlyAttention;
  OneWorker worker(Registered({encoder}));
  EXPECT_EQ(worker.Match(Hashes(1, 4), 65), 0);
}

TEST(PrefixIndexGroups, SparseStoresKeepTheirPlaces) {
  // A window group announces two of eight blocks, with the tokens of all eight blocks.
  OneWorker worker(Registered({Full(), Window(32)}));
  const auto chain = Hashes(1, 8);
  BlockStored sparse = Store({chain[4], chain[5]}, 1);
  sparse.token_ids.emplace(128, 0);
  worker.Apply(Batch(Store(chain, 0), sparse));
  EXPECT_EQ(worker.Match(chain, 129), 96);
}

TEST(PrefixIndexGroups, StoreWithoutHashesChangesNoResidency) {
  OneWorker worker(Registered({Full()}));
  worker.Apply(Batch(Store({}, 0)));
  EXPECT_EQ(worker.counters().residencies, 0u);
  EXPECT_EQ(worker.counters().stored_blocks, 0u);
  EXPECT_EQ(worker.counters().bad_events, 0u);
}

}  // namespace
}  // namespace kvcast::testing
