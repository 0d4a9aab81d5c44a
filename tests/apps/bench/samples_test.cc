// Samples computes quantiles by nearest rank.
// SPDX-License-Identifier: Apache-2.0
#include "apps/support/samples.h"

#include <gtest/gtest.h>

namespace kvcast::bench {
namespace {

TEST(Samples, QuantilesAreNearestRanks) {
  Samples samples;
  for (int i = 100; i >= 1; --i) samples.Add(i);
  EXPECT_EQ(samples.Quantile(0), 1);
  EXPECT_EQ(samples.median(), 50);
  EXPECT_EQ(samples.Quantile(0.99), 99);
  EXPECT_EQ(samples.Quantile(0.991), 100);
  EXPECT_EQ(samples.Quantile(1), 100);
  EXPECT_EQ(samples.sum(), 5050);
}

TEST(Samples, OneSampleIsEveryQuantile) {
  Samples samples;
  samples.Add(7);
  EXPECT_EQ(samples.Quantile(0), 7);
  EXPECT_EQ(samples.Quantile(0.999), 7);
  EXPECT_EQ(samples.Quantile(1), 7);
}

TEST(Samples, NoSamplesGiveZero) {
  EXPECT_EQ(Samples().median(), 0);
  EXPECT_EQ(Samples().sum(), 0);
}

TEST(Samples, P99OfFewSamplesIsTheGreatestSample) {
  Samples samples;
  for (const double value : {3.0, 9.0, 5.0}) samples.Add(value);
  EXPECT_EQ(samples.Quantile(0.99), 9);
  EXPECT_EQ(samples.median(), 5);
}

}  // namespace
}  // namespace kvcast::bench
