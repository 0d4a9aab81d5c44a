// The MessagePack cursor reads every form, checks its bounds, and skips values.
// SPDX-License-Identifier: Apache-2.0
#include "src/wire/reader.h"

#include <gtest/gtest.h>

#include <random>

#include "src/wire/writer.h"
#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

struct Form {
  const char* hex;
  Kind kind;
  uint64_t number;
};

class ReaderForm : public testing::TestWithParam<Form> {};

TEST_P(ReaderForm, IsReadWholeAndNothingElse) {
  const Payload bytes = FromHex(GetParam().hex);
  Reader reader(bytes);
  Value value;
  ASSERT_TRUE(reader.Next(value));
  EXPECT_EQ(value.kind, GetParam().kind);
  EXPECT_EQ(value.number, GetParam().number);
  EXPECT_EQ(reader.at_end(), value.children() == 0);
  Reader again(bytes);
  EXPECT_TRUE(again.Skip());
  EXPECT_TRUE(again.at_end());
}

TEST_P(ReaderForm, PeekAgrees) {
  const Payload bytes = FromHex(GetParam().hex);
  const Reader reader(bytes);
  Kind kind;
  ASSERT_TRUE(reader.PeekKind(kind));
  const bool negative = GetParam().kind == Kind::kNegative;
  EXPECT_EQ(kind, negative ? Kind::kUnsigned : GetParam().kind);
}

TEST_P(ReaderForm, IsRefusedWhenCut) {
  const Payload bytes = FromHex(GetParam().hex);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Payload cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    Reader reader(cut);
    EXPECT_FALSE(reader.Skip()) << size;
    Reader within(cut);
    EXPECT_EQ(within.SkipWithin(8), Reader::SkipResult::kMalformed) << size;
  }
}

constexpr uint64_t kMinusOne = ~uint64_t{0};

INSTANTIATE_TEST_SUITE_P(
    Reader, ReaderForm,
    testing::Values(
        Form{"c0", Kind::kNil, 0}, Form{"c2", Kind::kBool, 0}, Form{"c3", Kind::kBool, 1},
        Form{"00", Kind::kUnsigned, 0}, Form{"7f", Kind::kUnsigned, 127},
        Form{"ccff", Kind::kUnsigned, 255}, Form{"cdfffe", Kind::kUnsigned, 65534},
        Form{"cefffffffe", Kind::kUnsigned, 4294967294},
        Form{"cfffffffffffffffff", Kind::kUnsigned, kMinusOne},
        Form{"ff", Kind::kNegative, kMinusOne}, Form{"e0", Kind::kNegative, kMinusOne - 31},
        Form{"d0ff", Kind::kNegative, kMinusOne}, Form{"d080", Kind::kNegative, kMinusOne - 127},
        Form{"d1ffff", Kind::kNegative, kMinusOne}, Form{"d2ffffffff", Kind::kNegative, kMinusOne},
        Form{"d38000000000000000", Kind::kNegative, uint64_t{1} << 63},
        Form{"d005", Kind::kUnsigned, 5}, Form{"d10005", Kind::kUnsigned, 5},
        Form{"d200000005", Kind::kUnsigned, 5}, Form{"d30000000000000005", Kind::kUnsigned, 5},
        Form{"ca3fc00000", Kind::kFloat, 0x3ff8000000000000},
        Form{"cb3ff8000000000001", Kind::kFloat, 0x3ff8000000000001}, Form{"a0", Kind::kText, 0},
        Form{"a3616263", Kind::kText, 3}, Form{"d903616263", Kind::kText, 3},
        Form{"da0003616263", Kind::kText, 3}, Form{"db00000003616263", Kind::kText, 3},
        Form{"c400", Kind::kBytes, 0}, Form{"c402abcd", Kind::kBytes, 2},
        Form{"c50002abcd", Kind::kBytes, 2}, Form{"c600000002abcd", Kind::kBytes, 2}));
INSTANTIATE_TEST_SUITE_P(
    ReaderContainers, ReaderForm,
    testing::Values(Form{"90", Kind::kArray, 0}, Form{"920102", Kind::kArray, 2},
                    Form{"dc00020102", Kind::kArray, 2}, Form{"dd000000020102", Kind::kArray, 2},
                    Form{"80", Kind::kMap, 0}, Form{"810102", Kind::kMap, 1},
                    Form{"de00010102", Kind::kMap, 1}, Form{"df000000010102", Kind::kMap, 1},
                    Form{"d405aa", Kind::kExtension, 2}, Form{"d505aabb", Kind::kExtension, 3},
                    Form{"d605aabbccdd", Kind::kExtension, 5},
                    Form{"d7050011223344556677", Kind::kExtension, 9},
                    Form{"d80500112233445566770011223344556677", Kind::kExtension, 17},
                    Form{"c70005", Kind::kExtension, 1}, Form{"c70105aa", Kind::kExtension, 2},
                    Form{"c8000105aa", Kind::kExtension, 2},
                    Form{"c90000000105aa", Kind::kExtension, 2}));

TEST(ReaderBounds, CountsAreHeldToTheBytesThatRemain) {
  for (const char* hex : {"dd ffffffff c0", "dd 00000002 c0", "df 00000001 c0", "92 c0", "81 c0"}) {
    const Payload bytes = FromHex(hex);
    Reader reader(bytes);
    Value value;
    EXPECT_FALSE(reader.Next(value)) << hex;
  }
}

TEST(ReaderBounds, TheNeverUsedByteIsRefusedAnywhere) {
  for (const char* hex : {"c1", "91 c1", "82 01 02 c1 03"}) {
    const Payload bytes = FromHex(hex);
    Reader reader(bytes);
    EXPECT_FALSE(reader.Skip()) << hex;
  }
}

TEST(ReaderSkip, HoldsToItsDepth) {
  const Payload bytes = FromHex("91 91 81 01 90");  // four levels
  for (uint32_t depth = 0; depth < 6; ++depth) {
    Reader reader(bytes);
    const auto expected = depth < 4 ? Reader::SkipResult::kTooDeep : Reader::SkipResult::kOk;
    EXPECT_EQ(reader.SkipWithin(depth), expected) << depth;
  }
}

TEST(ReaderSkip, StopsBehindTheValue) {
  const Payload bytes = FromHex("92 a161 81 01 02 05");
  Reader reader(bytes);
  ASSERT_TRUE(reader.Skip());
  EXPECT_EQ(reader.remaining(), 1u);
  Reader within(bytes);
  ASSERT_EQ(within.SkipWithin(2), Reader::SkipResult::kOk);
  EXPECT_EQ(within.remaining(), 1u);
}

// Two thirds of the lists have only integers from 0 to 2^32 - 1, in all their forms and in random
// order. The other lists also have longer and negative integers. NextSmallIntegers must stop before
// them.
TEST(ReaderSmallIntegers, AgreeWithReadingOneByOne) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int64_t> numbers(random() % 200);
    Payload bytes;
    Writer writer(bytes);
    const bool all_small = round % 3 != 0;
    for (int64_t& number : numbers) {
      const int bits = static_cast<int>(random() % (all_small ? 33 : 63));
      number = static_cast<int64_t>(random() & ((uint64_t{1} << bits) - 1));
      if (!all_small && random() % 50 == 0) number = -number;
      writer.Signed(number);
    }
    writer.Close();
    Reader reader(bytes);
    std::vector<int64_t> read(numbers.size());
    size_t done = reader.NextSmallIntegers(read.size(), read.data());
    for (; done < read.size(); ++done) {
      Value value;
      ASSERT_TRUE(reader.Next(value));
      read[done] = static_cast<int64_t>(value.number);
    }
    ASSERT_EQ(read, numbers) << "round " << round;
    ASSERT_TRUE(reader.at_end());
  }
}

TEST(ReaderSmallIntegers, NeverReadPastTheCount) {
  const Payload bytes(200, 0x01);
  for (size_t count = 0; count < 130; ++count) {
    Reader reader(bytes);
    std::vector<int64_t> out(count);
    const size_t done = reader.NextSmallIntegers(count, out.data());
    EXPECT_LE(done, count);
    EXPECT_EQ(reader.remaining(), bytes.size() - done);
  }
}

}  // namespace
}  // namespace kvcast::wire
