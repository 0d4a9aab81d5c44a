// The batches of a restarted publisher are never mixed with the batches of the previous epoch.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/stream/extended_harness.h"
#include "tests/stream/source_harness.h"

namespace kvcast::stream {
namespace {

TEST(SourceRestart, SeqZeroAgainIsARestart) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(0, /*epoch=*/1);
  source.Live(1, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset restart", "1.0", "1.1"}));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceRestart, SeqZeroAgainIsARestartEvenWithEqualBytes) {
  SourceHarness source(/*can_replay=*/false);
  source.JoinAndApply(3);
  source.Live(0);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset restart", "0.0"}));
}

TEST(SourceRestart, LowerSeqWithOtherBytesIsARestartJoinedByReplay) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(5);
  source.Live(2, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Texts{"reset restart"});
  EXPECT_EQ(source.TakeRequest(), 0u);
  EXPECT_EQ(source.state(), SourceState::kBootstrap);
  source.Replay(0, 3, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 3, 1));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceRestart, LowerSeqTooOldToCompareIsProved) {
  SourceHarness source(/*can_replay=*/true);
  const uint64_t end = FingerprintWindow::kBatches + 10;
  source.JoinAndApply(end);
  source.Live(5, /*epoch=*/1);
  EXPECT_EQ(source.TakeRequest(), end - 1);
  EXPECT_EQ(source.state(), SourceState::kSuspect);
  source.Live(end, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Texts{}) << "the batch must wait until the publisher is known";
  source.Reply(end - 1, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Texts{"reset restart"});
}

TEST(SourceRestart, OldBatchTooOldToCompareChangesNothing) {
  SourceHarness source(/*can_replay=*/true);
  const uint64_t end = FingerprintWindow::kBatches + 10;
  source.JoinAndApply(end);
  source.Live(5);
  source.Reply(end - 1);
  source.End();
  source.Live(end);
  EXPECT_EQ(source.TakeDeliveries(), Batches(end, end + 1));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceRestart, LowerSeqTooOldToCompareIsARestartWithoutReplay) {
  SourceHarness source(/*can_replay=*/false);
  source.JoinAndApply(FingerprintWindow::kBatches + 10);
  source.Live(5);
  EXPECT_EQ(source.TakeDeliveries().front(), "reset restart");
}

TEST(SourceRestart, ARestartIsReportedEvenIfNoBatchFollowedTheLoss) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.next_result = BatchResult::kUndecodable;
  source.Live(3);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"0.3", "reset doubt"}));
  EXPECT_EQ(source.state(), SourceState::kCleared);
  source.Live(0, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset restart", "1.0"}))
      << "the sink must know that the lost batches no longer count";
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceRestart, SameBatchAgainIsADuplicate) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(5);
  source.Live(4);
  source.Live(3);
  EXPECT_EQ(source.TakeDeliveries(), Texts{});
  EXPECT_EQ(source.status().duplicates, 2u);
}

TEST(SourceRestart, HigherSeqIsFoundByTheOverlap) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(7, /*epoch=*/1);  // looks like a gap
  EXPECT_EQ(source.TakeRequest(), 2u);
  source.Reply(2, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Texts{"reset restart"});
  EXPECT_FALSE(source.replay_open()) << "replies of the old publisher must not mix in";
  EXPECT_EQ(source.TakeRenewals(), 1) << "live messages of the old publisher must not mix in";
  source.Connect();
  EXPECT_EQ(source.TakeRequest(), 0u);
  source.Replay(0, 8, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 8, 1));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceRestart, ReconnectIsNotTrustedBeforeTheOverlap) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Disconnect();
  EXPECT_EQ(source.state(), SourceState::kStale);
  source.Connect();
  EXPECT_EQ(source.state(), SourceState::kSuspect);
  EXPECT_EQ(source.TakeRequest(), 2u);
  source.Live(3, /*epoch=*/1);  // the number fits, but the epoch differs
  EXPECT_EQ(source.TakeDeliveries(), Texts{});
  source.Reply(2, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Texts{"reset restart"});
  source.Connect();
  source.Replay(0, 4, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 4, 1));
}

TEST(SourceRestart, ReconnectToTheSamePublisherGoesOn) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Disconnect();
  source.Connect();
  source.Live(6);
  source.Replay(2, 7);
  EXPECT_EQ(source.TakeDeliveries(), Batches(3, 7));
  EXPECT_EQ(source.status().resets, 0u);
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceRestart, PublisherThatIsBehindIsANewPublisher) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Disconnect();
  source.Connect();
  source.End();  // the publisher has no batch from 2 on
  EXPECT_EQ(source.TakeDeliveries(), Texts{"reset restart"});
  source.Connect();
  EXPECT_EQ(source.TakeRequest(), 0u);
  source.Replay(0, 1, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 1, 1));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceRestart, OverlapThatLeftTheRingAfterAReconnectIsALoss) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Disconnect();
  source.Connect();
  source.Replay(3, 5);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset lost_batches", "0.3", "0.4"}));
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

TEST(SourceRestart, ReconnectWithoutReplayIsALoss) {
  SourceHarness source(/*can_replay=*/false);
  source.JoinAndApply(3);
  source.Disconnect();
  source.Connect();
  EXPECT_EQ(source.state(), SourceState::kSuspect);
  source.Live(3);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset lost_batches", "0.3"}));
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

TEST(SourceRestart, RepliesAreIgnoredWhileDisconnected) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(5);
  source.Disconnect();
  EXPECT_FALSE(source.replay_open());
  source.Replay(2, 6, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Texts{});
}

TEST(SourceRestart, ABatchReadAfterTheDisconnectIsApplied) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Disconnect();
  source.Live(3);
  EXPECT_EQ(source.TakeDeliveries(), Batches(3, 4));
}

TEST(SourceRestart, EndsTheClearedState) {
  SourceHarness source(/*can_replay=*/false);
  source.JoinAndApply(1);
  source.Live(5);
  EXPECT_EQ(source.state(), SourceState::kCleared);
  source.Live(0, /*epoch=*/1);
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceRestart, HeldBackBatchesOfTheOldEpochAreForgotten) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  source.Live(5);  // the source is joining, so it holds the batch back
  source.Disconnect();
  source.Connect();
  source.Replay(0, 5, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 5, 1));
  source.Live(5, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(5, 6, 1));
}

class SourceRestartExtended : public ExtendedHarness {
 protected:
  // Batch 0 is applied, and the replay of the hole before batch 5 has begun.
  void JoinWithHole() {
    Join(1);
    Reply(0);
    End(1);
    Live(5);
    Reply(0);
    EXPECT_EQ(Log(), Batches(0, 1));
  }
};

// The live batch may come from another publisher than the replay.
TEST_F(SourceRestartExtended, ALowerNumberThatIsNextWaitsForTheReplay) {
  JoinWithHole();
  Live(1, /*epoch=*/1);
  Reply(0);
  EXPECT_EQ(Log(), Texts{});
  Reply(1);
  EXPECT_EQ(Log(), Batches(1, 2));
}

TEST_F(SourceRestartExtended, ALowerNumberIsNotLeftBehindByTheReplay) {
  JoinWithHole();
  Live(1);
  next_result = BatchResult::kUndecodable;
  Reply(1);
  EndWithoutDigests(6);
  EndWithoutDigests(6);
  EXPECT_EQ(Log(), (Texts{"0.1", "begin", "drop", "reset lost_batches", "0.5"}));
  EXPECT_EQ(source.status(now_ms).next_seq, 6u);
  EXPECT_EQ(source.status(now_ms).lost, 3u);
}

}  // namespace
}  // namespace kvcast::stream
