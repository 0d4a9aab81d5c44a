// A routed prompt is expected on its worker until an event confirms the prompt, or until the
// lifetime of the entry ends.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/speculative_prefixes.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/flood.h"
#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

constexpr WorkerId kOther{8};

// The names of Hashes(first, count).
std::vector<PrefixName> Names(uint64_t first, size_t count) {
  std::vector<PrefixName> names;
  for (const BlockHash& hash : Hashes(first, count)) names.push_back(PrefixNameOf(hash));
  return names;
}

// Returns the length, in names, of the longest prefix of Names(first, count) that is expected on
// the worker. 0: no prefix is expected.
size_t ExpectedOn(WorkerId worker, SpeculativePrefixes& speculative, uint64_t first, size_t count,
                  int64_t now_ms) {
  for (const auto& expected : speculative.Match(Names(first, count), now_ms)) {
    if (expected.worker == worker) return expected.prefixes;
  }
  return 0;
}

TEST(SpeculativePrefixes, RoutedPromptIsExpectedOnItsWorkerOnly) {
  SpeculativePrefixes speculative;
  speculative.Routed(kWorker, Names(1, 4), 0);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 4, 10), 4u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 9, 10), 4u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 2, 10), 2u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 50, 4, 10), 0u);
  EXPECT_EQ(ExpectedOn(kOther, speculative, 1, 4, 10), 0u);
}

TEST(SpeculativePrefixes, EntriesExpire) {
  SpeculativePrefixes speculative({.lifetime_ms = 100});
  speculative.Routed(kWorker, Names(1, 4), 1000);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 4, 1099), 4u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 4, 1100), 0u);
  EXPECT_EQ(speculative.entries(), 0u);
}

TEST(SpeculativePrefixes, NoLifetimeOverflows) {
  SpeculativePrefixes speculative({.lifetime_ms = std::numeric_limits<int64_t>::max()});
  speculative.Routed(kWorker, Names(1, 4), 1000);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 4, int64_t{1} << 50), 4u);
}

TEST(SpeculativePrefixes, RoutingAgainRenewsTheEntry) {
  SpeculativePrefixes speculative({.lifetime_ms = 100});
  speculative.Routed(kWorker, Names(1, 4), 0);
  speculative.Routed(kWorker, Names(1, 2), 50);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 4, 120), 2u);
}

TEST(SpeculativePrefixes, ConfirmedHashesLeaveAndTheRestStays) {
  SpeculativePrefixes speculative;
  speculative.Routed(kWorker, Names(1, 4), 0);
  speculative.Confirm(kWorker, Names(1, 3));
  EXPECT_EQ(speculative.entries(), 1u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 4, 10), 4u);
  EXPECT_TRUE(speculative.Expects(kWorker));
  speculative.Confirm(kWorker, Names(1, 4));
  EXPECT_EQ(speculative.entries(), 0u);
  EXPECT_FALSE(speculative.Expects(kWorker));
}

TEST(SpeculativePrefixes, StoresOfOtherWorkersConfirmNothing) {
  SpeculativePrefixes speculative;
  speculative.Routed(kWorker, Names(1, 4), 0);
  speculative.Confirm(kOther, Names(1, 4));
  speculative.Forget(kOther);
  EXPECT_EQ(speculative.entries(), 4u);
}

TEST(SpeculativePrefixes, ForgetRemovesAllEntriesOfAWorker) {
  SpeculativePrefixes speculative;
  speculative.Routed(kWorker, Names(1, 4), 0);
  speculative.Forget(kWorker);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 4, 1), 0u);
}

TEST(SpeculativePrefixes, TheOldestEntriesAreDroppedAboveTheBound) {
  SpeculativePrefixes speculative({.entries_max = 4});
  speculative.Routed(kWorker, Names(1, 3), 0);
  speculative.Routed(kWorker, Names(11, 3), 1);
  EXPECT_EQ(speculative.entries(), 4u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 2, 2), 0u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 3, 2), 3u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 11, 3, 2), 3u);
}

TEST(SpeculativePrefixes, APromptLongerThanTheBoundKeepsItsLastPrefixes) {
  SpeculativePrefixes speculative({.entries_max = 4});
  speculative.Routed(kWorker, Names(1, 10), 0);
  EXPECT_EQ(speculative.entries(), 4u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 10, 1), 10u);
}

TEST(SpeculativePrefixes, OnePrefixMayBeExpectedOnSeveralWorkers) {
  SpeculativePrefixes speculative({.lifetime_ms = 100});
  speculative.Routed(kWorker, Names(1, 4), 0);
  speculative.Routed(kOther, Names(1, 2), 50);
  EXPECT_EQ(speculative.Match(Names(1, 6), 60).size(), 2u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 6, 60), 4u);
  EXPECT_EQ(ExpectedOn(kOther, speculative, 1, 6, 60), 2u);
  EXPECT_EQ(speculative.entries(), 6u);
  speculative.Confirm(kOther, Names(1, 2));
  EXPECT_EQ(ExpectedOn(kOther, speculative, 1, 6, 60), 0u);
  EXPECT_EQ(ExpectedOn(kWorker, speculative, 1, 6, 60), 4u);
  speculative.Forget(kWorker);
  EXPECT_EQ(speculative.entries(), 0u);
}

TEST(SpeculativePrefixes, ByteStringsHaveNames) {
  const std::vector<uint8_t> bytes(32, 7);
  const BlockHash hash = BlockHash::FromBytes(bytes);
  const PrefixName name = PrefixNameOf(hash);
  SpeculativePrefixes speculative;
  speculative.Routed(kWorker, {&name, 1}, 0);
  speculative.Confirm(kWorker, {&name, 1});
  EXPECT_EQ(speculative.entries(), 0u);
}

// In a query by hash, the client chooses the names.
TEST(SpeculativePrefixes, ChosenNamesAreNoSlower) {
  const double ratio = FloodCost(EqualEnds(FloodKeys(60'000)), [](const auto& names) {
    SpeculativePrefixes speculative({.entries_max = names.size()});
    for (const PrefixName name : names) speculative.Routed(kWorker, std::vector{name}, 0);
    for (const PrefixName name : names) speculative.Confirm(kWorker, std::vector{name});
    EXPECT_FALSE(speculative.Expects(kWorker));
  });
  EXPECT_LT(ratio, 3);
}

}  // namespace
}  // namespace kvcast::testing
