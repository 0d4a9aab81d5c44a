// The fit finds the exponent of a power law, and the error of the exponent.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/power_law.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvcast::bench {
namespace {

using Pairs = std::vector<std::pair<double, double>>;

TEST(PowerLaw, FitsAnExactLaw) {
  Pairs points;
  for (const double x : {1e6, 3e6, 1e7, 1e9}) points.emplace_back(x, 5 * std::pow(x, 0.25));
  const auto law = FitPowerLaw(points);
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->exponent, 0.25, 1e-9);
  EXPECT_NEAR(law->factor, 5, 1e-6);
  EXPECT_NEAR(law->error, 0, 1e-6);
  EXPECT_NEAR(law->At(1e12), 5e3, 1e-3);
}

TEST(PowerLaw, TheErrorEqualsTheErrorOfALinearRegressionOfTheLogarithms) {
  // ln x: 0, 1, 2, 3. ln y: 0, 1, 1, 2. The slope is 0.6, and the sum of squared residuals is 0.2.
  Pairs points;
  for (const auto& [x, y] : Pairs{{0, 0}, {1, 1}, {2, 1}, {3, 2}}) {
    points.emplace_back(std::exp(x), std::exp(y));
  }
  const auto law = FitPowerLaw(points);
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->exponent, 0.6, 1e-9);
  EXPECT_NEAR(law->error, std::sqrt(0.2 / 2 / 5), 1e-9);
}

TEST(PowerLaw, NeedsTwoDifferentSizes) {
  EXPECT_FALSE(FitPowerLaw(Pairs{}));
  EXPECT_FALSE(FitPowerLaw(Pairs{{10, 2}}));
  EXPECT_FALSE(FitPowerLaw(Pairs{{10, 2}, {10, 3}}));
  const auto law = FitPowerLaw(Pairs{{10, 2}, {1000, 200}});
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->exponent, 1, 1e-9);
  EXPECT_EQ(law->error, 0);
}

}  // namespace
}  // namespace kvcast::bench
