// The canonical CBOR bytes are equal to those of cbor2.dumps(..., canonical=True).
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "src/hash/cbor_writer.h"
#include "tests/hash/hash_testing.h"

namespace kvcast::testing {
namespace {

using internal::ByteBuffer;
using internal::CborWriter;

template <typename Write>
std::string Written(Write write) {
  ByteBuffer out;
  CborWriter writer(out);
  write(writer);
  return ToHex(out.view());
}

std::string IntHex(int64_t value) {
  return Written([&](CborWriter& writer) { writer.WriteInt(value); });
}

std::string FloatHex(double value) {
  return Written([&](CborWriter& writer) { writer.WriteFloat(value); });
}

TEST(CborBytes, BlockOfFourTokens) {
  BlockHasher hasher = MakeHasherOfOnes(HashAlgorithm::kSha256Cbor, 32);
  EXPECT_EQ(ToHex(hasher.Preimage(nullptr, TokenRange(0, 4), {})),
            "835820" + ToHex(std::string(32, 1)) + "8400010203f6");
  BlockHasher xxhash = MakeHasherOfOnes(HashAlgorithm::kXxhashCbor, 16);
  EXPECT_EQ(ToHex(xxhash.Preimage(nullptr, TokenRange(0, 4), {ExtraKey::Item("img", -3)})),
            "8350" + ToHex(std::string(16, 1)) + "8400010203818263696d6722");
}

TEST(CborBytes, IntegersInTheirShortestForm) {
  EXPECT_EQ(IntHex(0), "00");
  EXPECT_EQ(IntHex(23), "17");
  EXPECT_EQ(IntHex(24), "1818");
  EXPECT_EQ(IntHex(255), "18ff");
  EXPECT_EQ(IntHex(256), "190100");
  EXPECT_EQ(IntHex(65535), "19ffff");
  EXPECT_EQ(IntHex(65536), "1a00010000");
  EXPECT_EQ(IntHex(2147483648), "1a80000000");
  EXPECT_EQ(IntHex(4294967295), "1affffffff");
  EXPECT_EQ(IntHex(4294967296), "1b0000000100000000");
  EXPECT_EQ(IntHex(INT64_MAX), "1b7fffffffffffffff");
}

TEST(CborBytes, NegativeIntegers) {
  EXPECT_EQ(IntHex(-1), "20");
  EXPECT_EQ(IntHex(-24), "37");
  EXPECT_EQ(IntHex(-25), "3818");
  EXPECT_EQ(IntHex(-2147483649), "3a80000000");
  EXPECT_EQ(IntHex(-4294967297), "3b0000000100000000");
  EXPECT_EQ(IntHex(INT64_MIN), "3b7fffffffffffffff");
}

TEST(CborBytes, TupleOfAnUnsignedIntegerTextBytesAndConstants) {
  EXPECT_EQ(Written([](CborWriter& writer) {
              writer.BeginTuple(6);
              writer.WriteUnsigned(UINT64_MAX);
              writer.WriteText("salt");
              writer.WriteBytes(std::vector<uint8_t>{1, 2});
              writer.WriteNone();
              writer.WriteBool(true);
              writer.WriteBool(false);
              writer.EndTuple(6);
            }),
            "861bffffffffffffffff6473616c74420102f6f5f4");
}

TEST(CborBytes, LongTextHasAWiderHead) {
  const auto text = [](size_t size) {
    return Written([&](CborWriter& writer) { writer.WriteText(std::string(size, 's')); });
  };
  EXPECT_EQ(text(23).substr(0, 2), "77");
  EXPECT_EQ(text(24).substr(0, 4), "7818");
  EXPECT_EQ(text(256).substr(0, 6), "790100");
}

TEST(CborBytes, FloatsInTheShortestFormThatKeepsTheirValue) {
  EXPECT_EQ(FloatHex(0.0), "f90000");
  EXPECT_EQ(FloatHex(-0.0), "f98000");
  EXPECT_EQ(FloatHex(1.5), "f93e00");
  EXPECT_EQ(FloatHex(65504.0), "f97bff");
  EXPECT_EQ(FloatHex(65536.0), "fa47800000");
  EXPECT_EQ(FloatHex(5.960464477539063e-08), "f90001");
  EXPECT_EQ(FloatHex(6.103515625e-05), "f90400");
  EXPECT_EQ(FloatHex(100000.0), "fa47c35000");
  EXPECT_EQ(FloatHex(3.4028234663852886e+38), "fa7f7fffff");
  EXPECT_EQ(FloatHex(1.1), "fb3ff199999999999a");
  EXPECT_EQ(FloatHex(1e300), "fb7e37e43c8800759c");
  EXPECT_EQ(FloatHex(std::numeric_limits<double>::infinity()), "f97c00");
  EXPECT_EQ(FloatHex(-std::numeric_limits<double>::infinity()), "f9fc00");
  EXPECT_EQ(FloatHex(std::numeric_limits<double>::quiet_NaN()), "f97e00");
}

}  // namespace
}  // namespace kvcast::testing
