// The writer picks the shortest form of integers, lengths and counts on both sides of every
// boundary. A float always takes eight bytes.
// SPDX-License-Identifier: Apache-2.0
#include "src/wire/writer.h"

#include <gtest/gtest.h>

#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

template <typename Write>
std::string Hex(Write write) {
  Payload bytes;
  Writer writer(bytes);
  write(writer);
  writer.Close();
  return ToHex(bytes);
}
std::string Unsigned(uint64_t value) {
  return Hex([&](Writer& w) { w.Unsigned(value); });
}
std::string Signed(int64_t value) {
  return Hex([&](Writer& w) { w.Signed(value); });
}

// SignedList has its own code for integers.
TEST(Writer, ListsHaveTheFormsOfTheirValues) {
  std::vector<int64_t> values = {0, -1, -33, INT64_MIN, INT64_MAX};
  for (int bits = 7; bits < 63; ++bits) {
    for (int64_t near = -2; near <= 2; ++near) values.push_back((int64_t{1} << bits) + near);
  }
  std::string one_by_one;
  for (const int64_t value : values) one_by_one += Signed(value);
  EXPECT_EQ(Hex([&](Writer& w) { w.SignedList(values); }), one_by_one);
}

TEST(Writer, UnsignedIntegers) {
  EXPECT_EQ(Unsigned(0), "00");
  EXPECT_EQ(Unsigned(127), "7f");
  EXPECT_EQ(Unsigned(128), "cc80");
  EXPECT_EQ(Unsigned(255), "ccff");
  EXPECT_EQ(Unsigned(256), "cd0100");
  EXPECT_EQ(Unsigned(65535), "cdffff");
  EXPECT_EQ(Unsigned(65536), "ce00010000");
  EXPECT_EQ(Unsigned(4294967295), "ceffffffff");
  EXPECT_EQ(Unsigned(4294967296), "cf0000000100000000");
  EXPECT_EQ(Unsigned(UINT64_MAX), "cfffffffffffffffff");
}

TEST(Writer, SignedIntegers) {
  EXPECT_EQ(Signed(128), "cc80");
  EXPECT_EQ(Signed(INT64_MAX), "cf7fffffffffffffff");
  EXPECT_EQ(Signed(-1), "ff");
  EXPECT_EQ(Signed(-32), "e0");
  EXPECT_EQ(Signed(-33), "d0df");
  EXPECT_EQ(Signed(-128), "d080");
  EXPECT_EQ(Signed(-129), "d1ff7f");
  EXPECT_EQ(Signed(-32768), "d18000");
  EXPECT_EQ(Signed(-32769), "d2ffff7fff");
  EXPECT_EQ(Signed(INT32_MIN), "d280000000");
  EXPECT_EQ(Signed(int64_t{INT32_MIN} - 1), "d3ffffffff7fffffff");
  EXPECT_EQ(Signed(INT64_MIN), "d38000000000000000");
}

TEST(Writer, FloatsAlwaysTakeEightBytes) {
  EXPECT_EQ(Hex([](Writer& w) { w.Float(1.0); }), "cb3ff0000000000000");
  EXPECT_EQ(Hex([](Writer& w) { w.Float(-0.0); }), "cb8000000000000000");
}

TEST(Writer, LengthsAndCounts) {
  const auto text = [](size_t size) {
    return Hex([&](Writer& w) { w.Text(std::string(size, 'x')); });
  };
  EXPECT_EQ(text(31).substr(0, 2), "bf");
  EXPECT_EQ(text(32).substr(0, 4), "d920");
  EXPECT_EQ(text(255).substr(0, 4), "d9ff");
  EXPECT_EQ(text(256).substr(0, 6), "da0100");
  EXPECT_EQ(text(65535).substr(0, 6), "daffff");
  EXPECT_EQ(text(65536).substr(0, 10), "db00010000");
  const auto binary = [](size_t size) { return Hex([&](Writer& w) { w.Binary(Payload(size)); }); };
  EXPECT_EQ(binary(0), "c400");
  EXPECT_EQ(binary(255).substr(0, 4), "c4ff");
  EXPECT_EQ(binary(256).substr(0, 6), "c50100");
  EXPECT_EQ(binary(65536).substr(0, 10), "c600010000");
  const auto array = [](size_t count) { return Hex([&](Writer& w) { w.ArrayHead(count); }); };
  EXPECT_EQ(array(15), "9f");
  EXPECT_EQ(array(16), "dc0010");
  EXPECT_EQ(array(65535), "dcffff");
  EXPECT_EQ(array(65536), "dd00010000");
  const auto map = [](size_t pairs) { return Hex([&](Writer& w) { w.MapHead(pairs); }); };
  EXPECT_EQ(map(15), "8f");
  EXPECT_EQ(map(16), "de0010");
  EXPECT_EQ(map(65536), "df00010000");
}

}  // namespace
}  // namespace kvcast::wire
