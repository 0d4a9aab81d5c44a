// Lookups, stores, loads, events and evictions of the manager. The tests with AsVllm run vLLM's own
// cases in the compatible mode. Invalid calls change nothing. Keys and slots are numbers.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/offload_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kMiss = LookupResult::kMiss;
constexpr auto kHit = LookupResult::kHit;
constexpr auto kPending = LookupResult::kPending;

TEST(Manager, AStoreThatIsPreparedIsPendingAndNotAnnounced) {
  TestOffload offload(AsVllm(Pages(4)));
  EXPECT_EQ(offload.Prepare({1, 2}), (Stored{{1, 2}, {0, 1}, {}}));
  EXPECT_EQ(offload.Lookup(1), kPending);
  EXPECT_EQ(offload.Lookup(2), kPending);
  EXPECT_THAT(offload.Events(), IsEmpty());
}

TEST(Manager, ACompletedStoreIsAHitAndAnnounced) {
  TestOffload offload(AsVllm(Pages(4)));
  offload.Prepare({1, 2});
  offload.Complete({1, 2});
  EXPECT_THAT(offload.Events(), ElementsAre("+1 2"));
  EXPECT_EQ(offload.Lookup(1), kHit);
  EXPECT_EQ(offload.Lookup(2), kHit);
  EXPECT_EQ(offload.Lookup(3), kMiss);
}

// Each test runs the same sequence of calls up to one step and checks this step.
class OneRun : public ::testing::Test {
 protected:
  OneRun() : offload_(AsVllm(Pages(4))) {
    offload_.Store({1, 2});
    offload_.Events();
  }
  void Store3To5() {
    stored_ = offload_.Prepare({2, 3, 4, 5});
    prepared_events_ = offload_.Events();
  }
  void ReachLoaded() {
    Store3To5();
    offload_.Complete({3, 4, 5});
    load_slots_ = offload_.Load({2, 3});
  }
  void ReachStored6To8() {
    ReachLoaded();
    offload_.EndLoad({2, 3});
    stored_ = offload_.Prepare({6, 7, 8});
  }
  void ReachPending9() {
    ReachStored6To8();
    offload_.Complete({6, 7, 8});
    offload_.Touch({3, 6, 7});
    stored_ = offload_.Prepare({9});
  }

  TestOffload offload_;
  std::optional<Stored> stored_;
  std::vector<std::string> prepared_events_;
  Numbers load_slots_;
};

TEST_F(OneRun, AStoreEvictsTheOldestChunkAndNoChunkOfItsOwn) {
  Store3To5();
  EXPECT_EQ(stored_, (Stored{{3, 4, 5}, {2, 3, 0}, {1}}));
  EXPECT_THAT(prepared_events_, ElementsAre("-1"));
  EXPECT_EQ(offload_.Prepare({1, 6}), std::nullopt);
}

TEST_F(OneRun, ChunksThatAreLoadedAreNotEvicted) {
  ReachLoaded();
  EXPECT_EQ(load_slots_, (Numbers{1, 2}));
  EXPECT_EQ(offload_.Prepare({6, 7, 8}), std::nullopt);
}

TEST_F(OneRun, AfterTheLoadTheOldestAreEvictedInOrder) {
  ReachStored6To8();
  EXPECT_EQ(stored_, (Stored{{6, 7, 8}, {1, 0, 3}, {4, 5, 2}}));
}

TEST_F(OneRun, ATouchedChunkIsEvictedAfterTheOthers) {
  ReachPending9();
  EXPECT_EQ(stored_, (Stored{{9}, {3}, {8}}));
}

TEST_F(OneRun, AFailedStoreDoesNotChangeReadyChunks) {
  ReachPending9();
  offload_.Events();
  offload_.Complete({7, 9}, false);
  EXPECT_EQ(offload_.Lookup(7), kHit);
  EXPECT_EQ(offload_.Lookup(9), kMiss);
  EXPECT_THAT(offload_.Events(), IsEmpty());
}

TEST_F(OneRun, TheWholeRunAnnouncesStoresAndEvictionsInOrder) {
  ReachPending9();
  EXPECT_THAT(offload_.Events(), ElementsAre("+3 4 5", "-4 5 2", "+6 7 8", "-8"));
}

class ManagerOfBothPolicies : public ::testing::TestWithParam<EvictionPolicyKind> {};
INSTANTIATE_TEST_SUITE_P(Policies, ManagerOfBothPolicies,
                         ::testing::Values(EvictionPolicyKind::kLru, EvictionPolicyKind::kArc),
                         [](const auto& test) {
                           return test.param == EvictionPolicyKind::kLru ? "Lru" : "Arc";
                         });

TEST_P(ManagerOfBothPolicies, AStoreNeverEvictsAKeyOfItsOwnInput) {
  TestOffload offload(AsVllm(Pages(4, GetParam())));
  offload.Store({1, 2});
  offload.Touch({1});
  EXPECT_EQ(offload.Prepare({2, 3, 4, 5}), (Stored{{3, 4, 5}, {2, 3, 0}, {1}}));
}

TEST_P(ManagerOfBothPolicies, TheRemovalStandsBeforeTheStoreThatTookItsSlot) {
  TestOffload offload(AsVllm(Pages(2, GetParam())));
  offload.Store({1, 2});
  offload.Events();
  offload.Store({3});
  EXPECT_THAT(offload.Events(), ElementsAre("-1", "+3"));
}

TEST_P(ManagerOfBothPolicies, AStoreWithoutRoomChangesNothing) {
  TestOffload offload(Pages(4, GetParam()));
  offload.Store({1, 2, 3});
  offload.Load({3});
  offload.Events();
  const auto before = offload.manager().Inspect();
  EXPECT_EQ(offload.Prepare({1, 4, 5, 6}), std::nullopt);  // only 2 may be evicted
  const auto after = offload.manager().Inspect();
  EXPECT_EQ(after.chunks, before.chunks);
  EXPECT_EQ(after.free_slots, before.free_slots);
  EXPECT_EQ(after.slots_used_once, before.slots_used_once);
  EXPECT_THAT(offload.Events(), IsEmpty());
}

TEST(Manager, LoadSlotsStandInTheOrderOfTheKeys) {
  TestOffload offload(Pages(4));
  offload.Store({1, 2, 3});
  EXPECT_EQ(offload.Load({2, 3, 1}), (Numbers{1, 2, 0}));
}

TEST(Manager, ALoadOfAbsentChunksChangesNothing) {
  TestOffload offload(Pages(4));
  offload.Store({1});
  offload.Prepare({2});
  std::vector<SlotId> slots;
  for (const int64_t missing : {2, 3}) {
    EXPECT_EQ(offload.manager().PrepareLoad(Keys({1, missing}), slots).code(),
              StatusCode::kFailedPrecondition);
  }
  EXPECT_THAT(slots, IsEmpty());
  EXPECT_EQ(offload.Idle(), (Numbers{1}));
}

TEST(Manager, EndingALoadThatNeverBeganChangesNothing) {
  TestOffload offload(Pages(4));
  offload.Store({1, 2});
  offload.Load({1});
  EXPECT_EQ(offload.manager().CompleteLoad(Keys({1, 2})).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(offload.manager().CompleteLoad(Keys({1, 1})).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(offload.Idle(), (Numbers{2}));
  offload.EndLoad({1});
}

TEST(Manager, AKeyThatIsNamedTwiceIsStoredOnce) {
  TestOffload offload(Pages(4));
  EXPECT_EQ(offload.Prepare({1, 1, 2}), (Stored{{1, 2}, {0, 1}, {}}));
  offload.Complete({1, 1, 2});
  EXPECT_THAT(offload.Events(), ElementsAre("+1 2"));
}

TEST(Manager, AGroupThatDoesNotExistIsRefused) {
  TestOffload offload(Pages(4));
  StorePlan plan;
  EXPECT_EQ(offload.manager().PrepareStore(Keys({1}, 1), plan).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(offload.manager().Lookup(Key(1, 1), OffloadRequestId()), kMiss);
}

TEST(Manager, SameHashesOfTwoGroupsAreTwoChunks) {
  OffloadConfig config = Pages(4);
  config.chunk_bytes = {4096, 4096};
  TestOffload offload(config);
  offload.Store({1});
  EXPECT_EQ(offload.manager().Lookup(Key(1, 1), OffloadRequestId()), kMiss);
}

TEST(Manager, ACompletedJobMayBeCompletedAgainInParts) {
  TestOffload offload(Pages(4));
  offload.Prepare({1, 2});
  offload.Complete({1});
  offload.Complete({1, 2, 3});
  EXPECT_THAT(offload.Events(), ElementsAre("+1", "+2"));
}

}  // namespace
}  // namespace kvcast::offload
