// The MessagePack cursor reads every form, checks its bounds, and skips values.
// SPDX-License-Identifier: Apache-2.0
#include "src/wire/reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

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

TEST(ReaderBounds, CountsAreBoundedByTheRemainingBytes) {
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

TEST(ReaderSkip, RefusesValuesBeyondItsDepth) {
  const Payload bytes = FromHex("91 91 81 01 90");  // four levels
  for (uint32_t depth = 0; depth < 6; ++depth) {
    Reader reader(bytes);
    const auto expected = depth < 4 ? Reader::SkipResult::kTooDeep : Reader::SkipResult::kOk;
    EXPECT_EQ(reader.SkipWithin(depth), expected) << depth;
  }
}

TEST(ReaderSkip, StopsAfterTheValue) {
  const Payload bytes = FromHex("92 a161 81 01 02 05");
  Reader reader(bytes);
  ASSERT_TRUE(reader.Skip());
  EXPECT_EQ(reader.remaining(), 1u);
  Reader within(bytes);
  ASSERT_EQ(within.SkipWithin(2), Reader::SkipResult::kOk);
  EXPECT_EQ(within.remaining(), 1u);
}

// The first and the last number of each form. The small numbers have an unsigned form of at most 32
// bits.
constexpr int64_t kSmallBorders[] = {0,     1,     127,       128,       255,       256,
                                     65535, 65536, INT32_MAX, 1ll << 31, UINT32_MAX};
constexpr int64_t kOtherBorders[] = {
    1ll << 32, INT64_MAX,       -1,       -32, -33, -128, -129, -32768, -32769,
    INT32_MIN, INT32_MIN - 1ll, INT64_MIN};

struct FormedNumber {
  int64_t number;
  uint8_t lead;  // the form; 0: the shortest form
};

// A random integer from 0 to 2^32 - 1, in a random unsigned form of at most 32 bits.
FormedNumber SmallNumber(std::mt19937_64& random) {
  const bool border = random() % 2 == 0;
  const int64_t number =
      border ? kSmallBorders[random() % std::size(kSmallBorders)]
             : static_cast<int64_t>(random() & ((uint64_t{1} << random() % 33) - 1));
  const uint8_t least = number <= UINT8_MAX ? 0xcc : number <= UINT16_MAX ? 0xcd : 0xce;
  const auto lead = static_cast<uint8_t>(least + random() % (0xcfu - least));
  return {number, random() % 2 == 0 ? uint8_t{0} : lead};
}

// An integer whose form is longer than 32 bits or signed. NextSmallIntegers stops before it.
FormedNumber OtherNumber(std::mt19937_64& random) {
  if (random() % 2 == 0) return {SmallNumber(random).number, uint8_t{0xcf}};
  if (random() % 2 == 0) return {static_cast<int64_t>(random() % 128), uint8_t{0xd0}};
  return {kOtherBorders[random() % std::size(kOtherBorders)], uint8_t{0}};
}

Payload Written(const std::vector<FormedNumber>& numbers) {
  Payload bytes;
  for (const auto& [number, lead] : numbers) {
    if (lead == 0) {
      Writer writer(bytes);
      writer.Signed(number);
      writer.Close();
      continue;
    }
    bytes.push_back(lead);
    for (int byte = (1 << (lead & 3)) - 1; byte >= 0; --byte) {
      bytes.push_back(static_cast<uint8_t>(static_cast<uint64_t>(number) >> 8 * byte));
    }
  }
  return bytes;
}

struct NumberList {
  std::vector<FormedNumber> numbers;
  size_t small = 0;  // numbers before the first OtherNumber
};

// A third of the lists may also have numbers of OtherNumber.
NumberList RandomNumbers(std::mt19937_64& random, size_t longest) {
  NumberList list;
  const bool all_small = random() % 3 != 0;
  bool small = true;
  for (size_t i = random() % longest; i > 0; --i) {
    const bool other = !all_small && random() % 50 == 0;
    small = small && !other;
    list.numbers.push_back(other ? OtherNumber(random) : SmallNumber(random));
    list.small += small ? 1 : 0;
  }
  return list;
}

// NextSmallIntegers and SkipSmallIntegers must read all values before the first OtherNumber. They
// may leave out values within `end` bytes of the end of the input.
void ExpectDone(size_t done, const NumberList& list, const Reader& reader, size_t end) {
  EXPECT_LE(done, list.small);
  if (reader.remaining() > end) {
    EXPECT_EQ(done, list.small);
  }
}

TEST(ReaderSmallIntegers, AgreeWithReadingOneByOne) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(round);
    const NumberList list = RandomNumbers(random, 200);
    const Payload bytes = Written(list.numbers);
    Reader reader(bytes);
    std::vector<int64_t> read(list.numbers.size());
    size_t done = reader.NextSmallIntegers(read.size(), read.data());
    ExpectDone(done, list, reader, 100);
    for (; done < read.size(); ++done) {
      Value value;
      ASSERT_TRUE(reader.Next(value));
      read[done] = static_cast<int64_t>(value.number);
    }
    for (size_t i = 0; i < read.size(); ++i) ASSERT_EQ(read[i], list.numbers[i].number) << i;
    ASSERT_TRUE(reader.at_end());
  }
}

TEST(ReaderSmallIntegers, SkipTheSameValuesAsReading) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE(round);
    const NumberList list = RandomNumbers(random, 1000);
    const Payload bytes = Written(list.numbers);
    Reader reader(bytes);
    size_t done = reader.SkipSmallIntegers(list.numbers.size());
    ExpectDone(done, list, reader, 600);
    for (; done < list.numbers.size(); ++done) {
      Value value;
      ASSERT_TRUE(reader.Next(value));
      ASSERT_EQ(static_cast<int64_t>(value.number), list.numbers[done].number) << done;
    }
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
