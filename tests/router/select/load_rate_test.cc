// LoadRate is the median of the rates in the most recent plausible reports of loads from one tier.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/load_rate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvcast {
namespace {

constexpr double kMiB = 1 << 20;

// One report per second, each of 100 MB, at these rates in MB/s.
LoadRate Reported(const std::vector<double>& rates) {
  LoadRate rate;
  int64_t now_ms = 0;
  for (const double mb_per_s : rates) rate.Note(1e8, 100 / mb_per_s, now_ms += 1000);
  return rate;
}

TEST(LoadRate, IsTheMedianOfEnoughReports) {
  const struct {
    std::vector<double> rates;
    std::optional<double> median;
  } rows[] = {
      {{}, std::nullopt},
      {{500}, std::nullopt},
      {{500, 500}, std::nullopt},
      {{500, 500, 500}, 500},
      {{100, 300, 200}, 200},
      {{100, 300, 200, 400}, 200},  // the slower of the middle rates
      {{50000, 100, 110}, 110},     // one rate is far too fast
      {{0.5, 100, 110}, 100},       // one rate is far too slow
      {{9000, 9000, 100, 110, 120, 9000, 130}, 130},
  };
  for (const auto& [rates, median] : rows) {
    const auto rate = Reported(rates).bytes_per_second(60'000);
    ASSERT_EQ(rate.has_value(), median.has_value()) << rates.size();
    EXPECT_NEAR(rate.value_or(0), median.value_or(0) * 1e6, 1) << rates.size();
  }
}

TEST(LoadRate, IdleSmallAndImplausibleReportsAreNoSamples) {
  const double inf = std::numeric_limits<double>::infinity();
  const struct {
    double bytes;
    double seconds;
    LoadReport report;
  } rows[] = {
      {0, 0, LoadReport::kIdle},
      {0, 5, LoadReport::kIdle},
      {kMiB - 1, 0.001, LoadReport::kSmall},
      {kMiB, 0.001, LoadReport::kTaken},
      {kMiB, 0, LoadReport::kImplausible},
      {1e13, 0.99, LoadReport::kImplausible},
      {1e13, 1, LoadReport::kTaken},
      {1e8, 1001, LoadReport::kImplausible},
      {1e8, 1000, LoadReport::kTaken},
      {1e18, 1e-9, LoadReport::kImplausible},
      {1e8, inf, LoadReport::kImplausible},
  };
  for (const auto& [bytes, seconds, report] : rows) {
    LoadRate rate;
    EXPECT_EQ(rate.Note(bytes, seconds, 0), report) << bytes << " in " << seconds;
    EXPECT_EQ(rate.samples(), report == LoadReport::kTaken ? 1u : 0u);
    EXPECT_EQ(rate.reports()[static_cast<size_t>(report)], 1u);
  }
}

TEST(LoadRate, OldReportsExpire) {
  LoadRate rate;
  for (const int64_t at_ms : {0, 1000, 2000, 3000}) rate.Note(1e8, 1, at_ms);
  const int64_t life = LoadRate::kLifetimeMs;
  // Three reports are younger than the lifetime until the second oldest expires.
  EXPECT_TRUE(rate.bytes_per_second(1000 + life - 1));
  EXPECT_FALSE(rate.bytes_per_second(1000 + life));
  EXPECT_EQ(rate.last_ms(), 3000);
  // A new report does not revive expired reports.
  rate.Note(1e8, 1, 4000 + life);
  EXPECT_FALSE(rate.bytes_per_second(4000 + life));
  EXPECT_EQ(rate.samples(), 1u);
  rate.Note(4e8, 1, 4001 + life);
  rate.Note(4e8, 1, 4002 + life);
  EXPECT_EQ(rate.bytes_per_second(4002 + life), 4e8);
}

TEST(LoadRate, FollowsAChangeAfterMoreThanHalfAWindow) {
  LoadRate rate = Reported(std::vector<double>(100, 400));
  EXPECT_EQ(rate.samples(), LoadRate::kWindow);
  EXPECT_NEAR(*rate.bytes_per_second(100'000), 4e8, 1);
  for (size_t i = 0; i < LoadRate::kWindow / 2; ++i) rate.Note(1e8, 1, 100'000);
  EXPECT_NEAR(*rate.bytes_per_second(100'000), 4e8, 1);
  rate.Note(1e8, 1, 100'000);
  EXPECT_NEAR(*rate.bytes_per_second(100'000), 1e8, 1);
}

TEST(LoadRate, TheSampleOfTotalsIsTheIncreaseSinceTheLastSample) {
  LoadRate rate;
  EXPECT_EQ(rate.NoteTotals(1e9, 1, 0), LoadReport::kTaken);
  EXPECT_EQ(rate.NoteTotals(1e9, 1, 1), LoadReport::kIdle);
  EXPECT_EQ(rate.NoteTotals(3e9, 2, 2), LoadReport::kTaken);
  EXPECT_EQ(rate.NoteTotals(6e9, 3, 3), LoadReport::kTaken);
  EXPECT_NEAR(*rate.bytes_per_second(3), 2e9, 1);  // 1, 2 and 3 GB/s
}

TEST(LoadRate, SmallIncreasesOfTotalsAddUp) {
  LoadRate rate;
  int taken = 0;
  for (int i = 1; i <= 10; ++i) {
    taken += rate.NoteTotals(i * kMiB / 2, i * 0.001, i) == LoadReport::kTaken;
  }
  EXPECT_EQ(taken, 5);
  EXPECT_NEAR(*rate.bytes_per_second(10), kMiB / 0.002, 1);
}

TEST(LoadRate, TotalsThatFellAreThoseOfANewEngine) {
  LoadRate rate;
  rate.NoteTotals(9e9, 9, 0);
  EXPECT_EQ(rate.NoteTotals(2e9, 1, 1), LoadReport::kTaken);
  EXPECT_EQ(rate.NoteTotals(4e9, 2, 2), LoadReport::kTaken);
  EXPECT_NEAR(*rate.bytes_per_second(2), 2e9, 1);
  // The total of the seconds is lower than before, so the engine is new. The new engine has
  // already loaded more bytes than the old engine.
  EXPECT_EQ(rate.NoteTotals(5e9, 1, 3), LoadReport::kTaken);
  EXPECT_EQ(rate.NoteTotals(10e9, 2, 4), LoadReport::kTaken);
  EXPECT_NEAR(*rate.bytes_per_second(4), 2e9, 1);  // median of 1, 2, 2, 5 and 5 GB/s
}

TEST(LoadRate, TotalsAfterAnImplausibleTotalGiveSamples) {
  LoadRate rate;
  rate.NoteTotals(1e9, 1, 0);
  EXPECT_EQ(rate.NoteTotals(1e17, 2, 1), LoadReport::kImplausible);
  EXPECT_EQ(rate.NoteTotals(1e17 + 1e9, 3, 2), LoadReport::kTaken);
  EXPECT_EQ(rate.NoteTotals(1e17 + 2e9, 4, 3), LoadReport::kTaken);
  EXPECT_NEAR(*rate.bytes_per_second(3), 1e9, 1e3);
}

// The rate is always the rate of a sample. Fewer than half of the samples cannot move the rate out
// of the range of the other samples.
TEST(LoadRate, IsInTheRangeOfTheCorrectReports) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<bool> correct(LoadRate::kWindow, true);
    std::fill_n(correct.begin(), LoadRate::kWindow / 2, false);
    std::shuffle(correct.begin(), correct.end(), random);
    LoadRate rate;
    std::uniform_real_distribution<double> near(0.9e9, 1.1e9);
    std::uniform_real_distribution<double> exponent(5, 13);
    for (const bool is_correct : correct) {
      const double per_s = is_correct ? near(random) : std::pow(10, exponent(random));
      rate.Note(1e9, 1e9 / per_s, 0);
    }
    EXPECT_GT(*rate.bytes_per_second(0), 0.89e9);
    EXPECT_LT(*rate.bytes_per_second(0), 1.11e9);
  }
}

}  // namespace
}  // namespace kvcast
