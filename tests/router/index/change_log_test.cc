// A reader learns from the log which workers changed, or that the log does not have all changes. A
// query of PrefixIndex sees every earlier change.
// SPDX-License-Identifier: Apache-2.0
#include "router/index/change_log.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

// Returns the slots of the changes; nullopt: the log does not have all changes.
std::optional<std::vector<WorkerSlot>> Slots(const ChangeLog& log, uint64_t begin, uint64_t end) {
  std::vector<WorkerSlot> slots;
  const bool all = log.ForEach(begin, end, [&slots](WorkerSlot slot) { slots.push_back(slot); });
  return all ? std::optional(slots) : std::nullopt;
}

TEST(ChangeLog, AChangeIsBegunThenEnded) {
  ChangeLog log;
  EXPECT_EQ(log.begun(), 0u);
  log.Begin(7);
  log.Begin(9);
  EXPECT_EQ(log.begun(), 2u);
  EXPECT_EQ(log.ended(), 0u);
  log.End();
  EXPECT_EQ(log.ended(), 2u);
  EXPECT_EQ(Slots(log, 0, 2), (std::vector<WorkerSlot>{7, 9}));
  EXPECT_EQ(Slots(log, 1, 2), (std::vector<WorkerSlot>{9}));
  EXPECT_EQ(Slots(log, 2, 2), std::vector<WorkerSlot>());
}

TEST(ChangeLog, OldChangesAreOverwritten) {
  ChangeLog log;
  for (uint64_t i = 0; i < ChangeLog::kRecent - 1; ++i) log.Begin(static_cast<WorkerSlot>(i));
  EXPECT_EQ(Slots(log, 0, log.begun())->size(), ChangeLog::kRecent - 1);
  const uint64_t before = log.begun();
  log.Begin(0);
  // The next change may be overwriting change 0 already.
  EXPECT_EQ(Slots(log, 0, before), std::nullopt);
  EXPECT_EQ(Slots(log, 0, log.begun()), std::nullopt);
  EXPECT_EQ(Slots(log, 1, log.begun())->size(), ChangeLog::kRecent - 1);
}

}  // namespace
}  // namespace kvcast::router

namespace kvcast::testing {
namespace {

using router::ChangeLog;

int64_t Reusable(const PrefixIndex& index, WorkerId worker) {
  for (const WorkerScore& score :
       index.Scores({.hash_block_size = 16, .prompt_tokens = 65, .hashes = Hashes(1, 4)})) {
    if (score.worker == worker) return score.gpu_tokens;
  }
  return 0;
}

// A thread keeps the properties of the workers that it has queried. It must not use these
// properties for another index, or for other workers of the same index.
TEST(ReadersOfChanges, TwoIndexesAreNotMixedUp) {
  PrefixIndex one;
  PrefixIndex other;
  for (PrefixIndex* index : {&one, &other}) {
    ASSERT_TRUE(index->AddWorker(kWorker, Registered({Full()}, 16)).ok());
  }
  one.Apply(kWorker, Batch(Store(Hashes(1, 4))));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Reusable(one, kWorker), 64);
    EXPECT_EQ(Reusable(other, kWorker), 0);
  }
}

TEST(ReadersOfChanges, WorkersThatComeAndGoAreRead) {
  PrefixIndex index;
  const WorkerId next(kWorker.value + 1);
  ASSERT_TRUE(index.AddWorker(kWorker, Registered({Full()}, 16)).ok());
  index.Apply(kWorker, Batch(Store(Hashes(1, 4))));
  EXPECT_EQ(Reusable(index, kWorker), 64);
  ASSERT_TRUE(index.AddWorker(next, Registered({Full()}, 16)).ok());
  EXPECT_EQ(Reusable(index, next), 0);
  index.Apply(next, Batch(Store(Hashes(1, 2))));
  EXPECT_EQ(Reusable(index, next), 32);
  index.RemoveWorker(kWorker);
  EXPECT_EQ(Reusable(index, kWorker), 0);
  EXPECT_EQ(Reusable(index, next), 32);
  // The slot of the removed worker is used again.
  ASSERT_TRUE(index.AddWorker(kWorker, Registered({Full()}, 16)).ok());
  EXPECT_EQ(Reusable(index, kWorker), 0);
}

TEST(ReadersOfChanges, MoreChangesThanTheLogHasAreRead) {
  PrefixIndex index;
  ASSERT_TRUE(index.AddWorker(kWorker, Registered({Full()}, 16)).ok());
  for (const uint64_t changes : {ChangeLog::kRecent - 1, ChangeLog::kRecent, uint64_t{200}}) {
    EXPECT_EQ(Reusable(index, kWorker), 0);
    index.Apply(kWorker, Batch(Store(Hashes(1, 4))));
    for (uint64_t i = 1; i < changes; ++i) index.Apply(kWorker, Batch(Store(Hashes(100 + i, 1))));
    EXPECT_EQ(Reusable(index, kWorker), 64) << changes;
    index.ClearWorker(kWorker);
  }
}

// Rules that a worker learns apply to the next query.
TEST(ReadersOfChanges, LearnedRulesAreRead) {
  PrefixIndex index;
  ASSERT_TRUE(index.AddWorker(kWorker, Registered({})).ok());
  index.Apply(kWorker, Batch(StoreFull(Hashes(1, 4), 0)));
  EXPECT_EQ(Reusable(index, kWorker), 64);
  index.Apply(kWorker, Batch(StoreWindow(Hashes(1, 2), 1, 32)));
  EXPECT_EQ(Reusable(index, kWorker), 32);
}

}  // namespace
}  // namespace kvcast::testing
