// A routed prompt is expected on its worker until an event confirms it or its time expires.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/speculative_prefixes.h"

#include <gtest/gtest.h>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

constexpr WorkerId kOther{8};

TEST(SpeculativePrefixes, RoutedPromptIsExpectedOnItsWorkerOnly) {
  SpeculativePrefixes speculative;
  speculative.Routed(kWorker, Hashes(1, 4), 0);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 4), 16, 10), 64);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 9), 16, 10), 64);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 2), 16, 10), 32);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(50, 4), 16, 10), 0);
  EXPECT_EQ(speculative.Match(kOther, Hashes(1, 4), 16, 10), 0);
}

TEST(SpeculativePrefixes, EntriesExpire) {
  SpeculativePrefixes speculative({.lifetime_ms = 100});
  speculative.Routed(kWorker, Hashes(1, 4), 1000);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 4), 16, 1099), 64);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 4), 16, 1100), 0);
  EXPECT_EQ(speculative.entries(), 0u);
}

TEST(SpeculativePrefixes, RoutingAgainRenewsTheEntry) {
  SpeculativePrefixes speculative({.lifetime_ms = 100});
  speculative.Routed(kWorker, Hashes(1, 4), 0);
  speculative.Routed(kWorker, Hashes(1, 2), 50);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 4), 16, 120), 32);
}

TEST(SpeculativePrefixes, ConfirmedHashesLeaveAndTheRestStays) {
  SpeculativePrefixes speculative;
  speculative.Routed(kWorker, Hashes(1, 4), 0);
  speculative.Confirm(kWorker, Batch(Store(Hashes(1, 3))));
  EXPECT_EQ(speculative.entries(), 1u);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 4), 16, 10), 64);
  speculative.Confirm(kWorker, Batch(Store(Hashes(4, 1)), Store(Hashes(1, 4))));
  EXPECT_EQ(speculative.entries(), 0u);
}

TEST(SpeculativePrefixes, StoresElsewhereConfirmNothing) {
  SpeculativePrefixes speculative;
  speculative.Routed(kWorker, Hashes(1, 4), 0);
  speculative.Confirm(kWorker, Batch(StoreIn("CPU", Hashes(1, 4))));
  speculative.Confirm(kOther, Batch(Store(Hashes(1, 4)), AllBlocksCleared{}));
  EXPECT_EQ(speculative.entries(), 4u);
}

TEST(SpeculativePrefixes, ClearAndForgetEndAllThatWasExpected) {
  SpeculativePrefixes speculative;
  speculative.Routed(kWorker, Hashes(1, 4), 0);
  speculative.Confirm(kWorker, Batch(AllBlocksCleared{}));
  EXPECT_EQ(speculative.entries(), 0u);
  speculative.Routed(kWorker, Hashes(1, 4), 0);
  speculative.Forget(kWorker);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 4), 16, 1), 0);
}

TEST(SpeculativePrefixes, TheOldestLeaveWhenTheBoundIsReached) {
  SpeculativePrefixes speculative({.entries_max = 4});
  speculative.Routed(kWorker, Hashes(1, 3), 0);
  speculative.Routed(kWorker, Hashes(11, 3), 1);
  EXPECT_EQ(speculative.entries(), 4u);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 2), 16, 2), 0);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 3), 16, 2), 48);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(11, 3), 16, 2), 48);
}

TEST(SpeculativePrefixes, OfAPromptLongerThanTheBoundTheDeepEndStays) {
  SpeculativePrefixes speculative({.entries_max = 4});
  speculative.Routed(kWorker, Hashes(1, 10), 0);
  EXPECT_EQ(speculative.entries(), 4u);
  EXPECT_EQ(speculative.Match(kWorker, Hashes(1, 10), 16, 1), 160);
}

TEST(SpeculativePrefixes, NeverEnterTheExactAnswer) {
  OneWorker worker(Registered({Full()}));
  SpeculativePrefixes speculative;
  speculative.Routed(kWorker, Hashes(1, 4), 0);
  EXPECT_EQ(worker.Match(Hashes(1, 4), 65), 0);
}

}  // namespace
}  // namespace kvcast::testing
