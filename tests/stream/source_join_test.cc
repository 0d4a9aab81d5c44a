// When a source joins a stream, the source first subscribes, and then gets the history by replay.
// Each batch is applied once and in order.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/stream/source_harness.h"

namespace kvcast::stream {
namespace {

TEST(SourceJoin, AsksForEverythingWhenConnected) {
  SourceHarness source(/*can_replay=*/true);
  EXPECT_EQ(source.state(), SourceState::kConnecting);
  source.Connect();
  EXPECT_EQ(source.TakeRequest(), 0u);
  EXPECT_EQ(source.state(), SourceState::kBootstrap);
}

TEST(SourceJoin, WithoutAConnectionForTenSecondsIsUnheard) {
  SourceHarness source(/*can_replay=*/true);
  source.Timer();
  EXPECT_EQ(source.status().reason, SourceReason::kJoining);
  EXPECT_EQ(source.deadline_ms(), source.now_ms + kUnheardMs);
  source.now_ms += kUnheardMs - 1;
  source.Timer();
  EXPECT_EQ(source.status().reason, SourceReason::kJoining);
  EXPECT_EQ(SourceHint(source.status()), "");
  source.WaitUntilDue();
  EXPECT_EQ(source.state(), SourceState::kConnecting);
  EXPECT_EQ(source.status().reason, SourceReason::kUnheard);
  EXPECT_NE(SourceHint(source.status()).find("set bind=true"), std::string_view::npos);
  EXPECT_EQ(source.deadline_ms(), kNever);
  source.Connect();
  EXPECT_EQ(source.status().reason, SourceReason::kJoining);
  source.Disconnect();
  EXPECT_EQ(source.status().reason, SourceReason::kJoining);
  EXPECT_EQ(SourceHint(source.status()), "");
}

TEST(SourceJoin, NothingPublishedYetIsSynced) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.End();
  EXPECT_EQ(source.state(), SourceState::kSynced);
  EXPECT_FALSE(source.replay_open());
}

// Another publisher may be at the end of the new connection.
TEST(SourceJoin, AfterAReconnectionNothingIsKnownUntilThePublisherAnswers) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.End();
  ASSERT_EQ(source.state(), SourceState::kSynced);
  source.Disconnect();
  source.Connect();
  EXPECT_EQ(source.state(), SourceState::kBootstrap);
  EXPECT_EQ(source.status().weight, 0);
  source.Replay(0, 2);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 2));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceJoin, LateJoinerGetsTheHistory) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.Replay(0, 5);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 5));
  EXPECT_EQ(source.state(), SourceState::kSynced);
  EXPECT_EQ(source.status().replayed, 5u);
}

TEST(SourceJoin, LiveBatchesWaitForTheHistory) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.Live(3);
  source.Live(4);
  EXPECT_EQ(source.TakeDeliveries(), Texts{});
  source.Replay(0, 4);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 5));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceJoin, BatchesInReplayAndLiveStreamAreAppliedOnce) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.Replay(0, 4);
  source.Live(2);
  source.Live(3);
  source.Live(4);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 5));
  EXPECT_EQ(source.status().duplicates, 2u);
  EXPECT_EQ(source.status().resets, 0u);
}

TEST(SourceJoin, FirstBatchLiveNeedsNoReplay) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.Live(0);
  source.Live(1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 2));
  EXPECT_EQ(source.state(), SourceState::kSynced);
  source.Replay(0, 2);
  EXPECT_EQ(source.TakeDeliveries(), Texts{});
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceJoin, RingThatLostTheBeginningGivesAClearedSource) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.Replay(7, 9);
  EXPECT_EQ(source.TakeDeliveries(), Batches(7, 9));
  EXPECT_EQ(source.state(), SourceState::kCleared);
  EXPECT_EQ(source.status().first_seq, 7u);
  EXPECT_EQ(source.status().lost, 0u);
}

TEST(SourceJoin, WithoutReplayBeginsAtTheFirstLiveBatch) {
  SourceHarness source(/*can_replay=*/false);
  source.Connect();
  EXPECT_EQ(source.state(), SourceState::kBootstrap);
  source.Live(5);
  source.Live(6);
  EXPECT_EQ(source.TakeDeliveries(), Batches(5, 7));
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

TEST(SourceJoin, ABatchThatProvesThatNothingIsMissingMakesTheSourceSynced) {
  SourceHarness source(/*can_replay=*/false);
  source.Connect();
  source.Live(5);
  EXPECT_EQ(source.state(), SourceState::kCleared);
  source.next_result = BatchResult::kComplete;
  source.Live(6);
  EXPECT_EQ(source.state(), SourceState::kSynced);
  source.Live(7);
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceJoin, ABatchThatEmptiesTheStateEndsTheDoubtAboutIt) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.next_result = BatchResult::kDoubtful;
  source.Live(3);
  EXPECT_EQ(source.state(), SourceState::kSuspect);
  source.next_result = BatchResult::kComplete;
  source.Live(4);
  EXPECT_EQ(source.state(), SourceState::kSuspect) << "the state may have wrong data";
  source.next_result = BatchResult::kEmptied;
  source.Live(5);
  EXPECT_EQ(source.state(), SourceState::kSynced);
  EXPECT_EQ(source.status().reason, SourceReason::kNone);
}

TEST(SourceJoin, ABatchThatShowsThatSomethingIsMissingMakesTheSourceCleared) {
  SourceHarness source(/*can_replay=*/false);
  source.Connect();
  source.LiveUpTo(3);
  source.next_result = BatchResult::kIncomplete;
  source.Live(3);
  EXPECT_EQ(source.state(), SourceState::kCleared);
  EXPECT_EQ(source.status().reason, SourceReason::kLostBatches);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 4)) << "the applied batches must stay";
  source.next_result = BatchResult::kComplete;
  source.Live(4);
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceJoin, WithoutReplayIsSyncedIfItBeginsAtZero) {
  SourceHarness source(/*can_replay=*/false);
  source.Connect();
  source.LiveUpTo(3);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 3));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceJoin, UnansweredRequestIsAskedAgain) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  for (int i = 0; i < 5; ++i) {
    source.TakeRequest();
    source.WaitUntilDue();
    EXPECT_EQ(source.TakeRequest(), 0u);
    EXPECT_EQ(source.state(), SourceState::kBootstrap);
  }
  source.Replay(0, 2);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 2));
  EXPECT_EQ(source.state(), SourceState::kSynced);
  EXPECT_EQ(source.status().replay_timeouts, 5u);
}

TEST(SourceJoin, RepliesKeepARequestAlive) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.TakeRequest();
  const int64_t deadline = source.deadline_ms();
  source.now_ms = deadline - 1;
  source.Reply(0);
  EXPECT_GT(source.deadline_ms(), deadline);
}

TEST(SourceJoin, LongReplayMayOverlapOldLiveBatches) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  for (uint64_t seq = 0; seq < 500; ++seq) source.Reply(seq);
  source.Live(100);  // sent before the replay request, read after it
  for (uint64_t seq = 500; seq < 600; ++seq) source.Reply(seq);
  source.End();
  source.TakeRequest();
  source.Live(600);
  EXPECT_EQ(source.TakeRequest(), 599u) << "the publisher must be proven before the next batch";
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 600));
  source.Replay(599, 600);
  EXPECT_EQ(source.TakeDeliveries(), Batches(600, 601));
  EXPECT_EQ(source.state(), SourceState::kSynced);
  EXPECT_EQ(source.status().resets, 0u);
}

// A batch that is published while the new subscription is on its way may be missing from both the
// first answer and the live stream.
TEST(SourceJoin, ASecondRequestFollowsSoonAfterEachConnection) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  for (int i = 0; i < 2; ++i) {
    source.Disconnect();
    source.Connect();
    source.Replay(2, 3);
    source.TakeRequest();
    const int64_t since = source.now_ms;
    source.WaitUntilDue();
    EXPECT_EQ(source.TakeRequest(), 2u) << i;
    EXPECT_EQ(source.now_ms - since, LookSchedule::kSettleMs) << i;
    source.Replay(2, 3);
  }
}

}  // namespace
}  // namespace kvcast::stream
