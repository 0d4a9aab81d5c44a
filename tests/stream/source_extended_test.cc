// Tests sources whose publishers support KVX1 (schemas/README.md). Epochs identify the publisher,
// snapshots replace clears, and digests find damage that sequence numbers do not show.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "tests/stream/extended_harness.h"

namespace kvcast::stream {
namespace {

using SourceExtended = ExtendedHarness;

TEST_F(SourceExtended, TheFirstRequestIsForAStatus) {
  source.OnConnected(now_ms);
  EXPECT_EQ(AskedVerb(), Verb::kStatus);
  PlainEnd();
  EXPECT_EQ(plain_replay_start, 0u) << "a legacy publisher must get a plain replay request";
  EXPECT_FALSE(source.status(now_ms).extended);
}

TEST_F(SourceExtended, TheFirstConnectionIsRenewedWhenThePublisherIsKnown) {
  source.OnConnected(now_ms);
  Live(5);
  End(6);
  EXPECT_EQ(renewals, 1) << "the peer may be the previous publisher";
  source.OnConnected(now_ms);
  End(6);
  EXPECT_EQ(renewals, 1);
  EXPECT_EQ(AskedVerb(), Verb::kReplay);
}

// A publisher may make a status and then publish a batch. The live batch may arrive before the
// status.
TEST_F(SourceExtended, ALiveBatchMayBeNewerThanTheStatus) {
  source.OnConnected(now_ms);
  Asked();
  Live(0);
  Live(1);
  End(1);
  EXPECT_EQ(AskedVerb(), Verb::kReplay) << "for a batch that proves the publisher";
  Reply(1);
  Live(2);
  End(2);
  EXPECT_EQ(Log(), Batches(0, 3));
  EXPECT_EQ(state(), SourceState::kSynced);
  EXPECT_EQ(renewals, 0);
  End(3);
  EXPECT_EQ(source.status(now_ms).resets, 0u);
}

TEST_F(SourceExtended, AStatusWithoutTheBatchesBeforeItsRequestIsOfAnotherPublisher) {
  source.OnConnected(now_ms);
  Live(0);
  Live(1);
  End(1);
  EXPECT_EQ(renewals, 0);
  End(1);
  EXPECT_EQ(renewals, 1);
  EXPECT_EQ(source.status(now_ms).resets, 1u);
}

// Digests of a publisher that is not proven show nothing.
TEST_F(SourceExtended, AStatusWithoutProofIsNotCompared) {
  source.OnConnected(now_ms);
  Live(0);
  Live(2);
  verdict = DigestVerdict::kDiffers;
  End(1);
  EXPECT_EQ(source.status(now_ms).digest_checks, 0u);
}

TEST_F(SourceExtended, HistoryIsAppliedWhenItsEpochIsKnown) {
  Join(3);
  EXPECT_EQ(AskedVerb(), Verb::kReplay);
  for (uint64_t seq = 0; seq < 3; ++seq) Reply(seq);
  EXPECT_EQ(Log(), Texts{});
  EXPECT_EQ(state(), SourceState::kBootstrap);
  End(3);
  EXPECT_EQ(Log(), Batches(0, 3));
  EXPECT_EQ(state(), SourceState::kSynced);
}

TEST_F(SourceExtended, HistoryOfAnotherEpochIsNotApplied) {
  Join(3);
  for (uint64_t seq = 0; seq < 3; ++seq) Reply(seq, 1);
  End(3, /*epoch=*/2);
  EXPECT_EQ(Log(), Texts{});
  EXPECT_EQ(renewals, 1);
}

TEST_F(SourceExtended, HistoryThatHasLeftTheRingIsReplacedByASnapshot) {
  Join(10, /*first_held=*/4);
  const auto request = Asked();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->verb, Verb::kSnapshot);
  EXPECT_EQ(request->argument, ~uint64_t{0});
  Live(10);
  Reply(10);
  End(10);
  EXPECT_EQ(Log(), (Texts{"begin", "commit", "0.10"}));
  EXPECT_EQ(state(), SourceState::kSynced);
}

// A publisher copies and sorts its blocks before it sends the first part of a snapshot.
class SourceSnapshotTime : public ExtendedHarness {
 protected:
  // Joins a publisher with this number of copies. The source then waits for a snapshot.
  void AskForSnapshotOf(uint64_t copies) {
    PublisherStatus status;
    status.epoch.low = 1;
    status.first_held = 4;
    status.next_seq = 10;
    status.has_digests = true;
    status.groups = {{{Tier::kGpu, 0, {.high = 1, .low = 1, .copies = copies}}, std::nullopt}};
    for (int i = 0; i < 2; ++i) {
      source.OnConnected(now_ms);
      End(status);
    }
    ASSERT_EQ(AskedVerb(), Verb::kSnapshot);
  }
  int64_t MsUntilTimeout() {
    const int64_t begin_ms = now_ms;
    while (source.status(now_ms).replay_timeouts == 0) WaitUntilDue();
    return now_ms - begin_ms;
  }
};

TEST_F(SourceSnapshotTime, GrowsWithTheBlocks) {
  AskForSnapshotOf(6'400'000);
  EXPECT_EQ(MsUntilTimeout(), 2000 + 32'000);
}

// The publisher may make a snapshot for another client between two replies.
TEST_F(SourceSnapshotTime, BeginsAnewWithEachReply) {
  AskForSnapshotOf(6'400'000);
  now_ms += 30'000;
  Reply(10);
  EXPECT_EQ(MsUntilTimeout(), 2000 + 32'000);
}

TEST_F(SourceSnapshotTime, IsTheUsualTimeForFewBlocks) {
  AskForSnapshotOf(199);
  EXPECT_EQ(MsUntilTimeout(), 2000);
}

TEST_F(SourceSnapshotTime, HasALimit) {
  AskForSnapshotOf(~uint64_t{0});
  EXPECT_EQ(MsUntilTimeout(), 2000 + 60'000);
}

TEST_F(SourceExtended, EpochProvesANewConnection) {
  JoinEmpty();
  Live(0);
  source.OnDisconnected();
  EXPECT_EQ(state(), SourceState::kStale);
  source.OnConnected(now_ms);
  EXPECT_EQ(reason(), SourceReason::kReconnected);
  Live(1);
  EXPECT_EQ(Log(), Batches(0, 1));
  End(2);
  EXPECT_EQ(Log(), Batches(1, 2));
  EXPECT_EQ(state(), SourceState::kSynced);
}

// The batches of the new publisher must not be saved with the epoch of the previous publisher.
TEST_F(SourceExtended, WithoutABatchANewConnectionHasNoKnownEpoch) {
  JoinEmpty();
  source.OnDisconnected();
  source.OnConnected(now_ms);
  EXPECT_EQ(state(), SourceState::kBootstrap);
  Live(0, /*epoch=*/1);
  ASSERT_TRUE(source.Position());
  EXPECT_FALSE(source.Position()->epoch);
  End(1, /*epoch=*/2);
  Live(1, /*epoch=*/1);
  ASSERT_TRUE(source.Position());
  EXPECT_FALSE(source.Position()->epoch) << "a replay must show which publisher sent batch 0";
  EXPECT_EQ(AskedVerb(), Verb::kReplay);
}

TEST_F(SourceExtended, AnotherEpochIsFenced) {
  JoinEmpty();
  Live(0);
  source.OnDisconnected();
  source.OnConnected(now_ms);
  Live(1, 1);  // the number fits, but the epoch differs
  End(2, /*epoch=*/2);
  EXPECT_EQ(Log(), (Texts{"0.0", "reset restart"}));
  EXPECT_EQ(renewals, 1);
}

// The answer may come from another publisher. Only the end of the answer identifies the publisher.
TEST_F(SourceExtended, AnAnswerWithoutItsEndIsNotApplied) {
  JoinEmpty();
  Live(0);
  source.OnContradiction(now_ms);
  End(1);
  EXPECT_EQ(Log(), (Texts{"0.0", "begin", "commit"}));
  Asked();
  Live(2);
  EXPECT_EQ(AskedVerb(), Verb::kReplay);
  while (state() != SourceState::kCleared) {
    Reply(1, /*epoch=*/1);
    source.OnReplyCut(now_ms);
    WaitUntilDue();
  }
  EXPECT_EQ(Log(), (Texts{"reset lost_batches", "0.2"}));
}

TEST_F(SourceExtended, APublisherThatForgotTheExtensionGetsANewConnection) {
  source.OnConnected(now_ms);
  End(0);
  ASSERT_EQ(std::exchange(renewals, 0), 1);
  source.OnConnected(now_ms);
  Live(5);
  PlainEnd();
  EXPECT_EQ(renewals, 1) << "live messages may come from the previous publisher";
  EXPECT_FALSE(source.status(now_ms).extended);
  source.OnConnected(now_ms);
  PlainEnd();
  EXPECT_EQ(plain_replay_start, 0u);
  Reply(0, 1);
  PlainEnd();
  EXPECT_EQ(Log(), Texts{"1.0"});
  EXPECT_EQ(renewals, 1);
}

TEST_F(SourceExtended, UndecodableBatchIsReplacedNotForgotten) {
  JoinEmpty();
  Live(0);
  next_result = BatchResult::kUndecodable;
  Live(1);
  EXPECT_EQ(state(), SourceState::kSuspect);
  EXPECT_EQ(reason(), SourceReason::kUndecodable);
  EXPECT_EQ(source.status(now_ms).weight, 0.5);
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
  Live(2);
  EXPECT_EQ(Log(), (Texts{"0.0", "0.1", "begin"})) << "later batches must wait";
  Reply(2);
  End(2);
  EXPECT_EQ(Log(), (Texts{"commit", "0.2"}));
  EXPECT_EQ(state(), SourceState::kSynced);
  EXPECT_EQ(source.status(now_ms).weight, 1);
}

TEST_F(SourceExtended, PartsOfTwoMomentsAreNoSnapshot) {
  Join(10, /*first_held=*/4);
  Reply(10);
  Reply(11);
  EXPECT_EQ(Log(), (Texts{"begin", "drop", "begin"})) << "the snapshot must be requested again";
}

TEST_F(SourceExtended, SnapshotOfThePastIsRefused) {
  JoinEmpty();
  Live(0);
  Live(1);
  source.OnContradiction(now_ms);
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
  Log();
  End(1);
  EXPECT_EQ(Log(), (Texts{"drop", "begin"}));
}

TEST_F(SourceExtended, ThreeFailedSnapshotsResetTheStateAndAreRetriedLater) {
  JoinEmpty();
  Live(0);
  source.OnContradiction(now_ms);
  commits = false;
  for (int i = 0; i < RequestPacer::kMaxTries; ++i) End(1);
  EXPECT_EQ(Log(), (Texts{"0.0", "begin", "refuse", "drop", "begin", "refuse", "drop", "begin",
                          "refuse", "drop", "reset doubt"}));
  EXPECT_EQ(state(), SourceState::kCleared);
  commits = true;
  Asked();
  now_ms += RequestPacer::kSnapshotPauseMs;
  source.OnTimer(now_ms);
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
  End(1);
  EXPECT_EQ(state(), SourceState::kSynced);
}

// Otherwise the thread that calls OnTimer would not sleep until the retry.
TEST_F(SourceExtended, ARetryOfASnapshotIsNotDueAtOnce) {
  JoinEmpty();
  Live(0);
  next_result = BatchResult::kImpossible;
  Live(1);
  commits = false;
  source.OnTimer(now_ms);
  ASSERT_EQ(AskedVerb(), Verb::kSnapshot);
  End(2);
  End(2);
  source.OnDisconnected();
  source.OnConnected(now_ms);
  End(2);
  Asked();
  EXPECT_GT(source.deadline_ms(), now_ms);
  WaitUntilDue();
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
}

TEST_F(SourceExtended, DifferingDigestsMakeTheStateSuspect) {
  JoinEmpty();
  Live(0);
  verdict = DigestVerdict::kDiffers;
  now_ms += Limits().audit_interval_ms;
  source.OnTimer(now_ms);
  EXPECT_EQ(AskedVerb(), Verb::kStatus);
  End(1);
  EXPECT_EQ(state(), SourceState::kSuspect);
  EXPECT_EQ(reason(), SourceReason::kDigest);
  EXPECT_EQ(source.status(now_ms).digest_mismatches, 1u);
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
}

TEST_F(SourceExtended, DigestIsComparedWhenItsBatchesHaveArrived) {
  JoinEmpty();
  now_ms += Limits().audit_interval_ms;
  source.OnTimer(now_ms);
  const uint64_t checks = source.status(now_ms).digest_checks;
  End(2);
  Live(0);
  EXPECT_EQ(source.status(now_ms).digest_checks, checks);
  Live(1);
  EXPECT_EQ(source.status(now_ms).digest_checks, checks + 1);
}

TEST_F(SourceExtended, ATailThatAStatusShowsIsRequested) {
  JoinEmpty();
  Live(0);
  now_ms += Limits().probe_interval_ms;
  source.OnTimer(now_ms);
  Asked();
  End(3);
  EXPECT_EQ(state(), SourceState::kSynced) << "the batches may be on their way";
  now_ms += LookSchedule::kSettleMs;
  source.OnTimer(now_ms);
  EXPECT_EQ(state(), SourceState::kGap);
  EXPECT_EQ(AskedVerb(), Verb::kReplay);
  for (uint64_t seq = 0; seq < 3; ++seq) Reply(seq);
  End(3);
  EXPECT_EQ(Log(), Batches(0, 3));
  EXPECT_EQ(state(), SourceState::kSynced);
}

TEST_F(SourceExtended, TheWeightFallsWhileDisconnected) {
  JoinEmpty();
  Live(0);
  source.OnDisconnected();
  const int64_t since = now_ms;
  EXPECT_EQ(source.status(since + 4999).weight, 0.5);
  EXPECT_EQ(source.status(since + 5000).weight, 0.25);
  EXPECT_EQ(source.status(since + 30000).weight, 0);
}

TEST_F(SourceExtended, TheWeightStaysFullForAMomentInAGap) {
  JoinEmpty();
  Live(0);
  Live(2);
  EXPECT_EQ(state(), SourceState::kGap);
  EXPECT_EQ(source.status(now_ms).lag, 2u);
  EXPECT_EQ(source.status(now_ms + 250).weight, 1);
  EXPECT_EQ(source.status(now_ms + 251).weight, 0.5);
}

TEST_F(SourceExtended, RequestsWithoutProgressAreMadeAtGrowingIntervals) {
  JoinEmpty();
  commits = false;
  Live(0);
  Live(2);
  const int64_t start_ms = now_ms;
  std::vector<int64_t> asked_ms;
  while (asked_ms.size() < 6) {
    while (AskedVerb()) {
      asked_ms.push_back(now_ms - start_ms);
      ASSERT_LE(asked_ms.size(), 20u);
      End(3);
    }
    now_ms = std::max(now_ms, source.deadline_ms());
    source.OnTimer(now_ms);
  }
  const std::vector<int64_t> want = {0, 0, 0, 100, 300, 700};
  EXPECT_EQ(asked_ms, want);
}

// The source never had a state that could be audited, so an audit must not be due.
TEST_F(SourceExtended, ASourceWithoutAStateIsNotAuditedBetweenRequests) {
  Join(10);
  for (uint64_t timeouts = 0; timeouts < RequestPacer::kMaxTries; ++timeouts) {
    EXPECT_EQ(AskedVerb(), Verb::kReplay) << timeouts;
    while (source.status(now_ms).replay_timeouts == timeouts) WaitUntilDue();
  }
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
  source.OnConnected(now_ms);
  EXPECT_EQ(AskedVerb(), Verb::kStatus);
  End(10);
  EXPECT_EQ(state(), SourceState::kBootstrap);
  source.OnTimer(now_ms);
  EXPECT_FALSE(Asked()) << "before the retry is due";
  const int64_t since_ms = now_ms;
  while (!asked && source.deadline_ms() < kNever) WaitUntilDue();
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
  EXPECT_EQ(now_ms - since_ms, 2 * RequestPacer::kMinRetryMs);
}

// Each timeout delays the next request further, so live batches arrive between the requests.
TEST_F(SourceExtended, AHoleIsGivenUpThoughBatchesComeBetweenTheRequests) {
  JoinEmpty();
  Live(0);
  source.OnDisconnected();
  source.OnConnected(now_ms);
  while (source.status(now_ms).replay_timeouts <= RequestPacer::kMaxTries) WaitUntilDue();
  ASSERT_EQ(AskedVerb(), Verb::kStatus);
  Live(2);
  uint64_t next_seq = 3;
  End(next_seq);
  int replays = 0;
  for (std::optional<Verb> verb; verb != Verb::kSnapshot; verb = AskedVerb()) {
    if (verb == Verb::kReplay) {
      ++replays;
      // Number 1 belongs to a refused batch.
      for (uint64_t seq = 2; seq < next_seq; ++seq) Reply(seq);
      End(next_seq);
    } else {
      ASSERT_LT(next_seq, 30u) << "requested " << replays << " times";
      Live(next_seq++);
      now_ms = std::max(now_ms, source.deadline_ms());
      source.OnTimer(now_ms);
    }
  }
  EXPECT_EQ(replays, RequestPacer::kMaxTries);
  End(next_seq);
  EXPECT_EQ(Log(), (Texts{"0.0", "begin", "commit"}));
  EXPECT_EQ(state(), SourceState::kSynced);
}

// The publisher has lost its own state. Each further reset would drop batches that were applied
// since the first reset.
TEST_F(SourceExtended, APublisherWithoutDigestsIsAskedForOneSnapshot) {
  JoinEmpty();
  Live(0);
  source.OnContradiction(now_ms);
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
  EndWithoutDigests(1);
  EXPECT_EQ(Log(), (Texts{"0.0", "begin", "drop", "reset lost_batches"}));
  Live(1);
  const int64_t until_ms = now_ms + 10 * RequestPacer::kSnapshotPauseMs;
  while (now_ms < until_ms) {
    now_ms = std::max(now_ms, source.deadline_ms());
    source.OnTimer(now_ms);
    if (const auto verb = AskedVerb()) {
      EXPECT_EQ(verb, Verb::kStatus);
      EndWithoutDigests(2);
    }
  }
  EXPECT_EQ(Log(), Texts{"0.1"}) << "the state must not be reset again";
  EXPECT_EQ(state(), SourceState::kCleared);
  source.OnContradiction(now_ms);
  EXPECT_EQ(Log(), Texts{"reset doubt"}) << "the publisher gives no snapshots";
}

// The ring holds a batch that ends each connection, so each answer ends before its status.
TEST_F(SourceExtended, WithoutSnapshotsAnAnswerThatIsAlwaysCutOffIsGivenUp) {
  source.OnConnected(now_ms);
  EndWithoutDigests(3);
  source.OnConnected(now_ms);
  EndWithoutDigests(3);
  Live(3);
  for (int i = 0; i < 10 && state() != SourceState::kCleared; ++i) {
    if (AskedVerb() == Verb::kStatus) {
      EndWithoutDigests(4);
    } else {
      Reply(0);
      source.OnReplyCut(now_ms);
      WaitUntilDue();
    }
  }
  EXPECT_EQ(Log(), Batches(3, 4));
  EXPECT_EQ(state(), SourceState::kCleared);
}

TEST_F(SourceExtended, WithoutSnapshotsADoubtfulStateIsForgotten) {
  JoinEmpty();
  Live(0);
  now_ms += Limits().audit_interval_ms;
  source.OnTimer(now_ms);
  EndWithoutDigests(1);
  EXPECT_EQ(state(), SourceState::kSynced);
  next_result = BatchResult::kImpossible;
  Live(1);
  EXPECT_EQ(reason(), SourceReason::kContradicted);
  source.OnTimer(now_ms);
  EXPECT_EQ(Log(), (Texts{"0.0", "0.1", "reset doubt"}));
  EXPECT_EQ(state(), SourceState::kCleared);
}

TEST_F(SourceExtended, WithoutDigestsAQuarantineEndsInTime) {
  JoinEmpty();
  for (uint64_t i = 0; i < 3; ++i) {
    Live(i);
    source.OnContradiction(now_ms);
    Asked();
    EndWithoutDigests(i + 1);
  }
  EXPECT_EQ(state(), SourceState::kQuarantined);
  const int64_t until_ms = now_ms + Quarantine::kMinMs;
  while (now_ms < until_ms) {
    now_ms = std::max(now_ms, source.deadline_ms());
    source.OnTimer(now_ms);
    if (Asked()) EndWithoutDigests(3);
  }
  EXPECT_EQ(now_ms, until_ms) << "a timer must end the quarantine";
  EXPECT_EQ(state(), SourceState::kCleared);
}

TEST_F(SourceExtended, TheNextEpochHasSnapshotsAgain) {
  JoinEmpty();
  Live(0);
  source.OnContradiction(now_ms);
  EndWithoutDigests(1);
  source.OnDisconnected();
  source.OnConnected(now_ms);
  End(0, /*epoch=*/2);
  source.OnConnected(now_ms);
  End(0, /*epoch=*/2);
  Log();
  Live(0, /*epoch=*/1);
  source.OnContradiction(now_ms);
  EXPECT_EQ(AskedVerb(), Verb::kSnapshot);
}

TEST_F(SourceExtended, AnAuditWithCutAnswersIsPostponed) {
  JoinEmpty();
  Live(0);
  now_ms += Limits().audit_interval_ms;
  source.OnTimer(now_ms);
  for (int i = 0; i < RequestPacer::kMaxTries; ++i) {
    EXPECT_EQ(AskedVerb(), Verb::kStatus) << i;
    source.OnReplyCut(now_ms);
    WaitUntilDue();
  }
  EXPECT_FALSE(Asked());
  source.OnTimer(now_ms);
  EXPECT_FALSE(Asked());
  EXPECT_EQ(source.deadline_ms(), now_ms + Limits().probe_interval_ms);
}

}  // namespace
}  // namespace kvcast::stream
