// The pickle protocol 5 bytes are equal to those of CPython's pickle.dumps for the same objects.
// SPDX-License-Identifier: Apache-2.0
#include "src/hash/pickle_writer.h"
#include "tests/hash/hash_testing.h"

namespace kvcast::testing {
namespace {

using internal::ByteBuffer;
using internal::PickleWriter;

// The bytes that `write` writes between the frame header and STOP.
template <typename Write>
std::string Body(Write write) {
  ByteBuffer out;
  PickleWriter writer(out);
  write(writer);
  writer.Finish();
  const std::string hex = ToHex(out.view());
  // PROTO 5, and FRAME with its length.
  const size_t header = hex.substr(4, 2) == "95" ? 22 : 4;
  EXPECT_EQ(hex.substr(hex.size() - 2), "2e");
  return hex.substr(header, hex.size() - header - 2);
}

std::string IntBody(int64_t value) {
  return Body([&](PickleWriter& writer) { writer.WriteInt(value); });
}

std::string TextBody(std::string_view text) {
  return Body([&](PickleWriter& writer) { writer.WriteText(text); });
}

TEST(PickleBytes, BlocksOfOneToFiveTokens) {
  BlockHasher hasher = MakeHasherOfOnes(HashAlgorithm::kSha256, 32);
  const std::string parent = "4320" + ToHex(std::string(32, 1)) + "94";
  const std::string protocol = "800595";
  const auto preimage = [&](size_t count) {
    return ToHex(hasher.Preimage(nullptr, TokenRange(0, count), {}));
  };
  EXPECT_EQ(preimage(0), protocol + "2800000000000000" + parent + "294e87942e");
  EXPECT_EQ(preimage(1), protocol + "2b00000000000000" + parent + "4b0085944e87942e");
  EXPECT_EQ(preimage(2), protocol + "2d00000000000000" + parent + "4b004b0186944e87942e");
  EXPECT_EQ(preimage(3), protocol + "2f00000000000000" + parent + "4b004b014b0287944e87942e");
  EXPECT_EQ(preimage(4), protocol + "3200000000000000" + parent + "284b004b014b024b0374944e87942e");
  EXPECT_EQ(preimage(5),
            protocol + "3400000000000000" + parent + "284b004b014b024b034b0474944e87942e");
}

TEST(PickleBytes, TokenEdges) {
  EXPECT_EQ(IntBody(0), "4b00");
  EXPECT_EQ(IntBody(255), "4bff");
  EXPECT_EQ(IntBody(256), "4d0001");
  EXPECT_EQ(IntBody(65535), "4dffff");
  EXPECT_EQ(IntBody(65536), "4a00000100");
  EXPECT_EQ(IntBody(2147483647), "4affffff7f");
  EXPECT_EQ(IntBody(2147483648), "8a050000008000");
  EXPECT_EQ(IntBody(4294967296), "8a050000000001");
  EXPECT_EQ(IntBody(1099511627776), "8a06000000000001");
  EXPECT_EQ(IntBody(INT64_MAX), "8a08ffffffffffffff7f");
}

TEST(PickleBytes, NegativeIntegers) {
  EXPECT_EQ(IntBody(-1), "4affffffff");
  EXPECT_EQ(IntBody(-129), "4a7fffffff");
  EXPECT_EQ(IntBody(-2147483648), "4a00000080");
  EXPECT_EQ(IntBody(-2147483649), "8a05ffffff7fff");
  EXPECT_EQ(IntBody(-549755813888), "8a050000000080");
  EXPECT_EQ(IntBody(INT64_MIN), "8a080000000000000080");
}

TEST(PickleBytes, UnsignedIntegersAbove63BitsCarryASignByte) {
  const auto body = [](uint64_t value) {
    return Body([&](PickleWriter& writer) { writer.WriteUnsigned(value); });
  };
  EXPECT_EQ(body(7), "4b07");
  EXPECT_EQ(body(uint64_t{1} << 63), "8a09000000000000008000");
  EXPECT_EQ(body(UINT64_MAX), "8a09ffffffffffffffff00");
}

TEST(PickleBytes, ShortAndLongText) {
  EXPECT_EQ(TextBody("salt"), "8c0473616c7494");
  EXPECT_EQ(TextBody(std::string(255, 's')), "8cff" + ToHex(std::string(255, 's')) + "94");
  EXPECT_EQ(TextBody(std::string(256, 's')), "5800010000" + ToHex(std::string(256, 's')) + "94");
}

TEST(PickleBytes, ShortAndLongByteStrings) {
  const auto body = [](const std::string& bytes) {
    return Body([&](PickleWriter& writer) {
      writer.WriteBytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    });
  };
  EXPECT_EQ(body(std::string(255, 'b')), "43ff" + ToHex(std::string(255, 'b')) + "94");
  EXPECT_EQ(body(std::string(256, 'b')), "4200010000" + ToHex(std::string(256, 'b')) + "94");
}

TEST(PickleBytes, ConstantsAndFloats) {
  EXPECT_EQ(Body([](PickleWriter& writer) {
              writer.BeginTuple(4);
              writer.WriteNone();
              writer.WriteBool(true);
              writer.WriteBool(false);
              writer.WriteFloat(1.5);
              writer.EndTuple(4);
            }),
            "284e8889473ff80000000000007494");
}

// The pair (first, second), both written as text.
std::string PairBody(std::string_view first, uint32_t first_tag, std::string_view second,
                     uint32_t second_tag) {
  return Body([&](PickleWriter& writer) {
    writer.BeginTuple(2);
    writer.WriteText(first, first_tag);
    writer.WriteText(second, second_tag);
    writer.EndTuple(2);
  });
}

TEST(PickleBytes, SameObjectBecomesABackReference) {
  EXPECT_EQ(PairBody("img", 1, "img", 1), "8c03696d679468008694");
  EXPECT_EQ(PairBody("img", 0, "img", 0), "8c03696d67948c03696d67948694");
  EXPECT_EQ(PairBody("img", 1, "img", 2), "8c03696d67948c03696d67948694");
  EXPECT_EQ(PairBody("img", 1, "gmi", 1), "8c03696d67948c03676d69948694");
}

TEST(PickleBytes, OneLatin1CharacterOrNoneIsAlwaysTheSameObject) {
  EXPECT_EQ(PairBody("l", 0, "l", 0), "8c016c9468008694");
  EXPECT_EQ(PairBody("l", 1, "l", 2), "8c016c9468008694");
  EXPECT_EQ(PairBody("", 0, "", 0), "8c009468008694");
  EXPECT_EQ(PairBody("\u00fc", 0, "\u00fc", 0), "8c02c3bc9468008694");
  EXPECT_EQ(PairBody("\u0100", 0, "\u0100", 0), "8c02c480948c02c480948694");
}

TEST(PickleBytes, OneByteOrNoneIsAlwaysTheSameObjectButNotTheTextOfIt) {
  const uint8_t byte = 'l';
  EXPECT_EQ(Body([&](PickleWriter& writer) {
              writer.BeginTuple(3);
              writer.WriteText("l");
              writer.WriteBytes({&byte, 1});
              writer.WriteBytes({&byte, 1});
              writer.EndTuple(3);
            }),
            "8c016c9443016c9468018794");
}

TEST(PickleBytes, BackReferenceInABlockCountsParentAndTokens) {
  BlockHasher hasher = MakeHasherOfOnes(HashAlgorithm::kSha256, 32);
  const ExtraKeys keys = {ExtraKey::Item("img-B", 0), ExtraKey::Item("img-B", 6)};
  const uint32_t one_object[] = {1, 1};
  const std::string preimage = ToHex(hasher.Preimage(nullptr, TokenRange(1, 2), keys, one_object));
  EXPECT_EQ(preimage, "8005954000000000000000" + ("4320" + ToHex(std::string(32, 1))) +
                          "944b014b0286948c05696d672d42944b00869468024b068694869487942e");
}

TEST(PickleBytes, BackReferencePastIndex255HasFourBytes) {
  const std::string body = Body([](PickleWriter& writer) {
    writer.BeginTuple(302);
    for (int i = 0; i < 300; ++i) writer.WriteText("distinct");
    writer.WriteText("again", 1);
    writer.WriteText("again", 1);
    writer.EndTuple(302);
  });
  EXPECT_EQ(body.substr(body.size() - 14), "6a2c0100007494");
}

TEST(PickleBytes, AFrameEndsAtTheFirstObjectPast64KiB) {
  ByteBuffer out;
  PickleWriter writer(out);
  writer.BeginTuple(14000);
  for (int i = 0; i < 14000; ++i) writer.WriteInt(100000);
  writer.EndTuple(14000);
  writer.Finish();
  // MARK and 13,107 integers of 5 bytes are 65,536 bytes.
  const std::string hex = ToHex(out.view());
  EXPECT_EQ(hex.substr(4, 22),
            "95"
            "0000010000000000"
            "28"
            "4a");
  EXPECT_EQ(hex.substr((11 + 65536) * 2, 22),
            "95"
            "7411000000000000"
            "4a"
            "a0");
}

TEST(PickleBytes, ALongStringStandsOutsideFramesAndATinyFrameHasNoHeader) {
  ByteBuffer out;
  PickleWriter writer(out);
  const std::string text(65536, 'x');
  writer.WriteText(text);
  writer.Finish();
  EXPECT_EQ(ToHex(out.view()),
            "8005"
            "5800000100" +
                ToHex(text) +
                "94"
                "2e");
}

}  // namespace
}  // namespace kvcast::testing
