// Tests the repair of a state whose digest differs. The state of the source and the state of the
// publisher are compared at the same sequence number. Only the buckets that differ are requested.
// If the repair fails, the whole state is requested.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/stream/extended_harness.h"

namespace kvcast::stream {
namespace {

class SourceRepair : public ExtendedHarness {
 protected:
  SourceRepair() : ExtendedHarness(/*can_repair=*/true) {}

  // Applies batch 0, and an audit reports that the state differs.
  void FindDamage() {
    JoinEmpty();
    Live(0);
    verdict = DigestVerdict::kDiffers;
    now_ms += Limits().audit_interval_ms;
    source.OnTimer(now_ms);
    ASSERT_EQ(AskedVerb(), Verb::kStatus);
    End(1);
    verdict = DigestVerdict::kEqual;
    ASSERT_EQ(state(), SourceState::kSuspect);
    ASSERT_EQ(reason(), SourceReason::kDigest);
    Log();
  }
  // Runs FindDamage. Then the source learns the buckets that differ, and requests them.
  void FindBuckets() {
    FindDamage();
    differing = 6;
    End(1);
    ASSERT_EQ(Log(), (Texts{"compare at 1", "repair 6"}));
  }
};

TEST_F(SourceRepair, OnlyTheBucketsThatDifferAreRequested) {
  FindDamage();
  EXPECT_EQ(Asked(), (ExtensionRequest{Verb::kStatus, 0, 1}));
  differing = 0x8001;
  End(1);
  EXPECT_EQ(Asked(), (ExtensionRequest{Verb::kSnapshot, 0, 0x8001}));
  Reply(1);
  End(1);
  EXPECT_EQ(Log(), (Texts{"compare at 1", "repair 32769", "commit"}));
  EXPECT_EQ(state(), SourceState::kSynced);
  EXPECT_EQ(source.status(now_ms).repairs, 1u);
  EXPECT_EQ(source.status(now_ms).snapshots, 0u);
  Live(1);
  EXPECT_EQ(Log(), Batches(1, 2));
}

TEST_F(SourceRepair, TheStateIsComparedAtTheSequenceNumberOfEachAnswer) {
  FindDamage();
  differing = 1;
  Live(1);
  EXPECT_EQ(Log(), Texts{}) << "the batch must wait for the answer";
  End(3);
  EXPECT_EQ(Log(), Texts{"0.1"});
  Live(2);
  Live(3);
  EXPECT_EQ(Log(), (Texts{"0.2", "compare at 3", "repair 1"}));
  Reply(5);
  End(5);
  EXPECT_EQ(Log(), Texts{"0.3"});
  EXPECT_EQ(state(), SourceState::kSuspect);
  Live(4);
  Live(5);
  EXPECT_EQ(Log(), (Texts{"0.4", "commit", "0.5"}));
  EXPECT_EQ(state(), SourceState::kSynced);
}

TEST_F(SourceRepair, ADifferenceInNoBucketReplacesTheWholeState) {
  FindDamage();
  End(1);
  EXPECT_EQ(Log(), (Texts{"compare at 1", "begin"}));
  EXPECT_EQ(source.status(now_ms).repair_failures, 0u);
}

TEST_F(SourceRepair, IfEverythingDiffersEverythingIsReplaced) {
  FindDamage();
  differing = ~uint64_t{0};
  End(1);
  EXPECT_EQ(Log(), (Texts{"compare at 1", "begin"}));
}

TEST_F(SourceRepair, AnswersWithoutBucketsLeadToASnapshot) {
  FindDamage();
  PublisherStatus status;
  status.epoch.low = 1;
  status.next_seq = 1;
  status.has_digests = true;
  status.groups.push_back({});
  End(status);
  EXPECT_EQ(Log(), Texts{"begin"});
  EXPECT_EQ(source.status(now_ms).repair_failures, 1u);
}

TEST_F(SourceRepair, AnswersOfThePastLeadToASnapshot) {
  FindDamage();
  End(0);
  EXPECT_EQ(Log(), Texts{"begin"});
}

TEST_F(SourceRepair, ARefusedRepairBecomesASnapshot) {
  FindBuckets();
  commits = false;
  End(1);
  EXPECT_EQ(Log(), (Texts{"refuse", "drop", "begin"}));
  commits = true;
  End(1);
  EXPECT_EQ(Log(), Texts{"commit"});
  EXPECT_EQ(state(), SourceState::kSynced);
  EXPECT_EQ(source.status(now_ms).repair_failures, 1u);
}

TEST_F(SourceRepair, PartsOfTwoMomentsAreNoRepair) {
  FindBuckets();
  Reply(1);
  Reply(2);
  EXPECT_EQ(Log(), (Texts{"drop", "begin"}));
}

TEST_F(SourceRepair, PartsOfOtherBatchesThanTheEndAreNoRepair) {
  FindBuckets();
  Reply(1);
  End(2);
  EXPECT_EQ(Log(), (Texts{"drop", "begin"}));
}

TEST_F(SourceRepair, AMissingBatchBeforeTheAnswerEndsTheRepair) {
  FindDamage();
  End(3);
  Live(2);  // batch 1 is lost
  source.OnReplyCut(now_ms);
  now_ms += Limits().replay_timeout_ms;
  source.OnTimer(now_ms);
  EXPECT_EQ(Log(), Texts{"begin"});
}

TEST_F(SourceRepair, ATimeoutLeadsToASnapshot) {
  FindBuckets();
  now_ms += Limits().replay_timeout_ms;
  source.OnTimer(now_ms);
  EXPECT_EQ(Log(), (Texts{"drop", "begin"}));
}

TEST_F(SourceRepair, ACutAnswerLeadsToASnapshot) {
  FindBuckets();
  source.OnReplyCut(now_ms);
  now_ms = source.deadline_ms();
  source.OnTimer(now_ms);
  EXPECT_EQ(Log(), (Texts{"drop", "begin"}));
}

TEST_F(SourceRepair, AnotherEpochIsFenced) {
  FindBuckets();
  Reply(1);
  End(1, /*epoch=*/2);
  EXPECT_EQ(Log(), (Texts{"reset restart", "drop"}));
}

TEST_F(SourceRepair, APublisherThatForgotTheExtensionIsAnotherPublisher) {
  FindBuckets();
  PlainEnd();
  EXPECT_EQ(Log(), (Texts{"reset restart", "drop"}));
}

TEST_F(SourceRepair, AContradictionMeanwhileReplacesTheWholeState) {
  FindBuckets();
  source.OnContradiction(now_ms);
  EXPECT_EQ(Log(), (Texts{"drop", "begin"}));
}

TEST_F(SourceRepair, AnUndecodableBatchMeanwhileReplacesTheWholeState) {
  FindDamage();
  next_result = BatchResult::kUndecodable;
  End(2);
  Live(1);
  EXPECT_EQ(Log(), (Texts{"0.1", "begin"}));
}

TEST_F(SourceRepair, ContinuesOnANewConnection) {
  FindBuckets();
  source.OnDisconnected();
  source.OnConnected(now_ms);
  EXPECT_EQ(Log(), Texts{"drop"});
  End(1);
  EXPECT_EQ(Log(), Texts{"repair 6"});
  Reply(1);
  End(1);
  EXPECT_EQ(Log(), Texts{"commit"});
  EXPECT_EQ(state(), SourceState::kSynced);
}

}  // namespace
}  // namespace kvcast::stream
