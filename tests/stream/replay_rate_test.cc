// A token bucket first passes a burst, and then limits the rate.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/replay_rate.h"

#include <gtest/gtest.h>

namespace kvcast::stream {
namespace {

constexpr int64_t kSecondUs = 1000000;

// Returns the number of items of cost `tokens` that pass from `begin_us` to `end_us`, if each item
// is taken as early as allowed.
int64_t Passed(TokenBucket& bucket, double tokens, int64_t begin_us, int64_t end_us) {
  int64_t count = 0;
  for (int64_t now_us = begin_us; now_us < end_us;
       now_us = std::max(now_us, bucket.ReadyAt(now_us))) {
    if (bucket.ReadyAt(now_us) > now_us) continue;
    bucket.Spend(tokens);
    ++count;
  }
  return count;
}

TEST(TokenBucket, GivesTheBurstAndThenTheRate) {
  TokenBucket bucket(/*per_s=*/10, /*burst_s=*/2);
  EXPECT_EQ(Passed(bucket, 1, 0, 1), 20);
  EXPECT_NEAR(static_cast<double>(Passed(bucket, 1, 1, 5 * kSecondUs)), 50, 1);
}

TEST(TokenBucket, FillsInPausesUpToTheBurst) {
  TokenBucket bucket(10, 2);
  Passed(bucket, 1, 0, 1);
  EXPECT_NEAR(static_cast<double>(Passed(bucket, 1, kSecondUs, kSecondUs + 1)), 10, 1);
  EXPECT_EQ(Passed(bucket, 1, 1000 * kSecondUs, 1000 * kSecondUs + 1), 20);
}

TEST(TokenBucket, AnAmountAboveTheBurstPassesAndIsCharged) {
  TokenBucket bucket(10, 1);
  EXPECT_EQ(bucket.ReadyAt(0), 0);
  bucket.Spend(60);
  EXPECT_GT(bucket.ReadyAt(4 * kSecondUs), 4 * kSecondUs);
  EXPECT_NEAR(static_cast<double>(bucket.ReadyAt(4 * kSecondUs)), 5 * kSecondUs, 0.06 * kSecondUs);
  EXPECT_EQ(bucket.ReadyAt(5 * kSecondUs + 10), 5 * kSecondUs + 10);
}

TEST(TokenBucket, IsFullWhenTheSpentTokensAreBack) {
  TokenBucket bucket(10, 2);
  EXPECT_TRUE(bucket.IsFull(0));
  bucket.Spend(5);
  EXPECT_FALSE(bucket.IsFull(kSecondUs / 2 - 1000));
  EXPECT_TRUE(bucket.IsFull(kSecondUs / 2 + 1000));
}

TEST(TokenBucket, WithoutARateThereIsNoLimit) {
  TokenBucket bucket(0, 1);
  bucket.Spend(1e12);
  EXPECT_EQ(bucket.ReadyAt(7), 7);
  EXPECT_TRUE(bucket.IsFull(7));
}

}  // namespace
}  // namespace kvcast::stream
