// ARC keeps chunks in the lists T1 (used once) and T2 (reused). A ghost is the key of an evicted
// chunk; B1 and B2 are the ghosts of T1 and T2. ARC moves chunks between these lists, and evicts
// the right chunks. The tests run vLLM's own cases in the compatible mode, and the cases in which
// kvcast differs.
// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "tests/offload/offload_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

OffloadConfig Arc(int64_t slots) { return AsVllm(Pages(slots, EvictionPolicyKind::kArc)); }

Numbers Range(int64_t begin, int64_t end) {
  Numbers numbers(static_cast<size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

TEST(Arc, ATouchedReadyChunkMovesFromT1ToT2) {
  TestOffload offload(Arc(4));
  offload.Store({1, 2});
  offload.Touch({1});
  EXPECT_EQ(offload.T1(), (Numbers{2}));
  EXPECT_EQ(offload.T2(), (Numbers{1}));
}

TEST(Arc, AChunkThatIsBeingStoredStaysInT1AsTheNewest) {
  TestOffload offload(Arc(4));
  offload.Prepare({1, 2});
  offload.Touch({1});
  EXPECT_EQ(offload.T1(), (Numbers{2, 1}));
}

TEST(Arc, TouchGoesBackwardsSoThatTheFirstKeyIsTheNewest) {
  TestOffload offload(Arc(4));
  offload.Store({1, 2, 3});
  offload.Touch({1, 2, 3});
  EXPECT_EQ(offload.T2(), (Numbers{3, 2, 1}));
}

TEST(Arc, ATouchedGhostOfT1RaisesTheTarget) {
  TestOffload offload(Arc(2));
  offload.Store({1, 2});
  offload.Store({3});
  EXPECT_EQ(offload.B1(), (Numbers{1}));
  EXPECT_EQ(offload.Target(), 0.0);
  offload.Touch({1});
  EXPECT_EQ(offload.Target(), 1.0);
}

TEST(Arc, ATouchedGhostOfT2LowersTheTargetByTheRatioOfTheGhosts) {
  TestOffload offload(Arc(4));
  offload.Store({1, 2, 3, 4});
  offload.Touch({1, 2});
  offload.Store({5});  // 3 goes to B1
  offload.Store({6});  // 4 goes to B1
  offload.Touch({3, 3, 3, 3});
  EXPECT_EQ(offload.Target(), 4.0);  // the capacity limits the target
  // T1 has two chunks, fewer than its target. Chunk 2 goes from T2 to B2.
  offload.Store({7});
  EXPECT_EQ(offload.B1(), (Numbers{4, 3}));
  EXPECT_EQ(offload.B2(), (Numbers{2}));
  offload.Touch({2});
  EXPECT_EQ(offload.Target(), 2.0);
  offload.Touch({2, 2});
  EXPECT_EQ(offload.Target(), 0.0);
}

TEST(Arc, AKeyThatReturnsLeavesTheGhostsAndStartsInT1) {
  TestOffload offload(Arc(2));
  offload.Store({1, 2});
  offload.Store({3});
  offload.Store({1});
  EXPECT_EQ(offload.T1(), (Numbers{3, 1}));
  EXPECT_EQ(offload.B1(), (Numbers{2}));
}

TEST(Arc, T1AboveItsTargetLosesItsOldestChunk) {
  TestOffload offload(Arc(4));
  offload.Store({9, 3, 4, 1});
  offload.Touch({4, 3});
  offload.Store({2});
  offload.Touch({9});
  ASSERT_EQ(offload.T1(), (Numbers{1, 2}));
  ASSERT_EQ(offload.T2(), (Numbers{3, 4}));
  ASSERT_EQ(offload.Target(), 1.0);
  EXPECT_EQ(offload.Prepare({5})->evicted, (Numbers{1}));
}

TEST(Arc, AChunkThatWasNeverTouchedIsEvictedFirst) {
  TestOffload offload(Arc(4));
  offload.Store({1, 2, 3, 4});
  offload.Touch({3, 4});
  offload.Touch({1, 3, 4});
  ASSERT_EQ(offload.T1(), (Numbers{2}));
  EXPECT_EQ(offload.Prepare({5}), (Stored{{5}, {1}, {2}}));
}

TEST(Arc, GhostsNeverOutgrowTheCapacity) {
  TestOffload offload(Arc(2));
  for (int64_t key = 1; key <= 20; ++key) offload.Store({key});
  EXPECT_EQ(offload.B1(), (Numbers{17, 18}));
  EXPECT_THAT(offload.B2(), IsEmpty());
}

TEST(Arc, AFailedStoreLeavesItsVictimAmongTheGhosts) {
  TestOffload offload(Arc(4));
  offload.Store({1, 2, 3, 4});
  offload.Prepare({5});
  offload.Complete({5}, false);
  EXPECT_EQ(offload.B1(), (Numbers{1}));
  EXPECT_EQ(offload.Lookup(5), LookupResult::kMiss);
  EXPECT_EQ(offload.Store({6})->evicted, (Numbers{}));
}

TEST(Arc, ALargeEvictionTakesT1DownToItsTargetAndTheRestFromT2) {
  TestOffload offload(Arc(256));
  offload.Store({1000});
  offload.Store(Range(0, 255));
  offload.Store({255});  // 1000 becomes a ghost
  offload.Touch(Numbers(64, 1000));
  Numbers used_again = Range(128, 256);
  std::reverse(used_again.begin(), used_again.end());
  offload.Touch(used_again);
  ASSERT_EQ(offload.T1(), Range(0, 128));
  ASSERT_EQ(offload.T2(), Range(128, 256));
  ASSERT_EQ(offload.Target(), 64.0);

  offload.Load({0, 130});
  Numbers wanted = {1, 2, 131};
  for (int64_t key = 0; key < 124; ++key) wanted.push_back(2000 + key);
  Numbers expected = Range(3, 68);  // |T1| - 64 + 1 chunks
  const Numbers from_t2 = Range(132, 189);
  expected.insert(expected.end(), {128, 129});
  expected.insert(expected.end(), from_t2.begin(), from_t2.end());
  EXPECT_EQ(offload.Prepare(wanted)->evicted, expected);
}

// T1 holds 1..6, all in use except `idle`. T2 holds 7 and 8. There are 8 slots, and the target is
// 4.
void FillToTarget4(TestOffload& offload, const Numbers& idle) {
  offload.Store({100, 7, 8});
  offload.Touch({8, 7});
  offload.Store({1, 2, 3, 4, 5});
  offload.Store({6});  // 100 becomes a ghost
  offload.Touch(Numbers(4, 100));
  for (const int64_t key : {1, 2, 3, 4, 5, 6}) {
    if (std::find(idle.begin(), idle.end(), key) == idle.end()) offload.Load({key});
  }
  ASSERT_EQ(offload.T1(), Range(1, 7));
  ASSERT_EQ(offload.T2(), (Numbers{7, 8}));
  ASSERT_EQ(offload.Target(), 4.0);
}

TEST(Arc, WithOneCandidateInT1TheRestComesFromT2) {
  TestOffload offload(Arc(8));
  FillToTarget4(offload, {3});
  EXPECT_EQ(offload.Prepare({20, 21, 22})->evicted, (Numbers{3, 7, 8}));
}

TEST(Arc, AStoreThatNeedsTwoVictimsAndHasOneCandidateChangesNothing) {
  TestOffload offload(Arc(4));
  offload.Store({1, 2, 3, 4});
  offload.Load({1, 2, 3});
  EXPECT_EQ(offload.Prepare({5, 6}), std::nullopt);
  // The store itself names the only idle chunk. The number of idle chunks suffices, but the scan
  // finds no victim.
  EXPECT_EQ(offload.Prepare({4, 5}), std::nullopt);
  EXPECT_EQ(offload.T1(), (Numbers{1, 2, 3, 4}));
  EXPECT_THAT(offload.B1(), IsEmpty());
}

// T1 is below its target and has an idle chunk. T2 has no idle chunk.
bool StoresBelowTarget(const OffloadConfig& config) {
  TestOffload offload(config);
  offload.Store({1});
  offload.Store({2});
  offload.Store({3});  // 1 becomes a ghost
  offload.Touch({1, 1});
  offload.Touch({2});
  offload.Load({2});
  EXPECT_EQ(offload.T1(), (Numbers{3}));
  EXPECT_EQ(offload.T2(), (Numbers{2}));
  EXPECT_EQ(offload.Target(), 2.0);
  return offload.Prepare({4}).has_value();
}

TEST(Arc, FallsBackToT1WhereOnlyT1HasAVictim) {
  EXPECT_FALSE(StoresBelowTarget(Arc(2)));
  EXPECT_TRUE(StoresBelowTarget(Pages(2, EvictionPolicyKind::kArc)));
}

TEST(Arc, AStoreMayRemoveAGhostThatTheSameEvictionPushesOut) {
  TestOffload offload(Arc(2));
  offload.Store({1, 2});
  offload.Store({3, 4});  // ghosts 1, 2
  EXPECT_EQ(offload.Store({1, 2})->evicted, (Numbers{3, 4}));
  EXPECT_EQ(offload.B1(), (Numbers{3, 4}));
  EXPECT_EQ(offload.T1(), (Numbers{1, 2}));
}

TEST(Arc, AResetForgetsGhostsAndTarget) {
  TestOffload offload(Arc(2));
  offload.Store({1, 2});
  offload.Store({3});
  offload.Touch({1});
  offload.manager().Reset();
  EXPECT_EQ(offload.Target(), 0.0);
  EXPECT_THAT(offload.B1(), IsEmpty());
  EXPECT_THAT(offload.T1(), IsEmpty());
}

}  // namespace
}  // namespace kvcast::offload
