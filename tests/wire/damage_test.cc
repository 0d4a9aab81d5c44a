// Damaged payloads never crash the decoder. The count of decoded events is the number of events in
// the batch, and every decoded batch can be encoded. The tests change single bytes in a quarter of
// the small vectors, and random bytes in all vectors.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

void ExpectConsistent(const Payload& payload, EventBatch& batch) {
  DecodeCounts counts;
  const Status status = DecodeBatch(payload, WireLimits(), batch, counts);
  ASSERT_EQ(counts.decoded, batch.events.size()) << ToHex(payload);
  if (!status.ok()) {
    ASSERT_TRUE(batch.events.empty());
    ASSERT_EQ(counts.rejected_total(), 0u);
    return;
  }
  Payload again;
  ASSERT_TRUE(EncodeBatch(batch, Dialect::kVllm11, again).ok()) << ToHex(payload);
}

TEST(Damage, EveryThirdValueOfEveryByteOfSmallVectors) {
  EventBatch batch;
  size_t used = 0;
  for (Payload payload : GoodPayloads()) {
    if (payload.size() > 160 || used++ % 4 != 0) continue;
    for (uint8_t& byte : payload) {
      const uint8_t original = byte;
      for (int value = 0; value < 256; value += 3) {
        byte = static_cast<uint8_t>(value);
        ASSERT_NO_FATAL_FAILURE(ExpectConsistent(payload, batch));
      }
      byte = original;
    }
  }
  EXPECT_GT(used, 100u);
}

TEST(Damage, RandomChangesOfAllVectors) {
  std::mt19937_64 random(11);
  EventBatch batch;
  for (const Payload& payload : GoodPayloads()) {
    for (int round = 0; round < 50; ++round) {
      Payload damaged = payload;
      for (uint64_t i = 1 + random() % 8; i > 0; --i) {
        damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
      }
      ASSERT_NO_FATAL_FAILURE(ExpectConsistent(damaged, batch));
    }
  }
}

}  // namespace
}  // namespace kvcast::wire
