// A reader gets the fields that were written. Damaged fields are never read as other values.
// SPDX-License-Identifier: Apache-2.0
#include "src/base/byte_fields.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvcast {
namespace {

constexpr uint64_t kMax = ~uint64_t{0};

TEST(ByteFields, FieldsAreReadInTheirOrder) {
  FieldWriter writer;
  for (const uint64_t value : {uint64_t{0}, uint64_t{127}, uint64_t{128}, kMax}) writer.Int(value);
  writer.Bool(true);
  writer.Fixed(kMax - 1);
  writer.Text("name");
  FieldReader reader(writer.bytes());
  for (const uint64_t value : {uint64_t{0}, uint64_t{127}, uint64_t{128}, kMax}) {
    EXPECT_EQ(reader.Int(), value);
  }
  EXPECT_TRUE(reader.Bool());
  EXPECT_EQ(reader.Fixed(), kMax - 1);
  EXPECT_FALSE(reader.AtEnd());
  EXPECT_EQ(reader.Text(), "name");
  EXPECT_TRUE(reader.AtEnd());
}

TEST(ByteFields, AnAbsentFieldFailsAndSoDoAllLaterFields) {
  FieldWriter writer;
  writer.Int(5);
  FieldReader reader(writer.bytes());
  EXPECT_EQ(reader.Int(), 5u);
  EXPECT_EQ(reader.Int(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.Fixed(), 0u);
  EXPECT_EQ(reader.Text(), "");
  EXPECT_FALSE(reader.AtEnd());
}

TEST(ByteFields, AnIntegerAboveItsLimitFails) {
  FieldWriter writer;
  writer.Int(8);
  EXPECT_EQ(FieldReader(writer.bytes()).Int(8), 8u);
  FieldReader reader(writer.bytes());
  EXPECT_EQ(reader.Int(7), 0u);
  EXPECT_FALSE(reader.ok());
}

// A varint of ten bytes can express 70 bits.
TEST(ByteFields, AnIntegerOfMoreThan64BitsFails) {
  std::vector<uint8_t> bytes(kMaxVarint, 0xff);
  for (const uint8_t last : {0x02, 0x03, 0x7f, 0x80, 0xff}) {
    bytes.back() = last;
    FieldReader reader(bytes);
    EXPECT_EQ(reader.Int(), 0u) << int{last};
    EXPECT_FALSE(reader.ok()) << int{last};
  }
  bytes.back() = 0x01;
  EXPECT_EQ(FieldReader(bytes).Int(), kMax);
}

}  // namespace
}  // namespace kvcast
