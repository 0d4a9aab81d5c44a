// Tests the times of audits, and the quarantine of a source that repeatedly fails its audits.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "tests/stream/extended_harness.h"

namespace kvcast::stream {
namespace {

class SourceAudit : public ExtendedHarness {
 protected:
  SourceAudit() : ExtendedHarness(/*can_repair=*/true) {}

  // Runs the next audit with the result `result`. Batches 0 to seq - 1 are applied.
  void Audit(DigestVerdict result, uint64_t seq = 1) {
    verdict = result;
    now_ms += Limits().audit_interval_ms;
    source.OnTimer(now_ms);
    EXPECT_EQ(Asked(), (ExtensionRequest{Verb::kStatus, residency::kKnowsChallenges, 0}));
    End(seq);
    verdict = DigestVerdict::kEqual;
  }
  // The audit finds a difference, and the difference is repaired.
  void FailAudit() {
    Audit(DigestVerdict::kDiffers);
    differing = 1;
    End(1);
    End(1);
    Asked();
  }
  void FailThreeAudits() {
    JoinEmpty();
    Live(0);
    for (int i = 0; i < Quarantine::kMaxFailures; ++i) FailAudit();
    Log();
  }
};

TEST_F(SourceAudit, TwoMismatchesAreRepaired) {
  JoinEmpty();
  Live(0);
  FailAudit();
  FailAudit();
  EXPECT_EQ(source.status(now_ms).repairs, 2u);
  EXPECT_EQ(state(), SourceState::kSynced);
}

TEST_F(SourceAudit, ThreeFailedAuditsStartAQuarantine) {
  FailThreeAudits();
  EXPECT_EQ(state(), SourceState::kQuarantined);
  EXPECT_EQ(reason(), SourceReason::kDigest);
  EXPECT_EQ(source.status(now_ms).weight, 0);
  EXPECT_EQ(source.status(now_ms).quarantines, 1u);
  Live(1);
  EXPECT_EQ(Log(), Batches(1, 2)) << "batches must be applied in quarantine too";
  source.OnDisconnected();
  EXPECT_EQ(state(), SourceState::kQuarantined);
}

TEST_F(SourceAudit, QuarantineEndsWithAnAuditThatFindsNothing) {
  FailThreeAudits();
  Audit(DigestVerdict::kEqual);
  EXPECT_EQ(state(), SourceState::kQuarantined) << "too early";
  Audit(DigestVerdict::kUnknown);
  EXPECT_EQ(state(), SourceState::kQuarantined) << "an unknown verdict proves nothing";
  Audit(DigestVerdict::kEqual);
  EXPECT_EQ(state(), SourceState::kSynced);
  EXPECT_EQ(source.status(now_ms).weight, 1);
  FailAudit();
  EXPECT_EQ(state(), SourceState::kQuarantined) << "one failure must start the quarantine again";
}

TEST_F(SourceAudit, AnotherPublisherIsNotInQuarantine) {
  FailThreeAudits();
  source.OnDisconnected();
  source.OnConnected(now_ms);
  End(1, /*epoch=*/2);
  EXPECT_EQ(state(), SourceState::kConnecting);
  EXPECT_EQ(Log(), Texts{"reset restart"});
}

TEST_F(SourceAudit, RefusedSnapshotsAreTriedAtGrowingIntervals) {
  JoinEmpty();
  Live(0);
  commits = false;
  source.OnContradiction(now_ms);
  std::vector<int64_t> begun_ms;
  while (begun_ms.size() < 18) {
    while (AskedVerb() == Verb::kSnapshot) {
      begun_ms.push_back(now_ms);
      End(1);
    }
    // The answer to a status request reports that there is no new batch.
    now_ms = std::max(now_ms, source.deadline_ms());
    source.OnTimer(now_ms);
    if (asked && asked->verb == Verb::kStatus) {
      Asked();
      End(1);
    }
  }
  // Each round has three tries. The contradiction counts as a failure too.
  EXPECT_GE(begun_ms[3] - begun_ms[2], RequestPacer::kSnapshotPauseMs);
  EXPECT_LT(begun_ms[3] - begun_ms[2], Quarantine::kMinMs);
  EXPECT_EQ(state(), SourceState::kQuarantined);
  EXPECT_GE(begun_ms[6] - begun_ms[5], Quarantine::kMinMs);
}

TEST_F(SourceAudit, WithoutAuditsAQuarantineEndsInTime) {
  source.OnConnected(now_ms);
  PlainEnd();
  PlainEnd();
  for (uint64_t i = 0; i < 3; ++i) {
    Live(i);
    source.OnContradiction(now_ms);
  }
  EXPECT_EQ(state(), SourceState::kQuarantined);
  EXPECT_EQ(reason(), SourceReason::kContradicted);
  const int64_t until_ms = now_ms + Quarantine::kMinMs;
  while (now_ms < until_ms) {
    EXPECT_EQ(state(), SourceState::kQuarantined);
    now_ms = std::max(now_ms, source.deadline_ms());
    source.OnTimer(now_ms);
    if (plain_replay_start) PlainEnd();
  }
  EXPECT_EQ(now_ms, until_ms) << "a timer must end the quarantine";
  EXPECT_EQ(state(), SourceState::kCleared);
}

// A hole at number 0 keeps the source from joining, so no audit is possible yet.
TEST_F(SourceAudit, AnAuditThatCannotBeMadeIsNotDueAgainAtOnce) {
  Join(3);
  now_ms += 2 * Limits().audit_interval_ms;
  int requests = 0;
  for (int step = 0; step < 2000; ++step, ++now_ms) {
    source.OnTimer(now_ms);
    const auto verb = AskedVerb();
    if (!verb) continue;
    ++requests;
    if (verb == Verb::kReplay) Reply(1);  // never batch 0
    verb == Verb::kStatus ? End(3) : source.OnReplyCut(now_ms);
  }
  EXPECT_LE(requests, 40);
}

TEST(SourceAuditTimes, AuditsOfManySourcesAreSpreadOverTime) {
  std::set<int64_t> intervals;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    struct Jittered : ExtendedHarness {
      explicit Jittered(uint64_t seed) : ExtendedHarness(true, seed) {}
      void TestBody() override {}
      int64_t Interval() {
        JoinEmpty();
        const int64_t joined_ms = now_ms;
        for (uint64_t seq = 0;; ++seq) {
          now_ms += 100;
          Live(seq);  // live batches, so that no probe is sent
          source.OnTimer(now_ms);
          if (Asked()) return now_ms - joined_ms;
        }
      }
    };
    const int64_t interval = Jittered(seed * 0x9E3779B97F4A7C15).Interval();
    EXPECT_GE(interval, 7500);
    EXPECT_LE(interval, 12600);
    intervals.insert(interval);
  }
  EXPECT_GE(intervals.size(), 20u);
}

}  // namespace
}  // namespace kvcast::stream
