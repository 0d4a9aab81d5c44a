// FairPermits gives its permits in the order in which the callers asked.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/fair_permits.h"

#include <gtest/gtest.h>

namespace kvcast::stream {
namespace {

TEST(FairPermits, AreGivenInTheOrderOfAsking) {
  FairPermits turns(2);
  const int who[5] = {};
  EXPECT_TRUE(turns.Take(&who[0]));
  EXPECT_TRUE(turns.Take(&who[1]));
  for (int i = 2; i < 5; ++i) EXPECT_FALSE(turns.Take(&who[i]));
  turns.Leave(&who[1]);
  EXPECT_TRUE(turns.Has(&who[2]));
  EXPECT_FALSE(turns.Has(&who[3]));
  // A caller that asks again is last in the queue.
  EXPECT_FALSE(turns.Take(&who[1]));
  turns.Leave(&who[3]);
  turns.Leave(&who[0]);
  EXPECT_TRUE(turns.Has(&who[4]));
  EXPECT_FALSE(turns.Has(&who[1]));
  turns.Leave(&who[2]);
  EXPECT_TRUE(turns.Has(&who[1]));
}

}  // namespace
}  // namespace kvcast::stream
