// The index keeps tiers apart. A block that leaves one tier stays in the other tiers. Only GPU
// blocks count for the GPU prefix.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "router/rules/group_registry.h"
#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

TEST(PrefixIndexTiers, CpuAndStorageBlocksAreNoGpuPrefix) {
  OneWorker worker(Registered({Full()}));
  const auto chain = Hashes(1, 2);
  worker.Apply(Batch(StoreIn("CPU", chain), StoreIn("STORAGE", chain)));
  EXPECT_EQ(worker.Match(chain, 40), 0);
  EXPECT_EQ(worker.counters().residencies, 4u);
}

TEST(PrefixIndexTiers, RemoveTouchesItsOwnTierOnly) {
  OneWorker worker(Registered({Full()}));
  const auto chain = Hashes(1, 2);
  worker.Apply(Batch(Store(chain), StoreIn("CPU", chain), RemoveFrom("CPU", chain)));
  EXPECT_EQ(worker.Match(chain, 40), 32);
  worker.Apply(Batch(RemoveFrom("STORAGE", chain)));
  EXPECT_EQ(worker.Match(chain, 40), 32);
  EXPECT_EQ(worker.counters().unknown_removes, 2u);
}

TEST(PrefixIndexTiers, ClearEmptiesTheGpuAlone) {
  OneWorker worker(Registered({Full()}));
  const auto chain = Hashes(1, 2);
  worker.Apply(Batch(Store(chain), StoreIn("CPU", chain), StoreIn("DISK", chain)));
  worker.Apply(Batch(AllBlocksCleared{}));
  EXPECT_EQ(worker.Match(chain, 40), 0);
  EXPECT_EQ(worker.counters().residencies, 4u);
  EXPECT_EQ(worker.counters().clears, 1u);
}

TEST(PrefixIndexTiers, RemoveAfterAClearInTheSameBatchIsUnknown) {
  OneWorker worker(Registered({Full()}));
  const auto chain = Hashes(1, 3);
  worker.Apply(Batch(Store(chain)));
  worker.Apply(Batch(Remove(Hashes(1, 1)), AllBlocksCleared{}, Remove(Hashes(2, 1))));
  EXPECT_EQ(worker.counters().residencies, 0u);
  EXPECT_EQ(worker.counters().unknown_removes, 1u);
}

TEST(PrefixIndexTiers, PlaceholderStoresOfConnectorsTeachNothing) {
  OneWorker worker;
  BlockStored placeholder = StoreIn("CPU", Hashes(1, 1));
  placeholder.block_size = 0;
  worker.Apply(Batch(placeholder));
  EXPECT_EQ(worker.counters().residencies, 1u);
  EXPECT_EQ(worker.counters().bad_events, 0u);
  EXPECT_TRUE(worker.index.Groups(kWorker).empty());
}

TEST(PrefixIndexTiers, MediumNamesMapToTiers) {
  EXPECT_EQ(TierOf(std::nullopt), Tier::kGpu);
  EXPECT_EQ(TierOf("GPU"), Tier::kGpu);
  EXPECT_EQ(TierOf("CPU"), Tier::kCpu);
  EXPECT_EQ(TierOf("CPU_PINNED"), Tier::kCpu);
  EXPECT_EQ(TierOf("cpu"), Tier::kCpu);
  EXPECT_EQ(TierOf("STORAGE"), Tier::kStorage);
  EXPECT_EQ(TierOf("DISK"), Tier::kStorage);
  EXPECT_EQ(TierOf("EXTERNAL"), Tier::kStorage);
  EXPECT_EQ(TierOf("GPUDIRECT"), Tier::kStorage);
  EXPECT_EQ(TierOf(""), Tier::kStorage);
}

}  // namespace
}  // namespace kvcast::testing
