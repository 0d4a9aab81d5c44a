// A newcomer is a connection that has got no reply, or only error replies. Newcomers get their
// share of the time, and no more.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/newcomer_budget.h"

#include <gtest/gtest.h>

namespace kvcast {
namespace {

constexpr int64_t kTurnUs = 100;

// Returns the time that newcomers use within `us`, if they always want more time.
int64_t UsedIn(NewcomerBudget& budget, int64_t begin_us, int64_t us) {
  int64_t used_us = 0;
  for (int64_t now_us = begin_us; now_us < begin_us + us; now_us += kTurnUs) {
    if (!budget.HasTime(now_us)) continue;
    budget.Spend(kTurnUs);
    used_us += kTurnUs;
  }
  return used_us;
}

TEST(NewcomerBudget, BusyNewcomersGetTheirShare) {
  NewcomerBudget budget;
  UsedIn(budget, 1'000'000, 100'000);  // uses the time that was saved
  EXPECT_NEAR(UsedIn(budget, 1'100'000, 1'000'000), 1'000'000 / NewcomerBudget::kShare, kTurnUs);
}

TEST(NewcomerBudget, AQuietServerServesEachNewcomerAtOnce) {
  NewcomerBudget budget;
  for (int64_t now_us = 1'000'000; now_us < 2'000'000; now_us += 10 * kTurnUs) {
    EXPECT_TRUE(budget.HasTime(now_us));
    budget.Spend(kTurnUs);
  }
}

TEST(NewcomerBudget, TheSavedTimeIsBounded) {
  NewcomerBudget budget;
  EXPECT_TRUE(budget.HasTime(3'600'000'000));
  EXPECT_LE(UsedIn(budget, 3'600'000'000, 10'000),
            NewcomerBudget::kMostUs + 10'000 / NewcomerBudget::kShare + kTurnUs);
}

// Uses the time that was saved.
void SpendAll(NewcomerBudget& budget) {
  constexpr int64_t kMost = NewcomerBudget::kMostSpentUs;
  for (int64_t spent = 0; spent < NewcomerBudget::kMostUs; spent += kMost) budget.Spend(kMost);
}

TEST(NewcomerBudget, NewcomersWaitAfterTheyHaveUsedTooMuchTime) {
  NewcomerBudget budget;
  EXPECT_TRUE(budget.HasTime(1'000'000));
  SpendAll(budget);
  budget.Spend(100);
  EXPECT_FALSE(budget.HasTime(1'000'000 + 100 * NewcomerBudget::kShare));
  EXPECT_TRUE(budget.HasTime(1'000'000 + 101 * NewcomerBudget::kShare));
}

// Another thread had the processor for 50 ms in the middle of the work.
TEST(NewcomerBudget, NewcomersDoNotPayForOtherThreads) {
  NewcomerBudget budget;
  EXPECT_TRUE(budget.HasTime(1'000'000));
  SpendAll(budget);
  budget.Spend(50'000);
  constexpr int64_t kMost = NewcomerBudget::kMostSpentUs;
  EXPECT_TRUE(budget.HasTime(1'000'000 + (kMost + 1) * NewcomerBudget::kShare));
}

}  // namespace
}  // namespace kvcast
