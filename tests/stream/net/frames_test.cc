// Tests which frames of live messages, requests and replies are accepted, and which frames are
// rejected.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/frames.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvcast::stream {
namespace {

// Frames over texts. The object owns the texts.
class FramesOf {
 public:
  FramesOf(std::initializer_list<std::string> texts) : texts_(texts) {
    for (const std::string& text : texts_) {
      frames_.emplace_back(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    }
  }
  operator Frames() const { return frames_; }  // NOLINT(google-explicit-constructor)

 private:
  std::vector<std::string> texts_;
  std::vector<Frame> frames_;
};

std::string Seq8(uint64_t seq) {
  const SeqFrame frame = EncodeSeq(seq);
  return {frame.begin(), frame.end()};
}

const std::string kEnd(8, '\xff');

TEST(Frames, SeqIsEightBytesBigEndian) {
  EXPECT_EQ(EncodeSeq(0x0102030405060708), (SeqFrame{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Frames, LiveMessageHasTopicSeqAndPayload) {
  const FramesOf message({"topic", Seq8(258), "payload"});
  const std::optional<Batch> batch = ParseLive(message);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->seq, 258u);
  EXPECT_EQ(std::string(batch->payload.begin(), batch->payload.end()), "payload");
}

TEST(Frames, LiveMessageOfWrongShapeIsRejected) {
  EXPECT_FALSE(ParseLive(FramesOf({})));
  EXPECT_FALSE(ParseLive(FramesOf({"topic", Seq8(1)})));
  EXPECT_FALSE(ParseLive(FramesOf({"topic", Seq8(1), "payload", "more"})));
  EXPECT_FALSE(ParseLive(FramesOf({"topic", "", "payload"})));
  EXPECT_FALSE(ParseLive(FramesOf({"topic", std::string(7, '\0'), "payload"})));
  EXPECT_FALSE(ParseLive(FramesOf({"topic", std::string(9, '\0'), "payload"})));
}

TEST(Frames, LiveSeqPastTheSignedRangeIsRejected) {
  EXPECT_TRUE(ParseLive(FramesOf({"", Seq8(kSeqLimit - 1), "x"})));
  EXPECT_FALSE(ParseLive(FramesOf({"", Seq8(kSeqLimit), "x"})));
  EXPECT_FALSE(ParseLive(FramesOf({"", kEnd, "x"})));
}

TEST(Frames, ReplyIsAcceptedWithAndWithoutTopic) {
  const FramesOf with({"", "topic", Seq8(3), "payload"});
  const FramesOf without({"", Seq8(3), "payload"});
  EXPECT_EQ(ParseReply(with).kind, ReplyKind::kBatch);
  EXPECT_EQ(ParseReply(with).batch.seq, 3u);
  EXPECT_EQ(ParseReply(without).kind, ReplyKind::kBatch);
  EXPECT_EQ(ParseReply(without).batch.seq, 3u);
}

TEST(Frames, EndMarkerIsRecognizedBySeqOrByEmptyPayload) {
  EXPECT_EQ(ParseReply(FramesOf({"", "", kEnd, ""})).kind, ReplyKind::kEnd);
  EXPECT_EQ(ParseReply(FramesOf({"", kEnd, ""})).kind, ReplyKind::kEnd);
  EXPECT_EQ(ParseReply(FramesOf({"", kEnd, "status"})).kind, ReplyKind::kEnd);
  EXPECT_EQ(ParseReply(FramesOf({"", "topic", Seq8(9), ""})).kind, ReplyKind::kEnd);
}

TEST(Frames, ReplyOfWrongShapeIsMalformed) {
  EXPECT_EQ(ParseReply(FramesOf({})).kind, ReplyKind::kMalformed);
  EXPECT_EQ(ParseReply(FramesOf({Seq8(3), "payload"})).kind, ReplyKind::kMalformed);
  EXPECT_EQ(ParseReply(FramesOf({"x", Seq8(3), "payload"})).kind, ReplyKind::kMalformed);
  EXPECT_EQ(ParseReply(FramesOf({"", "a", "b", Seq8(3), "p"})).kind, ReplyKind::kMalformed);
  EXPECT_EQ(ParseReply(FramesOf({"", "topic", "12345", "payload"})).kind, ReplyKind::kMalformed);
  EXPECT_EQ(ParseReply(FramesOf({"", Seq8(kSeqLimit), "payload"})).kind, ReplyKind::kMalformed);
}

uint64_t StartOf(std::initializer_list<std::string> frames) {
  return ParseStart(ParseReplayRequest(FramesOf(frames)).value());
}

TEST(Frames, RequestStartIsABigEndianIntegerOfAnyLength) {
  EXPECT_EQ(StartOf({"id", "", ""}), 0u);
  EXPECT_EQ(StartOf({"id", "", "\x03"}), 3u);
  EXPECT_EQ(StartOf({"id", "", Seq8(10)}), 10u);
  EXPECT_EQ(StartOf({"id", "", std::string(20, '\0') + "\x05"}), 5u);
  EXPECT_EQ(StartOf({"id", "", kEnd}), UINT64_MAX);
  EXPECT_EQ(StartOf({"id", "", "\x01" + std::string(8, '\0')}), UINT64_MAX);
}

TEST(Frames, RequestOfWrongShapeIsNotARequest) {
  EXPECT_FALSE(ParseReplayRequest(FramesOf({"id", Seq8(0)})));
  EXPECT_FALSE(ParseReplayRequest(FramesOf({"id", "x", Seq8(0)})));
  EXPECT_FALSE(ParseReplayRequest(FramesOf({"id", "", "topic", Seq8(0)})));
}

}  // namespace
}  // namespace kvcast::stream
