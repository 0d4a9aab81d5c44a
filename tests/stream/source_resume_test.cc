// A source goes on from a saved position only after its publisher has proven to be the same run.
// Until then, the answers of the source have weight 0.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/stream/extended_harness.h"
#include "tests/stream/source_harness.h"

namespace kvcast::stream {
namespace {

// The position of a source that has applied the batches 0 to end-1 of this epoch.
SavedPosition PositionAt(uint64_t end, int epoch = 0) {
  SourceHarness before(/*can_replay=*/true);
  before.Connect();
  before.End();
  before.LiveUpTo(end, epoch);
  return before.Position().value();
}

TEST(SourceResume, ThePositionHasTheLatestFingerprints) {
  const SavedPosition position = PositionAt(100);
  EXPECT_EQ(position.next_seq, 100u);
  EXPECT_EQ(position.first_seq, 0u);
  EXPECT_TRUE(position.complete);
  EXPECT_EQ(position.fingerprints.size(), FingerprintWindow::kBatches);
  EXPECT_EQ(position.epoch, std::nullopt);
}

TEST(SourceResume, AReplayedBatchIsTheProof) {
  SourceHarness source(/*can_replay=*/true);
  source.Resume(PositionAt(5));
  EXPECT_EQ(source.state(), SourceState::kConnecting);
  source.Connect();
  EXPECT_EQ(source.TakeRequest(), 4u);
  EXPECT_EQ(source.state(), SourceState::kBootstrap);
  EXPECT_EQ(source.status().reason, SourceReason::kUnproven);
  EXPECT_EQ(source.status().weight, 0);
  source.Replay(4, 8);
  EXPECT_EQ(source.TakeDeliveries(), Batches(5, 8));
  EXPECT_EQ(source.state(), SourceState::kSynced);
  EXPECT_EQ(source.status().next_seq, 8u);
  source.Live(8);
  EXPECT_EQ(source.TakeDeliveries(), Batches(8, 9));
}

TEST(SourceResume, LiveBatchesWaitForTheProof) {
  SourceHarness source(/*can_replay=*/true);
  source.Resume(PositionAt(5));
  source.Connect();
  source.Live(6);
  source.Live(7);
  EXPECT_EQ(source.TakeDeliveries(), Texts{});
  source.Replay(4, 8);
  EXPECT_EQ(source.TakeDeliveries(), Batches(5, 8));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceResume, AnotherRunWithMoreBatchesEndsTheState) {
  SourceHarness source(/*can_replay=*/true);
  source.Resume(PositionAt(5));
  source.Connect();
  source.Reply(4, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Texts{"reset restart"});
  EXPECT_EQ(source.TakeRenewals(), 1);
  source.Connect();
  source.Replay(0, 9, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 9, 1));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceResume, AnotherRunWithFewerBatchesEndsTheState) {
  SourceHarness source(/*can_replay=*/true);
  source.Resume(PositionAt(5));
  source.Connect();
  source.End();  // the newest batch is below number 4
  EXPECT_EQ(source.TakeDeliveries(), Texts{"reset restart"});
  source.Connect();
  source.Replay(0, 2, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 2, 1));
}

// The ring does not hold the batch that proves the publisher. The publisher may be another run, so
// the groups and the names of the saved state are forgotten too.
TEST(SourceResume, WithoutTheBatchInTheRingThereIsNoProof) {
  SourceHarness source(/*can_replay=*/true);
  source.Resume(PositionAt(5));
  source.Connect();
  source.Replay(7, 9);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset restart", "0.7", "0.8"}));
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

// A publisher sends no batch again over a new connection.
TEST(SourceResume, WithoutReplayALowerNumberIsAnotherRun) {
  SourceHarness source(/*can_replay=*/false);
  source.Resume(PositionAt(1000));
  source.Connect();
  source.Live(0, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset restart", "1.0"}));
  source.Live(1, /*epoch=*/1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(1, 2, 1));
}

TEST(SourceResume, WithoutAnAnswerTheStateStaysUnproven) {
  SourceHarness source(/*can_replay=*/true);
  const SavedPosition saved = PositionAt(5);
  source.Resume(saved);
  source.Connect();
  source.WaitForTimeouts(3);
  EXPECT_EQ(source.TakeDeliveries(), Texts{});
  EXPECT_EQ(source.state(), SourceState::kBootstrap);
  EXPECT_EQ(source.status().weight, 0);
  // A router that restarts again saves the same state.
  EXPECT_EQ(source.Position(), saved);
  source.Disconnect();
  EXPECT_EQ(source.state(), SourceState::kConnecting);
}

TEST(SourceResume, AnIncompleteStateStaysIncomplete) {
  SourceHarness before(/*can_replay=*/true);
  before.Connect();
  before.Replay(3, 5);
  const SavedPosition saved = before.Position().value();
  EXPECT_FALSE(saved.complete);
  SourceHarness source(/*can_replay=*/true);
  source.Resume(saved);
  source.Connect();
  source.Replay(4, 6);
  EXPECT_EQ(source.TakeDeliveries(), Batches(5, 6));
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

TEST(SourceResume, AStateThatMayBeWrongHasNoPosition) {
  SourceHarness source(/*can_replay=*/true);
  EXPECT_EQ(source.Position(), std::nullopt) << "nothing was applied";
  source.JoinAndApply(3);
  EXPECT_NE(source.Position(), std::nullopt);
  source.next_result = BatchResult::kDoubtful;
  source.Live(3);
  EXPECT_EQ(source.Position(), std::nullopt);
}

TEST(SourceResume, AnEmptyPositionIsAColdStart) {
  SourceHarness source(/*can_replay=*/true);
  source.Resume({});
  source.Connect();
  EXPECT_EQ(source.TakeRequest(), 0u);
  source.Replay(0, 2);
  EXPECT_EQ(source.TakeDeliveries(), Batches(0, 2));
}

class SourceResumeExtended : public ExtendedHarness {
 protected:
  void ResumeAt(uint64_t next_seq, uint64_t epoch = 1) {
    source.Resume({.epoch = Epoch{.low = epoch}, .next_seq = next_seq, .complete = true});
    source.OnConnected(now_ms);
    ASSERT_EQ(AskedVerb(), Verb::kStatus);
    ASSERT_EQ(state(), SourceState::kBootstrap);
  }
};

TEST_F(SourceResumeExtended, TheEpochIsTheProof) {
  ResumeAt(5);
  End(5);
  EXPECT_EQ(state(), SourceState::kSynced);
  EXPECT_EQ(source.status(now_ms).digest_checks, 1u);
  EXPECT_EQ(Log(), Texts{});
  Live(5);
  EXPECT_EQ(Log(), Batches(5, 6));
}

// A publisher is silent until it knows the state of its engine.
TEST_F(SourceResumeExtended, AfterATimeoutTheStatusIsRequestedAgain) {
  ResumeAt(5);
  for (uint64_t timeouts = 1; timeouts <= 3; ++timeouts) {
    while (source.status(now_ms).replay_timeouts < timeouts) {
      now_ms = source.deadline_ms();
      source.OnTimer(now_ms);
    }
    ASSERT_EQ(AskedVerb(), Verb::kStatus) << timeouts;
  }
  End(5);
  EXPECT_EQ(state(), SourceState::kSynced);
  EXPECT_EQ(Log(), Texts{});
}

TEST_F(SourceResumeExtended, APublisherWithoutTheExtensionIsAnotherRun) {
  ResumeAt(5);
  PlainEnd();
  EXPECT_EQ(Log(), Texts{"reset restart"});
  EXPECT_EQ(renewals, 1);
}

TEST_F(SourceResumeExtended, MissedBatchesAreReplayed) {
  ResumeAt(5);
  End(7);
  const auto request = Asked();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->verb, Verb::kReplay);
  EXPECT_EQ(request->argument, 4u);
  Reply(4);
  Reply(5);
  Reply(6);
  End(7);
  EXPECT_EQ(Log(), Batches(5, 7));
  EXPECT_EQ(state(), SourceState::kSynced);
}

TEST_F(SourceResumeExtended, AnotherEpochEndsTheState) {
  ResumeAt(5);
  End(9, /*epoch=*/2);
  EXPECT_EQ(Log(), Texts{"reset restart"});
  EXPECT_EQ(renewals, 1);
}

TEST_F(SourceResumeExtended, AStateWithAnotherDigestIsReplaced) {
  verdict = DigestVerdict::kDiffers;
  ResumeAt(5);
  End(5);
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
  EXPECT_EQ(state(), SourceState::kSuspect);
}

// The ring does not hold the missed batches. A snapshot replaces the state.
TEST_F(SourceResumeExtended, BatchesThatNoReplayReturnsNeedASnapshot) {
  ResumeAt(5);
  End(20, /*epoch=*/1, /*first_held=*/10);
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
}

}  // namespace
}  // namespace kvcast::stream
