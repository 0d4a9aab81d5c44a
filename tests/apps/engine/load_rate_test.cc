// ResolveLoadRate measures the rate of loads from host memory if no rate is configured.
// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/load_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvcast::tools {
namespace {

TEST(LoadRate, AConfiguredRateIsKept) {
  CacheOptions options;
  options.cpu_blocks = 100;
  options.load_rate = 1234;
  ASSERT_TRUE(ResolveLoadRate(options).ok());
  EXPECT_EQ(options.load_rate, 1234);
}

TEST(LoadRate, WithoutHostMemoryTheRateIsZero) {
  CacheOptions options;
  ASSERT_TRUE(ResolveLoadRate(options).ok());
  EXPECT_EQ(options.load_rate, 0);
}

TEST(LoadRate, IsMeasured) {
  CacheOptions options;
  options.cpu_blocks = 100;
  ASSERT_TRUE(ResolveLoadRate(options).ok());
  EXPECT_TRUE(std::isfinite(options.load_rate));
  EXPECT_GT(options.load_rate, 0);
}

TEST(LoadRate, AnUnknownModelIsAnError) {
  CacheOptions options;
  options.cpu_blocks = 100;
  options.model = "nobody";
  EXPECT_FALSE(ResolveLoadRate(options).ok());
}

}  // namespace
}  // namespace kvcast::tools
