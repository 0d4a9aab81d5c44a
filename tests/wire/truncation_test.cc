// A payload that is cut at any place, or that has a byte too many, gives kMalformed and no crash.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

TEST(Truncation, EveryPointOfEveryVectorIsMalformed) {
  size_t points = 0;
  for (const Payload& payload : GoodPayloads()) {
    for (size_t size = 0; size < payload.size(); ++size) {
      // A separate allocation of the exact size lets AddressSanitizer detect any read past the end.
      const Payload cut(payload.begin(), payload.begin() + static_cast<ptrdiff_t>(size));
      const Decoded decoded = Decode(cut);
      ASSERT_EQ(decoded.status.code(), StatusCode::kMalformed) << ToHex(cut);
      ASSERT_TRUE(decoded.batch.events.empty());
      ++points;
    }
  }
  EXPECT_GT(points, 50000u);
}

TEST(Truncation, TrailingBytesAreMalformed) {
  for (Payload payload : GoodPayloads()) {
    payload.push_back(0xc0);
    ASSERT_EQ(Decode(payload).status.code(), StatusCode::kMalformed);
  }
}

}  // namespace
}  // namespace kvcast::wire
