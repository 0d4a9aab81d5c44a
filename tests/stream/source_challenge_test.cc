// Tests when a source sends a challenge, and how it handles the answer.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/stream/extended_harness.h"

namespace kvcast::stream {
namespace {

class SourceChallenge : public ExtendedHarness {
 protected:
  SourceChallenge() { wants_challenge = true; }

  // The end of an answer of a publisher that answers challenges.
  void EndWithFlag(uint64_t next_seq, uint64_t epoch = 1) {
    PublisherStatus status;
    status.epoch.low = epoch;
    status.next_seq = next_seq;
    status.has_digests = true;
    status.answers_challenges = true;
    End(status);
  }
  // Joins a publisher without batches. The challenge is open afterwards.
  void JoinUntilChallenge(uint64_t epoch = 1) {
    source.OnConnected(now_ms);
    EndWithFlag(0, epoch);
    renewals = 0;
    source.OnConnected(now_ms);
    EndWithFlag(0, epoch);
    ASSERT_EQ(Asked(), (ExtensionRequest{Verb::kChallenge, 0, 0xabcd}));
  }
  void NextAudit() {
    now_ms += Limits().audit_interval_ms;
    source.OnTimer(now_ms);
    ASSERT_EQ(AskedVerb(), Verb::kStatus);
    EndWithFlag(0);
  }
};

TEST_F(SourceChallenge, FollowsTheFirstStatus) {
  JoinUntilChallenge();
  Reply(0);
  wants_challenge = false;
  End(0);
  EXPECT_EQ(Log(), Texts{"answer " + Batches(0, 1)[0]});
  EXPECT_EQ(Asked(), std::nullopt);
  EXPECT_EQ(state(), SourceState::kSynced);
  EXPECT_EQ(source.status(now_ms).batches, 0u) << "an answer is not a batch of the stream";
}

TEST_F(SourceChallenge, TheStateIsSyncedBeforeTheAnswer) {
  JoinUntilChallenge();
  EXPECT_EQ(state(), SourceState::kSynced);
  Live(0);
  Live(1);
  EXPECT_EQ(Log(), Batches(0, 2)) << "batches must not wait for the answer";
}

TEST_F(SourceChallenge, IsNotSentToAPublisherThatAnswersNone) {
  JoinEmpty();
  now_ms += Limits().audit_interval_ms;
  source.OnTimer(now_ms);
  EXPECT_EQ(AskedVerb(), Verb::kStatus);
  End(0);
  EXPECT_EQ(Asked(), std::nullopt);
}

TEST_F(SourceChallenge, IsNotSentWithoutNeed) {
  wants_challenge = false;
  source.OnConnected(now_ms);
  EndWithFlag(0);
  source.OnConnected(now_ms);
  Asked();
  EndWithFlag(0);
  EXPECT_EQ(Asked(), std::nullopt);
}

TEST_F(SourceChallenge, OfAReplayedStateIsSentAfterTheReplay) {
  source.OnConnected(now_ms);
  EndWithFlag(1);
  source.OnConnected(now_ms);
  EndWithFlag(1);
  ASSERT_EQ(AskedVerb(), Verb::kReplay);
  Reply(0);
  End(1);
  EXPECT_EQ(AskedVerb(), Verb::kChallenge);
  EXPECT_EQ(Log(), Batches(0, 1));
}

TEST_F(SourceChallenge, GivesWayToAReplay) {
  JoinUntilChallenge();
  Live(0);
  Live(2);
  EXPECT_EQ(AskedVerb(), Verb::kReplay);
  Reply(1);
  EndWithFlag(3);
  EXPECT_EQ(AskedVerb(), Verb::kChallenge) << "the challenge must be sent again";
  EXPECT_EQ(Log(), Batches(0, 3));
}

TEST_F(SourceChallenge, WithoutAnAnswerIsSentAgainAfterTheNextStatus) {
  JoinUntilChallenge();
  for (int i = 0; i < 5; ++i) {
    now_ms += Limits().replay_timeout_ms;
    source.OnTimer(now_ms);
    EXPECT_EQ(Asked(), std::nullopt) << "only after the next status";
    NextAudit();
    EXPECT_EQ(AskedVerb(), Verb::kChallenge) << i;
  }
  EXPECT_EQ(state(), SourceState::kSynced);
}

// The publisher learns the engine's hash scheme from the batches, so its first answer has no batch.
TEST_F(SourceChallenge, WithoutAnAnswerIsSentAgainWhileBatchesArrive) {
  JoinUntilChallenge();
  EndWithFlag(0);
  for (uint64_t seq = 0; seq < 30; ++seq) {
    now_ms += 100;
    Live(seq);
    EXPECT_GE(source.deadline_ms(), now_ms);
    source.OnTimer(now_ms);
    const bool due = (seq + 1) * 100 == static_cast<uint64_t>(Limits().probe_interval_ms);
    ASSERT_EQ(AskedVerb(), due ? std::optional(Verb::kChallenge) : std::nullopt) << seq;
    if (due) EndWithFlag(seq + 1);
  }
  wants_challenge = false;
  Live(30);
  now_ms += Limits().probe_interval_ms - 1;
  source.OnTimer(now_ms);
  EXPECT_EQ(Asked(), std::nullopt);
}

TEST_F(SourceChallenge, OfACopiedStateIsSentAfterTheSnapshot) {
  source.OnConnected(now_ms);
  PublisherStatus status;
  status.epoch.low = 1;
  status.first_held = 5;
  status.next_seq = 9;
  status.has_digests = true;
  status.answers_challenges = true;
  End(status);
  source.OnConnected(now_ms);
  End(status);
  ASSERT_EQ(AskedVerb(), Verb::kSnapshot);
  status.answers_challenges = false;  // only an answer to the request STATUS has the flag
  End(status);
  EXPECT_EQ(state(), SourceState::kSynced);
  source.OnTimer(now_ms);
  EXPECT_EQ(AskedVerb(), Verb::kChallenge);
}

// After the connection was lost, a publisher that gives no proof of its identity may be a new one.
TEST_F(SourceChallenge, ALostConnectionWithoutAProofIsARestart) {
  JoinUntilChallenge();
  Reply(0);
  wants_challenge = false;
  EndWithFlag(0);
  Live(0);
  Log();
  source.OnDisconnected();
  source.OnConnected(now_ms);
  PlainEnd();  // the new publisher has no KVX1
  EXPECT_EQ(Log(), Texts{"reset restart"});
}

TEST_F(SourceChallenge, ASecondBatchOfAnAnswerIsBad) {
  JoinUntilChallenge();
  Reply(0);
  Reply(1);
  EXPECT_EQ(Log().size(), 1u);
  EXPECT_EQ(source.status(now_ms).bad_messages, 1u);
}

// The answer may belong to the publisher before the restart, even if no batch was applied.
TEST_F(SourceChallenge, ANewEpochResetsTheSinkAndIsChallengedAgain) {
  JoinUntilChallenge();
  Reply(0);
  End(0);
  EXPECT_EQ(Log().size(), 1u);
  now_ms += Limits().audit_interval_ms;
  source.OnTimer(now_ms);
  Asked();
  EndWithFlag(0, /*epoch=*/2);
  EXPECT_EQ(Log(), Texts{"reset restart"});
  EXPECT_EQ(source.status(now_ms).resets, 0u) << "there was no state to forget";
  source.OnConnected(now_ms);
  EndWithFlag(0, 2);
  EXPECT_EQ(AskedVerb(), Verb::kChallenge);
}

// The publisher restarted between its status and its answer.
TEST_F(SourceChallenge, TheAnswerOfANewPublisherIsForgotten) {
  JoinUntilChallenge();
  Reply(0);
  EndWithFlag(0, /*epoch=*/2);
  EXPECT_EQ(Log(), (Texts{"answer " + Batches(0, 1)[0], "reset restart"}));
}

}  // namespace
}  // namespace kvcast::stream
