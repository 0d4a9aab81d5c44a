// The manager fixes defects of vLLM's manager. The compatible mode keeps these defects. A reset
// drops all chunks and keeps the counts of the reuse filter.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/offload_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Reset, SendsAClearedEvent) {
  TestOffload offload(Pages(4));
  offload.Store({1, 2});
  offload.manager().Reset();
  offload.Store({1});
  EXPECT_THAT(offload.Events(), ElementsAre("+1 2", "cleared", "+1"));
  EXPECT_EQ(offload.manager().config().medium, "CPU");
}

TEST(Reset, DropsChunksInUseAndHandsOutAllSlotsAgain) {
  for (const auto policy : {EvictionPolicyKind::kLru, EvictionPolicyKind::kArc}) {
    TestOffload offload(Pages(4, policy));
    offload.Store({1, 2});
    offload.Load({1});
    offload.Prepare({3});
    offload.manager().Reset();
    EXPECT_EQ(offload.Lookup(1), LookupResult::kMiss);
    EXPECT_EQ(offload.manager().num_chunks(), 0);
    EXPECT_EQ(offload.manager().TakeStats().usage, 0.0);
    EXPECT_EQ(offload.Prepare({5, 6, 7, 8}), (Stored{{5, 6, 7, 8}, {0, 1, 2, 3}, {}}));
  }
}

TEST(Reset, AsInVllmMakesNoEvent) {
  TestOffload offload(AsVllm(Pages(4)));
  offload.Store({1, 2});
  offload.Events();
  offload.manager().Reset();
  EXPECT_THAT(offload.Events(), IsEmpty());
}

TEST(Reset, KeepsTheCountsOfTheReuseFilter) {
  OffloadConfig config = Pages(4);
  config.store_threshold = 2;
  TestOffload offload(config);
  offload.Lookup(1, 1);
  offload.manager().Reset();
  offload.Lookup(1, 2);
  EXPECT_EQ(offload.Store({1}), (Stored{{1}, {0}, {}}));
}

class BothPolicies : public ::testing::TestWithParam<EvictionPolicyKind> {};
INSTANTIATE_TEST_SUITE_P(Policies, BothPolicies,
                         ::testing::Values(EvictionPolicyKind::kLru, EvictionPolicyKind::kArc),
                         [](const auto& test) {
                           return test.param == EvictionPolicyKind::kLru ? "Lru" : "Arc";
                         });

TEST_P(BothPolicies, AStoredPrefixLosesItsEndFirst) {
  TestOffload offload(Pages(4, GetParam()));
  offload.Store({1, 2, 3, 4});
  EXPECT_EQ(offload.Store({5, 6})->evicted, (Numbers{4, 3}));
  EXPECT_EQ(offload.Lookup(1), LookupResult::kHit);
}

TEST_P(BothPolicies, AsInVllmItLosesItsBeginningFirst) {
  TestOffload offload(AsVllm(Pages(4, GetParam())));
  offload.Store({1, 2, 3, 4});
  EXPECT_EQ(offload.Store({5, 6})->evicted, (Numbers{1, 2}));
}

TEST(Lru, ALoadedPrefixLosesItsEndFirst) {
  TestOffload offload(Pages(4));
  offload.Store({1, 2, 3, 4});
  offload.Load({2, 3});
  offload.EndLoad({2, 3});
  EXPECT_EQ(offload.Idle(), (Numbers{4, 1, 3, 2}));
}

TEST(Events, AreNotKeptIfTheyAreTurnedOff) {
  OffloadConfig config = Pages(2);
  config.enable_events = false;
  TestOffload offload(config);
  offload.Store({1, 2});
  offload.Store({3});
  offload.manager().Reset();
  EXPECT_THAT(offload.Events(), IsEmpty());
}

}  // namespace
}  // namespace kvcast::offload
