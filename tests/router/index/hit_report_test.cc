// A store that only reports a hit adds no copy. If a store may be a report or a copy, the answer is
// not certain.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

// Returns a store from the root. It names every block of its token span.
BlockStored Root(std::vector<BlockHash> hashes, int64_t group = 0) {
  BlockStored event = Store(std::move(hashes), group);
  event.token_ids.emplace(event.block_hashes.size() * 16, 1);
  return event;
}

// Returns the configuration of a worker that is registered as a sender of hit reports.
WorkerConfig Reporting(std::vector<GroupSpec> groups) {
  WorkerConfig config = Registered(std::move(groups));
  config.hit_reports = HitReports::kExpected;
  return config;
}

bool Certain(const OneWorker& worker) {
  const auto matches = worker.index.Match(Hashes(1, 1), 16, 20);
  return !matches.empty() && matches[0].certain;
}

TEST(HitReport, IsNoSecondCopy) {
  OneWorker worker(Reporting({Full()}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Root(chain)));
  EXPECT_TRUE(Certain(worker));
  worker.Apply(Batch(Root(chain), Root(Hashes(1, 2))));
  EXPECT_TRUE(Certain(worker)) << "the engine is registered as a sender of hit reports";
  EXPECT_EQ(worker.counters().reannounced_blocks, 6u);
  EXPECT_EQ(worker.counters().stored_blocks, 4u);
  worker.Apply(Batch(Remove(chain)));
  EXPECT_EQ(worker.Match(chain, 70), 0);
  EXPECT_EQ(worker.counters().residencies, 0u);
}

// Two requests may load the same prompt from another tier. Each request then stores the prompt.
TEST(HitReport, FromAWorkerThatIsNotKnownToReportCountsAsACopy) {
  OneWorker worker(Registered({Full()}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Root(chain)));
  EXPECT_TRUE(Certain(worker));
  worker.Apply(Batch(Root(chain)));
  EXPECT_FALSE(Certain(worker)) << "the second store may have been a report";
  EXPECT_EQ(worker.counters().reannounced_blocks, 0u);
  worker.Apply(Batch(Remove(chain)));
  EXPECT_EQ(worker.Match(chain, 70), 64) << "one copy of each block is left";
  worker.Apply(Batch(Remove(chain)));
  EXPECT_EQ(worker.Match(chain, 70), 0);
}

// The lookup drops a block for the draft head, so the engine could serve no shorter prefix. It
// computes such a prompt again, and stores both blocks again.
TEST(HitReport, OfAPromptWithoutAShorterHitMayBeACopy) {
  const auto chain = Hashes(1, 2);
  for (const bool eagle : {false, true}) {
    WorkerConfig config = Registered({});
    config.eagle = eagle;
    OneWorker worker(config);
    worker.Apply(Batch(Root(chain)));
    worker.Apply(Batch(Root(chain)));
    EXPECT_EQ(Certain(worker), eagle);
  }
}

// Without tokens, it is not known whether the store names every block of its span. The index then
// cannot distinguish a report from a copy.
TEST(HitReport, WithoutTokensARepeatedStoreAtTheRootIsInDoubt) {
  const auto chain = Hashes(1, 4);
  for (const bool nil : {true, false}) {
    OneWorker worker(Registered({Full()}));
    BlockStored store = Root(chain);
    nil ? store.token_ids.reset() : store.token_ids->clear();
    worker.Apply(Batch(store, store));
    EXPECT_TRUE(Certain(worker)) << "the engine holds the blocks";
    worker.Apply(Batch(Remove(chain)));
    EXPECT_FALSE(Certain(worker)) << "the second store may have been a report";
    worker.Apply(Batch(Remove(chain)));
    EXPECT_TRUE(Certain(worker)) << "no copy is counted any more";
  }
}

TEST(HitReport, WithoutTokensAStoreAfterAnotherBlockIsACopy) {
  OneWorker worker(Registered({Full()}));
  BlockStored store = Root(Hashes(2, 3));
  store.token_ids->clear();
  store.parent_block_hash = Hashes(1, 1)[0];
  worker.Apply(Batch(store, store));
  EXPECT_TRUE(Certain(worker)) << "a report starts at the root";
}

TEST(HitReport, DoesNotBringBackWindowBlocksThatAreGone) {
  OneWorker worker(Reporting({Full(), Window(32)}));
  const auto chain = Hashes(1, 6);
  worker.Apply(Batch(Root(chain, 0), Root(chain, 1), Remove(Hashes(1, 2), 1)));
  worker.Apply(Batch(Root(chain, 0), Root(chain, 1)));
  EXPECT_EQ(worker.counters().reannounced_blocks, 12u);
  EXPECT_EQ(worker.Match(chain, 100), 96);
  EXPECT_EQ(worker.Match(chain, 34), 0);
}

TEST(HitReport, APrefixComputedAgainIsACopy) {
  OneWorker worker(Reporting({Full(), Window(32)}));
  const auto chain = Hashes(1, 6);
  // The worker holds all full-attention blocks, but no window block, so the request hits no tokens.
  worker.Apply(Batch(Root(chain, 0), Root(chain, 1), Remove(chain, 1)));
  worker.Apply(Batch(Root(chain, 0), Root(chain, 1)));
  EXPECT_TRUE(Certain(worker));
  EXPECT_EQ(worker.counters().reannounced_blocks, 0u);
  worker.Apply(Batch(Remove(chain, 0)));
  EXPECT_EQ(worker.Match(chain, 100), 96);
}

TEST(HitReport, APrefixComputedAgainIsACopyAlsoWhereReportsAreSent) {
  OneWorker worker(Reporting({Full(), Window(32)}));
  const auto chain = Hashes(1, 6);
  worker.Apply(Batch(Root(chain, 0), Root(chain, 1), Root(chain, 0), Root(chain, 1)));
  EXPECT_EQ(worker.counters().reannounced_blocks, 12u);
  worker.Apply(Batch(Remove(chain, 1), Root(chain, 0), Root(chain, 1)));
  EXPECT_EQ(worker.counters().reannounced_blocks, 12u);
  worker.Apply(Batch(Remove(chain, 0)));
  EXPECT_EQ(worker.Match(chain, 100), 96);
}

TEST(HitReport, AStoreThatNamesAnAbsentBlockIsACopy) {
  OneWorker worker(Reporting({Full()}));
  worker.Apply(Batch(Root(Hashes(1, 3)), Root(Hashes(1, 4))));
  EXPECT_TRUE(Certain(worker));
  EXPECT_EQ(worker.counters().stored_blocks, 7u);
}

// The engine always computes the last token of a prompt. It therefore stores a prompt of one block
// again. The index reads this store as a report.
TEST(HitReport, ASecondStoreOfOneBlockIsReadAsAReport) {
  OneWorker worker(Reporting({Full()}));
  worker.Apply(Batch(Root(Hashes(1, 1)), Root(Hashes(1, 1))));
  EXPECT_TRUE(Certain(worker));
  EXPECT_EQ(worker.counters().stored_blocks, 1u);
  worker.Apply(Batch(Root(Hashes(10, 3)), Root(Hashes(10, 3)), Root(Hashes(10, 1))));
  EXPECT_EQ(worker.counters().reannounced_blocks, 5u);
  // The second store of block 1 was in fact a copy, so the engine removes two copies.
  worker.Apply(Batch(Remove(Hashes(1, 1)), Remove(Hashes(1, 1))));
  EXPECT_TRUE(Certain(worker)) << "the store may have been a copy";
}

// The engine computes the last 64 tokens of a hit again. It reports a hit of at most 64 tokens, and
// then computes and stores all blocks of this hit. The index leaves the report out.
TEST(HitReport, AReportNotLongerThanTheReplayedTokensIsLeftOut) {
  WorkerConfig config = Reporting({Full()});
  config.replay_tokens = 64;
  OneWorker worker(config);
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Root(chain), Root(chain)));
  EXPECT_EQ(worker.counters().reannounced_blocks, 4u);
  worker.Apply(Batch(Remove(chain)));
  EXPECT_EQ(worker.counters().residencies, 0u);
}

TEST(HitReport, NeedsAStoreOfEveryGroup) {
  OneWorker worker(Reporting({Full(), Window(32)}));
  const auto chain = Hashes(1, 6);
  worker.Apply(Batch(Root(chain, 0), Root(chain, 1)));
  worker.Apply(Batch(Root(chain, 1)));
  worker.Apply(Batch(Root(chain, 0), Root(Hashes(1, 5), 1)));
  EXPECT_TRUE(Certain(worker));
  EXPECT_EQ(worker.counters().reannounced_blocks, 0u);
}

TEST(HitReport, StartsAtTheRootOnTheGpu) {
  OneWorker worker(Reporting({Full()}));
  const auto chain = Hashes(1, 4);
  BlockStored child = Root(chain);
  child.parent_block_hash = Hashes(99, 1)[0];
  BlockStored cpu = Root(chain);
  cpu.medium = kMediumCpu;
  BlockStored sparse = Root(chain);
  sparse.token_ids->resize(100);
  worker.Apply(Batch(Root(chain), child, child, cpu, cpu, sparse));
  EXPECT_TRUE(Certain(worker));
  EXPECT_EQ(worker.counters().reannounced_blocks, 0u);
  EXPECT_EQ(worker.counters().stored_blocks, 24u);
}

// The index left stores out as reports. A remove of a block that is not held shows that these
// stores were copies.
TEST(HitReport, IsContradictedByARemoveOfAnAbsentBlock) {
  OneWorker worker(Reporting({Full()}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Root(chain), Root(chain), Remove(chain), Remove(Hashes(1, 1))));
  EXPECT_EQ(worker.counters().unknown_removes, 1u);
  worker.Apply(Batch(Root(chain), Root(chain), Remove(chain)));
  EXPECT_EQ(worker.Match(chain, 70), 64);
  EXPECT_FALSE(Certain(worker));
}

// A hit report names only blocks on the GPU. So a remove on another tier contradicts no report.
TEST(HitReport, ARemoveOnAnotherTierContradictsNoReport) {
  OneWorker worker(Reporting({Full()}));
  const auto chain = Hashes(1, 4);
  BlockRemoved unknown = Remove(Hashes(1, 1));
  unknown.medium = kMediumCpu;
  worker.Apply(Batch(Root(chain), Root(chain), unknown));
  EXPECT_EQ(worker.counters().unknown_removes, 1u);
  EXPECT_TRUE(Certain(worker));
}

TEST(HitReport, OfOneBlockMayHaveBeenACopy) {
  OneWorker worker(Reporting({Full()}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Root(chain), Root(chain), Root(Hashes(1, 1))));
  worker.Apply(Batch(Remove(chain), Remove(Hashes(1, 1))));
  // The index left out the repeated store of block 1. This store may have been a copy, and a copy
  // explains the second remove. The index therefore still reads repeated stores as reports.
  worker.Apply(Batch(Root(chain), Root(chain)));
  EXPECT_EQ(worker.counters().reannounced_blocks, 9u);
}

TEST(HitReport, AnEmptyCacheIsCertainAgain) {
  OneWorker worker(Registered({Full()}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Root(chain), Root(chain)));
  EXPECT_FALSE(Certain(worker));
  worker.Apply(Batch(AllBlocksCleared{}));
  EXPECT_TRUE(Certain(worker));
  worker.Apply(Batch(Root(chain), Root(chain), Remove(chain)));
  EXPECT_FALSE(Certain(worker));
  worker.index.ClearWorker(kWorker);
  EXPECT_TRUE(Certain(worker));
}

// The publisher counts reports as copies. After a store, its report and a remove, the publisher's
// record has one copy of a block that the engine does not hold.
TEST(HitReport, BlocksOfASnapshotMayBeReports) {
  for (const HitReports reports :
       {HitReports::kUnknown, HitReports::kExpected, HitReports::kNever}) {
    WorkerConfig config = Registered({Full()});
    config.hit_reports = reports;
    OneWorker worker(config);
    const auto join = [&worker](const EventBatch& part) {
      worker.index.BeginHidden(kWorker);
      worker.index.ApplyHidden(kWorker, part);
      worker.index.SwapHidden(kWorker);
    };
    join({});
    EXPECT_TRUE(Certain(worker)) << "the engine holds no block";
    join(Batch(Store(Hashes(1, 2))));
    EXPECT_EQ(Certain(worker), reports == HitReports::kNever);
    worker.Apply(Batch(AllBlocksCleared()));
    EXPECT_TRUE(Certain(worker)) << "the cache is empty";
  }
}

TEST(HitReport, OfAnEagleGroupLeavesOutTheDroppedBlock) {
  GroupSpec full = Full();
  full.eagle = true;
  OneWorker worker(Reporting({full}));
  worker.Apply(Batch(Root(Hashes(1, 4)), Root(Hashes(1, 3))));
  EXPECT_EQ(worker.counters().reannounced_blocks, 3u);
}

// The index compares all stores of a possible report again at each further store. If the
// comparisons cost too much, the index stops them, and the answers are not certain.
TEST(HitReport, ReadingsCostABoundedNumberOfComparisons) {
  constexpr int64_t kGroups = 64;
  constexpr int64_t kStoredBlocks = 16;
  OneWorker worker(Reporting(std::vector<GroupSpec>(kGroups, Full())));
  worker.Apply(Batch(Root(Hashes(1, kStoredBlocks))));
  uint64_t next = 1'000;
  // Group 0 repeats its blocks. The last block of every other group is new.
  const auto pass = [&] {
    EventBatch batch;
    for (int64_t group = 0; group < kGroups; ++group) {
      auto chain = Hashes(1, kStoredBlocks);
      if (group > 0) chain.back() = BlockHash::FromUnsigned(next++);
      batch.events.emplace_back(Root(std::move(chain), group));
    }
    return batch;
  };
  for (int i = 0; i < 20; ++i) worker.Apply(pass());
  EXPECT_TRUE(Certain(worker)) << "each pass is compared once";
  EventBatch all;
  for (int i = 0; i < 20; ++i) {
    for (Event& event : pass().events) all.events.push_back(std::move(event));
  }
  worker.Apply(all);
  EXPECT_FALSE(Certain(worker));
}

TEST(HitReport, AClearDoesNotRenewTheReserveForComparisons) {
  constexpr int64_t kGroups = 64;
  constexpr int64_t kStoredBlocks = 16;
  uint64_t next = 1'000;
  // A clear, and then as many passes as one reserve allows.
  const auto round = [&next](int passes) {
    EventBatch batch;
    batch.events.emplace_back(AllBlocksCleared{});
    batch.events.emplace_back(Root(Hashes(1, kStoredBlocks)));
    for (int64_t i = 0; i < passes * kGroups; ++i) {
      auto chain = Hashes(1, kStoredBlocks);
      if (i % kGroups > 0) chain.back() = BlockHash::FromUnsigned(next++);
      batch.events.emplace_back(Root(std::move(chain), i % kGroups));
    }
    return batch;
  };
  const auto certain_after = [&round](int passes, int rounds) {
    OneWorker worker(Reporting(std::vector<GroupSpec>(kGroups, Full())));
    for (int i = 0; i < rounds; ++i) worker.Apply(round(passes));
    return Certain(worker);
  };
  int passes = 1;
  while (passes < 100 && certain_after(passes + 1, 1)) ++passes;
  ASSERT_TRUE(certain_after(passes, 1)) << passes;
  EXPECT_FALSE(certain_after(passes, 20)) << passes;
}

}  // namespace
}  // namespace kvcast::testing
