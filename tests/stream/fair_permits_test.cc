// FairPermits gives its permits in the order in which the callers asked.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/fair_permits.h"

#include <gtest/gtest.h>

namespace kvcast::stream {
namespace {

TEST(FairPermits, AreGivenInTheOrderOfAsking) {
  FairPermits permits(2);
  const int callers[5] = {};
  EXPECT_TRUE(permits.Take(&callers[0]));
  EXPECT_TRUE(permits.Take(&callers[1]));
  for (int i = 2; i < 5; ++i) EXPECT_FALSE(permits.Take(&callers[i]));
  permits.Leave(&callers[1]);
  EXPECT_TRUE(permits.Has(&callers[2]));
  EXPECT_FALSE(permits.Has(&callers[3]));
  // A caller that asks again is last in the queue.
  EXPECT_FALSE(permits.Take(&callers[1]));
  permits.Leave(&callers[3]);
  permits.Leave(&callers[0]);
  EXPECT_TRUE(permits.Has(&callers[4]));
  EXPECT_FALSE(permits.Has(&callers[1]));
  permits.Leave(&callers[2]);
  EXPECT_TRUE(permits.Has(&callers[1]));
}

}  // namespace
}  // namespace kvcast::stream
