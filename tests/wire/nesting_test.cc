// The decoder refuses or skips deep and wide input in linear time. For a million elements,
// quadratic time would be hours.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

Payload Repeat(const std::string& hex, size_t times) {
  const Payload unit = FromHex(hex);
  Payload bytes;
  bytes.reserve(unit.size() * times);
  for (size_t i = 0; i < times; ++i) bytes.insert(bytes.end(), unit.begin(), unit.end());
  return bytes;
}

// [1.5, [event, cleared], 0]
Payload BatchAround(const Payload& event) {
  return FromHex("93 cb3ff8000000000000 92") + event + FromHex("91") + Text("AllBlocksCleared") +
         FromHex("00");
}

// {"type": "BlockRemoved", "block_hashes": [], "x": value}
Payload EventWithUnknown(const Payload& value) {
  return FromHex("83") + Text("type") + Text("BlockRemoved") + Text("block_hashes") +
         FromHex("90") + Text("x") + value;
}

class NestingDepth : public testing::TestWithParam<size_t> {};

TEST_P(NestingDepth, RejectsOnlyTheEvent) {
  const Payload nested = Repeat("91", GetParam()) + FromHex("c0");
  for (const Payload& event : {nested, EventWithUnknown(nested)}) {
    const Payload payload = BatchAround(event);
    const Decoded decoded = Decode(payload);
    ASSERT_TRUE(decoded.status.ok()) << decoded.status.ToString();
    EXPECT_EQ(decoded.counts.rejected_total(), 1u);
    EXPECT_EQ(decoded.counts.decoded, 1u);
  }
}

TEST_P(NestingDepth, OfMapsRejectsOnlyTheEvent) {
  const Payload nested = Repeat("81 a161", GetParam()) + FromHex("c0");
  const Decoded decoded = Decode(BatchAround(EventWithUnknown(nested)));
  ASSERT_TRUE(decoded.status.ok());
  EXPECT_EQ(decoded.rejected(Reject::kLimit), 1u);
  EXPECT_EQ(decoded.counts.decoded, 1u);
}

TEST_P(NestingDepth, OfTheWholePayloadIsNotABatch) {
  EXPECT_EQ(Decode(Repeat("91", GetParam()) + FromHex("c0")).status.code(), StatusCode::kMalformed);
  EXPECT_EQ(Decode(Repeat("92", GetParam())).status.code(), StatusCode::kMalformed);
}

INSTANTIATE_TEST_SUITE_P(Nesting, NestingDepth, testing::Values(9, 64, 65, 1000, 1000000));

TEST(Nesting, AMillionEmptyArraysAreTooManyEvents) {
  const Payload payload =
      FromHex("93 cb3ff8000000000000 dd000f4240") + Repeat("90", 1000000) + FromHex("00");
  EXPECT_EQ(Decode(payload).status.code(), StatusCode::kLimit);
}

TEST(Nesting, AMillionEmptyArraysInAnUnknownFieldAreSkipped) {
  const Decoded decoded =
      Decode(BatchAround(EventWithUnknown(FromHex("dd000f4240") + Repeat("90", 1000000))));
  ASSERT_TRUE(decoded.status.ok());
  EXPECT_EQ(decoded.counts.decoded, 2u);
  EXPECT_EQ(decoded.counts.unknown_fields, 1u);
}

TEST(Nesting, EventsOfExtensionsOnlyAreRejectedOneByOne) {
  const Payload payload =
      FromHex("93 cb3ff8000000000000 dc1000") + Repeat("d4 05 00", 4096) + FromHex("00");
  const Decoded decoded = Decode(payload);
  ASSERT_TRUE(decoded.status.ok());
  EXPECT_EQ(decoded.rejected(Reject::kNoTag), 4096u);
}

TEST(Nesting, HugeCountsInsideHugeCountsStayLinear) {
  // Each head declares one element per remaining byte. A decoder that walks all elements of each
  // head would take quadratic time.
  Payload payload = FromHex("93 cb3ff8000000000000 91");
  for (size_t left = 1000000; left > 5; left -= 5) {
    const auto count = static_cast<uint32_t>(left - 5);
    payload = std::move(payload) +
              Payload{0xdd, static_cast<uint8_t>(count >> 24), static_cast<uint8_t>(count >> 16),
                      static_cast<uint8_t>(count >> 8), static_cast<uint8_t>(count)};
  }
  EXPECT_EQ(Decode(payload).status.code(), StatusCode::kMalformed);
}

}  // namespace
}  // namespace kvcast::wire
