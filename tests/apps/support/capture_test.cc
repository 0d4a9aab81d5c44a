// CaptureReader returns the records of a capture, and ends before a record that is cut off. The
// pause before a record is bounded, also if the record has an invalid time.
// SPDX-License-Identifier: Apache-2.0
#include "apps/support/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace kvcast::tools {
namespace {

const CapturedMessage kFirst{
    .time = 1.5, .topic = "kv", .seq = 7, .payload = std::string("a\0b", 3)};
const CapturedMessage kSecond{.time = 2.5, .topic = "", .seq = ~uint64_t{0}, .payload = ""};

std::string Capture() {
  return std::string(kCaptureMagic) + EncodeRecord(kFirst) + EncodeRecord(kSecond);
}

TEST(Capture, ReadsTheRecordsThatWereWritten) {
  auto reader = CaptureReader::Parse(Capture()).value();
  for (const CapturedMessage& expected : {kFirst, kSecond}) {
    const auto message = reader.Next();
    ASSERT_TRUE(message);
    EXPECT_EQ(message->time, expected.time);
    EXPECT_EQ(message->topic, expected.topic);
    EXPECT_EQ(message->seq, expected.seq);
    EXPECT_EQ(message->payload, expected.payload);
  }
  EXPECT_FALSE(reader.Next());
}

TEST(Capture, EndsBeforeARecordThatIsCutOff) {
  const size_t first = kCaptureMagic.size() + EncodeRecord(kFirst).size();
  for (size_t size = kCaptureMagic.size(); size < Capture().size(); ++size) {
    auto reader = CaptureReader::Parse(Capture().substr(0, size)).value();
    EXPECT_EQ(reader.Next().has_value(), size >= first) << size;
    EXPECT_FALSE(reader.Next()) << size;
  }
}

TEST(Capture, OtherFilesAreRefused) {
  for (const std::string text : {"", "kvcast-capture-1", "kvcast-capture-2\n"}) {
    const Status status = CaptureReader::Parse(text).status();
    EXPECT_EQ(status.code(), StatusCode::kMalformed);
    EXPECT_THAT(status.message(), testing::HasSubstr("not a capture"));
  }
}

TEST(Capture, PausesAreBoundedForAnyTime) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ReplayOffsetNs(1.5, 2.5, 2), 500'000'000);
  EXPECT_EQ(ReplayOffsetNs(2.5, 1.5, 1), 0);  // the clock was set back
  for (const double early : {kNan, -kInfinity, -1e300}) EXPECT_EQ(ReplayOffsetNs(0, early, 1), 0);
  EXPECT_EQ(ReplayOffsetNs(kInfinity, kInfinity, 1), 0);
  for (const double late : {1e300, kInfinity, 1e10}) {
    EXPECT_EQ(ReplayOffsetNs(0, late, 1), kMaxReplayOffsetNs);
  }
  EXPECT_EQ(ReplayOffsetNs(0, 1, 1e-300), kMaxReplayOffsetNs);
}

}  // namespace
}  // namespace kvcast::tools
