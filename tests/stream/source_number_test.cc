// A source follows batches with numbers near 2^32, near 2^53, and near the limit of 2^63, like all
// other batches.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/stream/source_harness.h"

namespace kvcast::stream {
namespace {

class SourceNumber : public ::testing::TestWithParam<uint64_t> {
 protected:
  // The last number is GetParam().
  uint64_t first() const { return GetParam() - 11; }
};

INSTANTIATE_TEST_SUITE_P(, SourceNumber,
                         ::testing::Values((uint64_t{1} << 32) + 5, (uint64_t{1} << 53) + 5,
                                           kSeqLimit - 1),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(SourceNumber, IsFollowedFromARing) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  ASSERT_TRUE(source.TakeRequest());
  source.Replay(first(), first() + 4);
  EXPECT_EQ(source.TakeDeliveries(), Batches(first(), first() + 4));
  EXPECT_EQ(source.status().first_seq, first());
  for (uint64_t number = first() + 4; number <= GetParam(); ++number) source.Live(number);
  EXPECT_EQ(source.TakeDeliveries(), Batches(first() + 4, GetParam() + 1));
  EXPECT_EQ(source.status().next_seq, GetParam() + 1);
  EXPECT_EQ(source.status().gaps, 0u);
  EXPECT_EQ(source.status().lost, 0u);
}

TEST_P(SourceNumber, AGapIsClosed) {
  SourceHarness source(/*can_replay=*/true);
  source.Connect();
  ASSERT_TRUE(source.TakeRequest());
  source.Replay(first(), first() + 4);
  source.TakeDeliveries();
  source.Live(GetParam());
  EXPECT_EQ(source.status().lag, 8u);
  EXPECT_EQ(source.TakeRequest(), first() + 3);
  source.Replay(first() + 3, GetParam() + 1);
  EXPECT_EQ(source.TakeDeliveries(), Batches(first() + 4, GetParam() + 1));
  EXPECT_EQ(source.status().lag, 0u);
  EXPECT_EQ(source.status().lost, 0u);
}

TEST_P(SourceNumber, ALostBatchIsCounted) {
  SourceHarness source(/*can_replay=*/false);
  source.Connect();
  for (uint64_t number = first(); number < first() + 4; ++number) source.Live(number);
  source.Live(GetParam());
  source.Live(GetParam());
  EXPECT_EQ(source.status().next_seq, GetParam() + 1);
  EXPECT_EQ(source.status().lost, 7u);
}

// A restarted engine counts from 0 again.
TEST_P(SourceNumber, ARestartIsDetected) {
  SourceHarness source(/*can_replay=*/false);
  source.Connect();
  for (uint64_t number = first(); number <= GetParam(); ++number) source.Live(number);
  source.TakeDeliveries();
  source.Live(0, /*epoch=*/1);
  EXPECT_EQ(source.status().resets, 1u);
  EXPECT_EQ(source.status().next_seq, 1u);
}

}  // namespace
}  // namespace kvcast::stream
