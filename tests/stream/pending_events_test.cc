// Tests when pending events get a batch of their own. The tests pass the time as an argument.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/pending_events.h"

#include <gtest/gtest.h>

namespace kvcast::stream {
namespace {

Event Clear(const char* medium) { return AllBlocksCleared{.medium = medium}; }

TEST(PendingEvents, AreDueAfterFlushMsFromTheFirstEvent) {
  PendingEvents pending(/*flush_ms=*/50);
  EXPECT_FALSE(pending.Due(1000));
  pending.Add({Clear("a")}, /*ts=*/1, /*now_ms=*/1000);
  pending.Add({Clear("b")}, /*ts=*/2, /*now_ms=*/1040);
  EXPECT_FALSE(pending.Due(1049));
  EXPECT_TRUE(pending.Due(1050));
  const EventBatch batch = pending.Take();
  EXPECT_EQ(batch.ts, 2);
  EXPECT_EQ(batch.events, (std::vector<Event>{Clear("a"), Clear("b")}));
  EXPECT_TRUE(pending.empty());
  EXPECT_FALSE(pending.Due(5000));
  pending.Add({Clear("c")}, 3, /*now_ms=*/5000);
  EXPECT_FALSE(pending.Due(5049)) << "the time starts again with new events";
}

TEST(PendingEvents, WithoutFlushMsAreNeverDue) {
  PendingEvents pending(/*flush_ms=*/0);
  pending.Add({Clear("a")}, 1, 0);
  EXPECT_FALSE(pending.Due(int64_t{1} << 40));
}

TEST(PendingEvents, AddOfNoEventsLeavesThemEmpty) {
  PendingEvents pending(/*flush_ms=*/50);
  pending.Add({}, 1, 0);
  EXPECT_TRUE(pending.empty());
}

TEST(PendingEvents, ComeBeforeTheEventsOfTheNextBatch) {
  PendingEvents pending(/*flush_ms=*/50);
  pending.Add({Clear("a")}, 1, 0);
  EventBatch batch{.ts = 7, .events = {Clear("b")}, .data_parallel_rank = {}};
  pending.MoveTo(batch);
  EXPECT_EQ(batch.ts, 7);
  EXPECT_EQ(batch.events, (std::vector<Event>{Clear("a"), Clear("b")}));
  EXPECT_TRUE(pending.empty());
}

}  // namespace
}  // namespace kvcast::stream
