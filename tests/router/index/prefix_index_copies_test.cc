// The index counts copies. An engine may hold several physical blocks with one hash, and removes
// these blocks one by one.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

TEST(PrefixIndexCopies, BlockStaysUntilItsLastCopyIsRemoved) {
  OneWorker worker(Registered({Full()}));
  const auto chain = Hashes(100, 2);
  worker.Apply(Batch(Store(chain), Store(chain), Store(chain)));
  worker.Apply(Batch(Remove(chain)));
  EXPECT_EQ(worker.Match(chain, 40), 32);
  worker.Apply(Batch(Remove(chain)));
  EXPECT_EQ(worker.Match(chain, 40), 32);
  worker.Apply(Batch(Remove(chain)));
  EXPECT_EQ(worker.Match(chain, 40), 0);
}

TEST(PrefixIndexCopies, TheSameHashTwiceInOneStoreIsTwoCopies) {
  OneWorker worker(Registered({Full()}));
  const auto hash = Hashes(5, 1);
  worker.Apply(Batch(Store({hash[0], hash[0]})));
  worker.Apply(Batch(Remove(hash)));
  EXPECT_EQ(worker.Match(hash, 17), 16);
  worker.Apply(Batch(Remove({hash[0]})));
  EXPECT_EQ(worker.Match(hash, 17), 0);
}

TEST(PrefixIndexCopies, ResidenciesCountHoldersNotCopies) {
  OneWorker worker(Registered({Full()}));
  worker.Apply(Batch(Store(Hashes(1, 3)), Store(Hashes(1, 3))));
  EXPECT_EQ(worker.counters().residencies, 3u);
  EXPECT_EQ(worker.counters().stored_blocks, 6u);
  worker.Apply(Batch(Remove(Hashes(1, 3))));
  EXPECT_EQ(worker.counters().residencies, 3u);
  EXPECT_EQ(worker.counters().removed_blocks, 3u);
}

TEST(PrefixIndexCopies, RemoveOfABlockNotHeldIsCountedAndIgnored) {
  OneWorker worker(Registered({Full()}));
  const auto chain = Hashes(1, 2);
  worker.Apply(Batch(Remove(chain), Store(chain), Remove(Hashes(50, 1))));
  EXPECT_EQ(worker.Match(chain, 40), 32);
  EXPECT_EQ(worker.counters().unknown_removes, 3u);
  EXPECT_EQ(worker.counters().removed_blocks, 0u);
}

}  // namespace
}  // namespace kvcast::testing
