// The status of a publisher names the batches that its ring holds.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/publisher_state.h"

#include <gtest/gtest.h>

namespace kvcast::stream {
namespace {

TEST(PublisherState, TheStatusHasTheNumbersThatTheRingHolds) {
  ReplayRing ring(/*max_batches=*/3, SIZE_MAX);
  PublisherState state(residency::Epoch(), ring, kDefaultDialect, /*data_parallel_rank=*/0);
  EXPECT_EQ(state.Status(false).first_held, 0u);
  EXPECT_EQ(state.Status(false).next_seq, 0u);
  for (int i = 0; i < 5; ++i) ring.Append(EventBatch());
  const residency::PublisherStatus status = state.Status(false);
  EXPECT_EQ(status.next_seq, 5u);
  EXPECT_EQ(status.first_held, 2u);
  EXPECT_TRUE(status.has_digests);
}

}  // namespace
}  // namespace kvcast::stream
