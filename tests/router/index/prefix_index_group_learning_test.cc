// If no groups are registered, the index learns the groups from stores. It counts stores that
// contradict the learned groups.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

BlockStored StoreKind(std::string kind, std::vector<BlockHash> hashes, int64_t group) {
  BlockStored event = Store(std::move(hashes), group);
  event.kv_cache_spec_kind = std::move(kind);
  return event;
}

TEST(GroupLearning, KindWindowAndBlockSizeComeFromStores) {
  OneWorker worker;
  worker.Apply(Batch(StoreFull({}, 0), StoreWindow({}, 1, 64)));
  EXPECT_EQ(worker.index.Groups(kWorker), (std::vector<GroupSpec>{Full(), Window(64)}));
  const auto chain = Hashes(1, 8);
  worker.Apply(Batch(StoreFull(chain, 0)));
  EXPECT_EQ(worker.Match(chain, 129), 0) << "a store without hashes teaches that the group exists";
}

TEST(GroupLearning, AWorkerWithoutStoresReusesNothing) {
  OneWorker worker;
  EXPECT_EQ(worker.Match(Hashes(1, 4), 100, 16), 0);
  EXPECT_EQ(worker.Match(Hashes(1, 4), 100, 48), 0);
}

TEST(GroupLearning, AbsentKindIsTakenForFullAttentionAndCounted) {
  OneWorker worker;
  const auto chain = Hashes(1, 2);
  worker.Apply(Batch(Store(chain, std::nullopt)));
  EXPECT_EQ(worker.Match(chain, 40), 32);
  EXPECT_EQ(worker.counters().assumed_kinds, 1u);
}

TEST(GroupLearning, AbsentKindFollowsTheKindSeenBefore) {
  OneWorker worker;
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(StoreWindow({chain[1]}, 0, 17), Store({chain[3]}, 0)));
  EXPECT_EQ(worker.counters().assumed_kinds, 0u);
  EXPECT_EQ(worker.Match(chain, 65), 64);
}

TEST(GroupLearning, NamedKindReplacesAnAssumedOne) {
  OneWorker worker;
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(Store({chain[3]}, 0)));
  EXPECT_EQ(worker.Match(chain, 65), 0);
  worker.Apply(Batch(StoreWindow({chain[1]}, 0, 17)));
  EXPECT_EQ(worker.Match(chain, 65), 64);
}

TEST(GroupLearning, AnEventOfAnotherKindThanTheRegisteredOneIsBad) {
  OneWorker worker(Registered({Window(17), Full()}));
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(StoreKind("full_attention", {chain[3]}, 0),
                     StoreKind("sliding_window", {chain[3]}, 1)));
  EXPECT_EQ(worker.counters().bad_events, 2u);
  EXPECT_EQ(worker.counters().residencies, 0u);
  const auto windowed = [&chain](int64_t window) {
    BlockStored event = StoreKind("sliding_window_mla", {chain[3]}, 0);
    event.kv_cache_spec_sliding_window = window;
    return event;
  };
  worker.Apply(Batch(windowed(33)));
  EXPECT_EQ(worker.counters().bad_events, 3u) << "another window";
  worker.Apply(Batch(windowed(17), StoreKind("mla_attention", {chain[3]}, 1),
                     StoreKind("ring_attention", {chain[2]}, 1)));
  EXPECT_EQ(worker.counters().bad_events, 3u) << "full kinds have one rule";
  EXPECT_EQ(worker.counters().residencies, 3u);
  EXPECT_EQ(worker.index.Groups(kWorker), (std::vector<GroupSpec>{Window(17), Full()}));
}

TEST(GroupLearning, GroupOutOfRangeIsBad) {
  OneWorker registered(Registered({Full(), Full()}));
  registered.Apply(Batch(Store(Hashes(1, 1), 2), Remove(Hashes(1, 1), 2), Store({}, -1)));
  EXPECT_EQ(registered.counters().bad_events, 3u);
  std::vector<uint64_t> rejects(kMaxGroups + 1);
  rejects[2] = 2;
  rejects[kMaxGroups] = 1;
  EXPECT_EQ(registered.index.GroupRejects(kWorker), rejects);
  OneWorker learning;
  learning.Apply(Batch(Store(Hashes(1, 1), kMaxGroups), Store(Hashes(1, 1), -1),
                       Store(Hashes(1, 1), std::numeric_limits<int64_t>::max()),
                       Remove(Hashes(1, 1), std::numeric_limits<int64_t>::min())));
  EXPECT_EQ(learning.counters().bad_events, 4u);
  EXPECT_EQ(learning.index.GroupRejects(kWorker).at(kMaxGroups), 4u);
  EXPECT_EQ(learning.counters().residencies, 0u);
}

TEST(GroupLearning, UnknownKindIsCountedAndNotIndexed) {
  OneWorker worker;
  const auto chain = Hashes(1, 2);
  worker.Apply(Batch(StoreFull(chain, 0), StoreKind("ring_attention", chain, 1)));
  worker.Apply(Batch(Remove(chain, 1)));
  EXPECT_EQ(worker.Match(chain, 40), 32);
  EXPECT_EQ(worker.counters().unknown_kinds, 2u);
  EXPECT_EQ(worker.index.GroupRejects(kWorker), (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(worker.counters().unknown_removes, 0u);
  EXPECT_EQ(worker.counters().residencies, 2u);
}

TEST(GroupLearning, SecondKindOrWindowOfAGroupIsBadAndTeachesNothing) {
  OneWorker worker;
  worker.Apply(Batch(StoreWindow(Hashes(1, 1), 0, 64)));
  worker.Apply(Batch(StoreFull(Hashes(2, 1), 0), StoreWindow(Hashes(3, 1), 0, 128),
                     StoreKind("ring_attention", Hashes(4, 1), 0)));
  EXPECT_EQ(worker.counters().bad_events, 3u);
  EXPECT_EQ(worker.counters().residencies, 1u);
  EXPECT_EQ(worker.index.Groups(kWorker), (std::vector<GroupSpec>{Window(64)}));
}

TEST(GroupLearning, SizesOutOfRangeAreBad) {
  OneWorker worker;
  const auto hash = Hashes(1, 1);
  worker.Apply(Batch(StoreFull(hash, 0, 0), StoreFull(hash, 0, -16),
                     StoreFull(hash, 0, kMaxBlockSize + 1), StoreWindow(hash, 0, 0),
                     StoreWindow(hash, 0, -5), StoreWindow(hash, 0, kMaxWindow + 1)));
  EXPECT_EQ(worker.counters().bad_events, 6u);
  EXPECT_TRUE(worker.index.Groups(kWorker).empty());
}

TEST(GroupLearning, AWindowOfUnknownSizeNeedsEveryBlock) {
  OneWorker worker;
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(StoreKind("sliding_window", {chain[0], chain[1], chain[3]}, 0)));
  EXPECT_EQ(worker.Match(chain, 65), 32);
}

TEST(GroupLearning, AChunkOfUnknownSizeNeedsEveryBlock) {
  OneWorker worker;
  const auto chain = Hashes(1, 4);
  worker.Apply(Batch(StoreKind("chunked_local_attention", {chain[0], chain[3]}, 0)));
  EXPECT_EQ(worker.Match(chain, 65), 16);
}

TEST(GroupLearning, CoprimeBlockSizesGiveNoHitAndNoOverflow) {
  OneWorker worker;
  int64_t group = 0;
  for (const int64_t size : {1048573, 1048571, 1048559, 1048549, 1048517, 1048507}) {
    worker.Apply(Batch(StoreFull(Hashes(1, 4), group++, size)));
  }
  EXPECT_EQ(worker.index.hash_block_size(kWorker), 1);
  EXPECT_EQ(worker.Match(Hashes(1, 4), 5, 1), 0);
}

TEST(GroupRegistration, ConfigurationsThatDoNotFitAreRefused) {
  PrefixIndex index;
  const auto refused = [&index](const WorkerConfig& config) {
    return index.AddWorker(kWorker, config).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(Registered({Full(0)})));
  EXPECT_TRUE(refused(Registered({Full(kMaxBlockSize + 1)})));
  EXPECT_TRUE(refused(Registered({Full(24)}, 16)));
  EXPECT_TRUE(refused(Registered({Window(0)})));
  EXPECT_TRUE(refused(Registered({Chunked(0)})));
  EXPECT_TRUE(refused(Registered({Chunked(24, 16)})));
  EXPECT_TRUE(refused(Registered({Full()}, -1)));
  EXPECT_TRUE(refused(Registered(std::vector<GroupSpec>(kMaxGroups + 1))));
  WorkerConfig misaligned = Registered({Full(16)});
  misaligned.alignment = 24;
  EXPECT_TRUE(refused(misaligned));
  WorkerConfig negative = Registered({});
  negative.chunk_size = -1;
  EXPECT_TRUE(refused(negative));
  EXPECT_TRUE(index.AddWorker(kWorker, Registered({Full()})).ok());
}

}  // namespace
}  // namespace kvcast::testing
