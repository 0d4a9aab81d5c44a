// Slow times of the machine, and the thread that finds them.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/machine/slow_times.h"

#include <gtest/gtest.h>

#include <vector>

#include "apps/bench/machine/speed_probe.h"
#include "apps/support/steady_now.h"

namespace kvcast::bench {
namespace {

// One sample per second: 1 is the usual duration.
SlowTimes SlowTimesOf(const std::vector<double>& durations) {
  std::vector<SpeedSample> samples;
  for (const double duration : durations) {
    samples.push_back({static_cast<double>(samples.size()), duration});
  }
  return SlowTimes(samples);
}

TEST(SlowTimes, NoSampleMeansNoSlowTime) {
  EXPECT_EQ(SlowTimes().share(), 0);
  EXPECT_FALSE(SlowTimes().Overlaps(0, 1e9));
  EXPECT_EQ(SlowTimesOf({}).share(), 0);
  EXPECT_EQ(SlowTimesOf({5}).share(), 0);
}

TEST(SlowTimes, SmallDifferencesAreNotSlow) {
  EXPECT_EQ(SlowTimesOf({1, 1.2, 1, 0.9, 1.29, 1}).share(), 0);
}

// Samples 3 and 4 are slow. The first half of the slow time goes from 2 s to 5 s. The second half
// goes from 5 s to 8 s.
TEST(SlowTimes, ASlowTimeHasASecondHalfOfTheSameLength) {
  const SlowTimes slow = SlowTimesOf({1, 1, 1, 12, 2.6, 1, 1, 1, 1, 1, 1});
  EXPECT_DOUBLE_EQ(slow.share(), 0.6);
  EXPECT_FALSE(slow.Overlaps(0, 1.9));
  EXPECT_TRUE(slow.Overlaps(0, 2.1));
  EXPECT_TRUE(slow.Overlaps(3, 3.1));
  EXPECT_TRUE(slow.Overlaps(0, 100));
  EXPECT_TRUE(slow.Overlaps(7.9, 9));
  EXPECT_FALSE(slow.Overlaps(8.1, 9));
}

TEST(SlowTimes, ASlowTimeInTheSecondHalfOfAnotherIsJoinedToIt) {
  const SlowTimes slow = SlowTimesOf({1, 1, 12, 1, 12, 1, 1, 1, 1, 1, 1});
  EXPECT_DOUBLE_EQ(slow.share(), 0.6);  // 1 s to 3 s, 3 s to 5 s, and the second half to 7 s
  EXPECT_FALSE(slow.Overlaps(0, 0.9));
  EXPECT_TRUE(slow.Overlaps(5.5, 5.6));
  EXPECT_FALSE(slow.Overlaps(7.1, 9));
}

TEST(SlowTimes, ASlowBeginAndASlowEndCount) {
  const SlowTimes slow = SlowTimesOf({12, 1, 1, 1, 1, 1, 1, 1, 1, 1, 12});
  EXPECT_TRUE(slow.Overlaps(0, 0.1));
  EXPECT_TRUE(slow.Overlaps(9.5, 9.6));
  EXPECT_FALSE(slow.Overlaps(4, 8));
  EXPECT_DOUBLE_EQ(slow.share(), 0.3);
}

// The median is the usual speed, so a machine that is always slow has no slow time.
TEST(SlowTimes, TheMedianIsTheUsualSpeed) { EXPECT_EQ(SlowTimesOf({12, 12, 12, 12}).share(), 0); }

TEST(SlowTimes, AMachineThatIsMostlySlowLeavesNoDelayOut) {
  const SlowTimes slow = SlowTimesOf({1, 12, 1, 1, 12, 1, 1, 1, 1});  // slow from 0 s to 7 s of 8 s
  EXPECT_GT(slow.share(), SlowTimes::kMostShare);
  const std::vector<TimedDelay> delays = {{0, 1.0F}, {7.5, 0.25F}};
  EXPECT_EQ(slow.AtFullSpeed(delays).size(), delays.size());
}

TEST(SlowTimes, DelaysThatOverlapASlowTimeAreLeftOut) {
  const SlowTimes slow = SlowTimesOf({1, 1, 1, 12, 1, 1, 1, 1, 1});  // slow from 2 s to 6 s
  const std::vector<TimedDelay> delays = {{0, 1.0F}, {0.5F, 2.0F}, {3, 0.5F}, {7, 0.25F}};
  const Samples kept = slow.AtFullSpeed(delays);
  EXPECT_EQ(kept.size(), 2U);
  EXPECT_DOUBLE_EQ(kept.sum(), 1.25);
  EXPECT_EQ(SlowTimes().AtFullSpeed(delays).size(), delays.size());
}

TEST(SpeedProbe, SamplesAreInTheOrderOfTime) {
  const double begin = tools::SteadyNow();
  SpeedProbe probe;
  while (probe.samples() < 5) std::this_thread::yield();
  const std::vector<SpeedSample>& samples = probe.Stop();
  ASSERT_GE(samples.size(), 5U);
  double last = begin;
  for (const SpeedSample& sample : samples) {
    EXPECT_GT(sample.begin, last);
    EXPECT_GT(sample.seconds, 0);
    last = sample.begin;
  }
  EXPECT_LE(last, tools::SteadyNow());
  EXPECT_EQ(probe.Stop().size(), samples.size());
}

}  // namespace
}  // namespace kvcast::bench
