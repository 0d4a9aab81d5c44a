// The source closes a gap in the live stream by replay, or reports the loss.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/stream/source_harness.h"

namespace kvcast::stream {
namespace {

TEST(SourceGap, IsClosedByReplayFromTheLastAppliedBatch) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(6);
  EXPECT_EQ(source.TakeRequest(), 2u);
  EXPECT_EQ(source.state(), SourceState::kGap);
  source.Replay(2, 7);
  EXPECT_EQ(source.TakeDeliveries(), Batches(3, 7));
  EXPECT_EQ(source.state(), SourceState::kSynced);
  EXPECT_EQ(source.status().gaps, 1u);
  EXPECT_EQ(source.status().lost, 0u);
}

TEST(SourceGap, IsClosedBeforeTheReplayEnds) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(5);
  source.Reply(2);
  source.Reply(3);
  source.Reply(4);
  EXPECT_EQ(source.TakeDeliveries(), Batches(3, 6));
  source.Live(6);
  EXPECT_EQ(source.TakeDeliveries(), Batches(6, 7));
}

TEST(SourceGap, ThatReplayCannotFillIsGivenUpAfterThreeTries) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(1);
  source.Live(2);
  for (int attempt = 1; attempt <= RequestPacer::kMaxTries; ++attempt) {
    EXPECT_EQ(source.TakeRequest(), 0u) << attempt;
    EXPECT_EQ(source.TakeDeliveries(), Texts{}) << attempt;
    source.Reply(0);
    source.Reply(2);  // number 1 belongs to a batch that was never sent
    source.End();
  }
  EXPECT_EQ(source.TakeRequest(), std::nullopt);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset lost_batches", "0.2"}));
  EXPECT_EQ(source.state(), SourceState::kCleared);
  EXPECT_EQ(source.status().lost, 1u);
  source.Live(3);
  EXPECT_EQ(source.TakeDeliveries(), Batches(3, 4));
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

TEST(SourceGap, BehindTheRingIsGivenUpAtOnce) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(20);
  source.Replay(15, 21);
  EXPECT_EQ(source.TakeDeliveries().front(), "reset lost_batches");
  EXPECT_EQ(source.status().next_seq, 21u);
  EXPECT_EQ(source.status().lost, 12u);
  EXPECT_EQ(source.status().first_seq, 15u);
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

TEST(SourceGap, ProgressGrantsNewTries) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(1);
  source.Live(9);
  for (uint64_t seq = 1; seq < 9; ++seq) {
    source.Reply(seq - 1);
    source.Reply(seq);
    source.End();  // the server stops after each batch
  }
  EXPECT_EQ(source.TakeDeliveries(), Batches(1, 10));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceGap, TwoHolesAreGivenUpOneByOne) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(1);
  source.Live(2);
  source.Live(4);
  for (int attempt = 0; attempt < 2 * RequestPacer::kMaxTries; ++attempt) source.End();
  EXPECT_EQ(source.TakeDeliveries(),
            (Texts{"reset lost_batches", "0.2", "reset lost_batches", "0.4"}));
  EXPECT_EQ(source.status().lost, 2u);
}

TEST(SourceGap, SeenOnlyInAReplayIsAHoleToo) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  for (int attempt = 0; attempt < RequestPacer::kMaxTries; ++attempt) {
    source.Reply(0);
    source.Reply(2);
    source.Reply(3);
    source.End();
  }
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"0.0", "reset lost_batches", "0.2", "0.3"}));
  EXPECT_EQ(source.state(), SourceState::kCleared);
}

TEST(SourceGap, WithoutReplayIsALossAtOnce) {
  SourceHarness source(/*can_replay=*/false);
  source.JoinAndApply(3);
  source.Live(5);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset lost_batches", "0.5"}));
  EXPECT_EQ(source.state(), SourceState::kCleared);
  EXPECT_EQ(source.status().lost, 2u);
}

TEST(SourceGap, UnansweredReplayIsGivenUpAfterThreeTimeouts) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(5);
  source.WaitForTimeouts(RequestPacer::kMaxTries - 1);
  EXPECT_EQ(source.TakeDeliveries(), Texts{});
  source.WaitForTimeouts(RequestPacer::kMaxTries);
  EXPECT_EQ(source.TakeDeliveries(), (Texts{"reset lost_batches", "0.5"}));
}

TEST(SourceGap, FullHoldBackIsFetchedAgain) {
  SourceLimits limits;
  limits.hold_back_batches = 2;
  SourceHarness source(/*can_replay=*/true, limits);
  source.JoinAndApply(1);
  for (uint64_t seq = 2; seq < 8; ++seq) source.Live(seq);
  source.Replay(0, 4);  // the ring at the time of the first gap
  EXPECT_EQ(source.TakeDeliveries(), Batches(1, 4));
  EXPECT_EQ(source.state(), SourceState::kGap) << "numbers seen live are still missing";
  EXPECT_EQ(source.TakeRequest(), 3u);
  source.Replay(3, 8);
  EXPECT_EQ(source.TakeDeliveries(), Batches(4, 8));
  EXPECT_EQ(source.state(), SourceState::kSynced);
}

TEST(SourceGap, UnprovenBatchesAreReplacedAndDropped) {
  const auto text = [](const std::optional<HoldBack::Held>& held) {
    return held ? std::string(held->payload.begin(), held->payload.end()) : "nothing";
  };
  const Bytes live = TestPayload(5);
  const Bytes unproven_payload = TestPayload(5, 1);
  HoldBack hold_back(/*max_batches=*/100, /*max_bytes=*/1000);
  hold_back.Add({5, unproven_payload}, /*unproven=*/true);
  hold_back.Add({6, unproven_payload}, /*unproven=*/true);
  hold_back.Add({5, live});
  hold_back.Add({5, unproven_payload}, /*unproven=*/true);
  hold_back.DropUnproven();
  EXPECT_EQ(hold_back.batches(), 1u);
  EXPECT_EQ(hold_back.bytes(), live.size());
  EXPECT_EQ(text(hold_back.Take(5)), TestText(5));

  hold_back.Add({7, unproven_payload}, /*unproven=*/true);
  hold_back.Prove();
  hold_back.DropUnproven();
  EXPECT_EQ(text(hold_back.Take(7)), TestText(5, 1));
  EXPECT_EQ(hold_back.bytes(), 0u);
}

TEST(SourceGap, HeldBatchesBelowANumberAreDropped) {
  HoldBack hold_back(/*max_batches=*/100, /*max_bytes=*/1000);
  for (const uint64_t seq : {uint64_t{5}, uint64_t{6}, uint64_t{8}}) {
    hold_back.Add({seq, TestPayload(seq)});
  }
  hold_back.DropBelow(6);
  EXPECT_EQ(hold_back.first_seq(), 6u);
  hold_back.DropBelow(9);
  EXPECT_EQ(hold_back.first_seq(), std::nullopt);
  EXPECT_EQ(hold_back.bytes(), 0u);
}

TEST(SourceGap, BytesBoundTheHoldBack) {
  HoldBack hold_back(/*max_batches=*/100, /*max_bytes=*/10);
  const Bytes payload(6);
  EXPECT_TRUE(hold_back.Add({5, payload}));
  EXPECT_FALSE(hold_back.Add({6, payload}));
  EXPECT_EQ(hold_back.bytes(), 6u);
  EXPECT_TRUE(hold_back.Take(5));
  EXPECT_TRUE(hold_back.Add({6, payload}));
}

TEST(SourceGap, RepeatedLiveBatchIsDroppedWhileHeldBackToo) {
  SourceHarness source(/*can_replay=*/true);
  source.JoinAndApply(3);
  source.Live(5);
  source.Live(5);
  source.Replay(2, 6);
  source.Live(5);
  source.Live(4);
  EXPECT_EQ(source.TakeDeliveries(), Batches(3, 6));
  EXPECT_EQ(source.status().duplicates, 3u);
  EXPECT_EQ(source.status().resets, 0u);
}

}  // namespace
}  // namespace kvcast::stream
