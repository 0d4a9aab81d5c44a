// The number and the times of failures decide when a quarantine begins and ends.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/quarantine.h"

#include <gtest/gtest.h>

namespace kvcast::stream {
namespace {

constexpr int64_t kStart = 1000000;

void Fill(Quarantine& quarantine, int64_t now_ms) {
  for (int i = 0; i < Quarantine::kMaxFailures; ++i) {
    quarantine.NoteFailure(SourceReason::kDigest, now_ms);
  }
}

TEST(Quarantine, BeginsWithTheThirdFailure) {
  Quarantine quarantine;
  quarantine.NoteFailure(SourceReason::kContradicted, kStart);
  quarantine.NoteFailure(SourceReason::kContradicted, kStart + 1);
  EXPECT_FALSE(quarantine.active());
  quarantine.NoteFailure(SourceReason::kDigest, kStart + 2);
  EXPECT_TRUE(quarantine.active());
  EXPECT_EQ(quarantine.why(), SourceReason::kDigest);
}

TEST(Quarantine, OldFailuresDoNotCount) {
  Quarantine quarantine;
  quarantine.NoteFailure(SourceReason::kDigest, kStart);
  quarantine.NoteFailure(SourceReason::kDigest, kStart);
  quarantine.NoteFailure(SourceReason::kDigest, kStart + Quarantine::kFailureMs);
  EXPECT_FALSE(quarantine.active());
}

TEST(Quarantine, EndsWhenNothingWasWrongForAWhile) {
  Quarantine quarantine;
  Fill(quarantine, kStart);
  quarantine.NoteFailure(SourceReason::kDigest, kStart + 5000);
  EXPECT_EQ(quarantine.until_ms(), kStart + 5000 + Quarantine::kMinMs);
  quarantine.NotePass(quarantine.until_ms() - 1);
  EXPECT_TRUE(quarantine.active());
  quarantine.NotePass(quarantine.until_ms());
  EXPECT_FALSE(quarantine.active());
}

TEST(Quarantine, StartsAgainAfterOneFailureForTwiceTheTime) {
  Quarantine quarantine;
  Fill(quarantine, kStart);
  quarantine.NotePass(quarantine.until_ms());
  quarantine.NoteFailure(SourceReason::kDigest, kStart + 30000);
  EXPECT_TRUE(quarantine.active());
  EXPECT_EQ(quarantine.until_ms(), kStart + 30000 + 2 * Quarantine::kMinMs);
  for (int i = 0; i < 20; ++i) {
    quarantine.NotePass(quarantine.until_ms());
    quarantine.NoteFailure(SourceReason::kDigest, quarantine.until_ms() - 1);
  }
  const int64_t now_ms = quarantine.until_ms();
  quarantine.NoteFailure(SourceReason::kDigest, now_ms);
  EXPECT_EQ(quarantine.until_ms(), now_ms + Quarantine::kMaxMs);
}

TEST(Quarantine, IsForgottenAfterALongTimeWithoutFailure) {
  Quarantine quarantine;
  Fill(quarantine, kStart);
  quarantine.NotePass(quarantine.until_ms());
  quarantine.NotePass(quarantine.until_ms());
  const int64_t now_ms = quarantine.until_ms();
  quarantine.NoteFailure(SourceReason::kDigest, now_ms);
  quarantine.NoteFailure(SourceReason::kDigest, now_ms);
  EXPECT_FALSE(quarantine.active());
  quarantine.NoteFailure(SourceReason::kDigest, now_ms);
  EXPECT_EQ(quarantine.until_ms(), now_ms + Quarantine::kMinMs);
}

}  // namespace
}  // namespace kvcast::stream
