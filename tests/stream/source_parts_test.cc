// Tests each part of a Source alone: connection, position, copy of the state, publisher, pauses.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/stream/follow/known_publisher.h"
#include "src/stream/follow/live_connection.h"
#include "src/stream/follow/look_schedule.h"
#include "src/stream/follow/replica_state.h"
#include "src/stream/follow/request_pacer.h"
#include "src/stream/follow/state_weight.h"
#include "src/stream/follow/stream_position.h"

namespace kvcast::stream {
namespace {

using CopyContents = ReplicaState::Contents;
using Remedy = ReplicaState::Remedy;
using LiveState = LiveConnection::State;

TEST(LiveConnectionPart, IsUnheardOnlyBeforeTheFirstConnection) {
  LiveConnection connection;
  EXPECT_EQ(connection.unheard_at_ms(), kNever);
  connection.CheckUnheard(100, 50);
  EXPECT_EQ(connection.unheard_at_ms(), 150);
  connection.CheckUnheard(149, 50);
  EXPECT_EQ(connection.state(), LiveState::kAwaited);
  connection.CheckUnheard(150, 50);
  EXPECT_EQ(connection.state(), LiveState::kUnheard);
  EXPECT_EQ(connection.unheard_at_ms(), kNever);
  EXPECT_FALSE(connection.was_up());
  EXPECT_FALSE(connection.Establish(200)) << "this is the first connection";
  connection.CheckUnheard(10000, 50);
  EXPECT_EQ(connection.state(), LiveState::kUp);
}

TEST(LiveConnectionPart, IsSilentUntilTheNextMessage) {
  LiveConnection connection;
  connection.Establish(100);
  connection.CheckSilence(129, 30);
  EXPECT_EQ(connection.state(), LiveState::kUp);
  connection.CheckSilence(130, 30);
  EXPECT_EQ(connection.state(), LiveState::kSilent);
  EXPECT_TRUE(connection.up());
  connection.NoteMessage(131);
  EXPECT_EQ(connection.state(), LiveState::kUp);
  EXPECT_EQ(connection.silent_at_ms(30), 161);
}

TEST(LiveConnectionPart, ALostConnectionIsUpOnlyAfterANewConnection) {
  LiveConnection connection;
  connection.Lose();
  EXPECT_EQ(connection.state(), LiveState::kAwaited) << "no connection was up before";
  connection.Establish(100);
  connection.Lose();
  EXPECT_EQ(connection.state(), LiveState::kLost);
  connection.NoteMessage(101);
  connection.CheckSilence(1000, 30);
  EXPECT_EQ(connection.state(), LiveState::kLost);
  EXPECT_TRUE(connection.Establish(102)) << "a connection was up before";
}

TEST(StreamPositionPart, ANumberThatWasSeenAndNotAppliedIsAHole) {
  StreamPosition position;
  position.SeeLive(0);
  EXPECT_TRUE(position.has_hole());
  position.Advance(1);
  EXPECT_FALSE(position.has_hole());
  position.SeeLive(3);
  EXPECT_TRUE(position.has_hole());
  EXPECT_EQ(position.live_next(), 4u);
  position.Advance(5);
  EXPECT_FALSE(position.has_hole());
  EXPECT_EQ(position.seen_next(), 5u) << "applied numbers count as seen";
}

TEST(StreamPositionPart, AnnouncedNumbersAreMissingWhenTheyAreDue) {
  StreamPosition position;
  position.Advance(5);
  position.Announce(5, 100);
  EXPECT_EQ(position.announced_due_ms(), kNever) << "all announced numbers were seen";
  position.Announce(7, 100);
  position.Announce(9, 50);
  EXPECT_EQ(position.announced_due_ms(), 100) << "one announcement at a time";
  EXPECT_FALSE(position.TakeAnnounced(99));
  EXPECT_FALSE(position.has_hole());
  EXPECT_TRUE(position.TakeAnnounced(100));
  EXPECT_TRUE(position.has_hole());
  EXPECT_EQ(position.seen_next(), 7u);
  EXPECT_FALSE(position.TakeAnnounced(1000));
}

TEST(StreamPositionPart, OnANewConnectionNumbersMayArriveAgain) {
  StreamPosition position;
  position.Advance(3);
  position.SeeLive(7);
  position.Announce(20, 100);
  position.Reconnect();
  EXPECT_EQ(position.live_next(), 3u);
  EXPECT_FALSE(position.has_hole());
  EXPECT_EQ(position.announced_due_ms(), kNever);
}

TEST(StreamPositionDeathTest, DoesNotGoBack) {
  StreamPosition position;
  position.Advance(3);
  EXPECT_DEATH(position.Advance(2), "");
}

TEST(ReplicaStatePart, ContentsFollowTheBatches) {
  ReplicaState replica;
  EXPECT_EQ(replica.contents(), CopyContents::kUnjoined);
  replica.Join();
  EXPECT_EQ(replica.contents(), CopyContents::kEmpty);
  EXPECT_TRUE(replica.NoteApplied());
  EXPECT_EQ(replica.contents(), CopyContents::kWhole);
  EXPECT_FALSE(replica.NoteApplied()) << "this is not the first batch";
  replica.NoteMissing();
  EXPECT_EQ(replica.contents(), CopyContents::kPartial);
  EXPECT_TRUE(replica.Forget());
  EXPECT_EQ(replica.contents(), CopyContents::kCleared);
  EXPECT_FALSE(replica.Forget()) << "there was nothing to forget";
  EXPECT_TRUE(replica.NoteApplied());
  EXPECT_EQ(replica.contents(), CopyContents::kPartial) << "older batches are still missing";
  replica.NoteNothingMissing();
  EXPECT_EQ(replica.contents(), CopyContents::kWhole);
  replica.BeginEpoch();
  EXPECT_EQ(replica.contents(), CopyContents::kUnjoined);
}

TEST(ReplicaStatePart, AReplacementEndsSuspicionAndRemedy) {
  ReplicaState replica;
  replica.NoteApplied();
  replica.NoteMissing();
  replica.Suspect(SourceReason::kBadEvents);
  replica.SetRemedy(Remedy::kReplaceBuckets, 5);
  EXPECT_TRUE(replica.being_replaced());
  EXPECT_EQ(replica.buckets_to_replace(), 5u);
  EXPECT_EQ(replica.reason(), SourceReason::kBadEvents);
  replica.NoteReplaced();
  EXPECT_EQ(replica.contents(), CopyContents::kWhole);
  EXPECT_FALSE(replica.suspect());
  EXPECT_FALSE(replica.being_replaced());
}

TEST(ReplicaStatePart, ASuspectOrReplacedCopyHasNoPendingAudit) {
  ReplicaState replica;
  replica.NoteApplied();
  replica.AuditLater({});
  EXPECT_TRUE(replica.pending_audit());
  replica.Suspect(SourceReason::kContradicted);
  EXPECT_FALSE(replica.pending_audit());
  replica.NoteReplaced();
  replica.AuditLater({});
  replica.SetRemedy(Remedy::kReplaceAll);
  EXPECT_FALSE(replica.pending_audit());
  replica.NoteReplaced();
  replica.AuditLater({});
  replica.Forget();
  EXPECT_FALSE(replica.pending_audit());
}

TEST(PublisherProofPart, APostponedRequirementTakesEffectOnce) {
  PublisherProof proof;
  proof.RequireAfterRequest();
  EXPECT_FALSE(proof.missing());
  EXPECT_TRUE(proof.ApplyAfterRequest());
  EXPECT_TRUE(proof.missing());
  proof.Give();
  EXPECT_FALSE(proof.ApplyAfterRequest());
  proof.RequireAtNextLive();
  proof.Reconnect();
  EXPECT_FALSE(proof.ApplyAtNextLive()) << "the requirement was for the previous connection";
  EXPECT_FALSE(proof.missing());
}

TEST(KnownPublisherPart, AStatusBelowTheAppliedNumbersIsOfAnotherPublisher) {
  KnownPublisher publisher;
  residency::PublisherStatus status;
  status.next_seq = 5;
  EXPECT_FALSE(publisher.Replaces(status, 0));
  EXPECT_FALSE(publisher.Replaces(status, 5));
  EXPECT_TRUE(publisher.Replaces(status, 6));
  publisher.epoch = status.epoch;
  EXPECT_FALSE(publisher.Replaces(status, 6)) << "the epoch decides";
}

TEST(KnownPublisherPart, TheEpochMustBeOlderThanTheConnection) {
  KnownPublisher publisher;
  const residency::PublisherStatus status;
  publisher.latest_epoch = status.epoch;
  EXPECT_FALSE(publisher.IsPeerOfConnection(status));
  publisher.Reconnect();
  EXPECT_TRUE(publisher.IsPeerOfConnection(status));
}

TEST(RequestPacerPart, AHoleIsGivenUpAfterThreeTriesAtTheSameNumber) {
  RequestPacer pacer(0);
  EXPECT_FALSE(pacer.GiveUpHole(4));
  EXPECT_FALSE(pacer.GiveUpHole(4));
  EXPECT_FALSE(pacer.GiveUpHole(5)) << "progress was made";
  EXPECT_FALSE(pacer.GiveUpHole(5));
  EXPECT_TRUE(pacer.GiveUpHole(5));
  EXPECT_FALSE(pacer.GiveUpHole(5)) << "the count starts again";
}

TEST(RequestPacerPart, RequestsWithoutProgressPauseTwiceAsLongEachTime) {
  RequestPacer pacer(0);
  int64_t now_ms = 0;
  for (int i = 0; i < RequestPacer::kMaxTries; ++i) EXPECT_TRUE(pacer.MayAskAgain(7, now_ms));
  for (int64_t pause_ms : {100, 100, 200, 400, 800, 1600, 3200, 5000, 5000}) {
    if (pause_ms > 100) {
      EXPECT_FALSE(pacer.MayAskAgain(7, now_ms + pause_ms / 2 - 1));
    }
    now_ms = pacer.retry_due_ms();
    EXPECT_TRUE(pacer.MayAskAgain(7, now_ms));
    EXPECT_LE(pacer.retry_due_ms() - now_ms, RequestPacer::kMaxRetryMs);
  }
  EXPECT_EQ(pacer.retry_due_ms() - now_ms, RequestPacer::kMaxRetryMs);
  EXPECT_TRUE(pacer.MayAskAgain(8, now_ms)) << "progress ends the pause";
}

TEST(RequestPacerPart, JitterStaysWithinAQuarter) {
  RequestPacer exact(0);
  EXPECT_EQ(exact.Jittered(1000), 1000);
  RequestPacer pacer(42);
  int64_t shortest_ms = 1000, longest_ms = 1000;
  for (int i = 0; i < 1000; ++i) {
    const int64_t ms = pacer.Jittered(1000);
    shortest_ms = std::min(shortest_ms, ms);
    longest_ms = std::max(longest_ms, ms);
  }
  EXPECT_GE(shortest_ms, 750);
  EXPECT_LE(longest_ms, 1250);
  EXPECT_LT(shortest_ms, 780) << "the jitter must use its whole range";
  EXPECT_GT(longest_ms, 1220);
}

TEST(LookSchedulePart, ASecondProbeSoonFollowsTheFirstProbe) {
  LookSchedule looks(2000);
  EXPECT_EQ(looks.probe_due_ms(), kAtOnce);
  looks.NoteJoined(10);
  EXPECT_EQ(looks.probe_due_ms(), 10 + LookSchedule::kSettleMs);
  looks.NoteJoined(200);
  EXPECT_EQ(looks.probe_due_ms(), 2200);
  looks.Restart();
  looks.NoteJoined(300);
  EXPECT_EQ(looks.probe_due_ms(), 300 + LookSchedule::kSettleMs);
}

TEST(StateWeightPart, FallsWithTheTimeSinceTheStateWasSure) {
  StateWeight weight;
  weight.Note(SourceState::kSynced, 0);
  EXPECT_TRUE(weight.is_sure());
  EXPECT_EQ(weight.At(SourceState::kSynced, 1000000), 1);
  weight.Note(SourceState::kGap, 1000);
  weight.Note(SourceState::kGap, 1200);
  EXPECT_FALSE(weight.is_sure());
  EXPECT_EQ(weight.At(SourceState::kGap, 1250), 1) << "a short gap";
  EXPECT_EQ(weight.At(SourceState::kGap, 1251), 0.5);
  EXPECT_EQ(weight.At(SourceState::kSuspect, 5999), 0.5);
  EXPECT_EQ(weight.At(SourceState::kSuspect, 6000), 0.25);
  EXPECT_EQ(weight.At(SourceState::kStale, 31000), 0);
  EXPECT_EQ(weight.At(SourceState::kQuarantined, 1000), 0);
  EXPECT_EQ(weight.At(SourceState::kConnecting, 1000), 0);
}

}  // namespace
}  // namespace kvcast::stream
