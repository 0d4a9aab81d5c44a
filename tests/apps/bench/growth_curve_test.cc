// The curve has a point for each size that the options name. A point has the figures of its size.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/growth/growth_curve.h"

#include <gtest/gtest.h>

namespace kvcast::bench {
namespace {

TEST(GrowthSizes, DoubleUpToTheGreatestSize) {
  EXPECT_EQ(GrowthSizes(30'000'000), (std::vector<int64_t>{1'000'000, 2'000'000, 4'000'000,
                                                           8'000'000, 16'000'000, 30'000'000}));
  EXPECT_EQ(GrowthSizes(8000), (std::vector<int64_t>{1000, 2000, 4000, 8000}));
  // The last size is more than 4/3 of the size before it.
  EXPECT_EQ(GrowthSizes(17'000'000),
            (std::vector<int64_t>{1'000'000, 2'000'000, 4'000'000, 8'000'000, 17'000'000}));
}

constexpr int64_t kAmpleMemory = int64_t{1} << 40;  // bytes

TEST(GrowthCurve, MeasuresEverythingAtEachSize) {
  GrowthCurve curve(3, {.queries = 100, .memory = kAmpleMemory});
  ASSERT_TRUE(curve.Begin().ok());
  for (const int64_t size : {20'000, 60'000}) {
    const auto point = curve.Measure(size);
    ASSERT_TRUE(point.ok());
    EXPECT_NEAR(point->residencies, static_cast<double>(size), 3000);
    EXPECT_EQ(point->residencies, point->held);
    EXPECT_EQ(point->wrong, 0u);
    EXPECT_FALSE(point->full);
    for (const double figure : {point->grow_ns, point->apply_ns, point->query_p50_us,
                                point->query_p99_us, point->batch_ms, point->batch_cpu_ms,
                                point->page_ms, point->reclaim_wait_ms, point->reclaim_s}) {
      EXPECT_GT(figure, 0);
    }
  }
}

TEST(GrowthCurve, StopsGrowingWhenTheMemoryIsFull) {
  GrowthCurve curve(3, {.queries = 100, .memory = 1000});
  ASSERT_TRUE(curve.Begin().ok());
  EXPECT_TRUE(curve.is_full());
  const auto point = curve.Measure(1'000'000);
  ASSERT_TRUE(point.ok());
  EXPECT_TRUE(point->full);
  EXPECT_LT(point->residencies, 10'000);
}

}  // namespace
}  // namespace kvcast::bench
