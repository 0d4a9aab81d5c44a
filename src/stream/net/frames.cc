// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/frames.h"

namespace kvcast::stream {
namespace {

uint64_t BigEndian(Frame bytes) {
  uint64_t value = 0;
  for (uint8_t byte : bytes) {
    if (value >> 56 != 0) return UINT64_MAX;
    value = value << 8 | byte;
  }
  return value;
}

std::optional<uint64_t> ParseSeq(Frame frame) {
  if (frame.size() != sizeof(uint64_t)) return std::nullopt;
  return BigEndian(frame);
}

}  // namespace

SeqFrame EncodeSeq(uint64_t seq) {
  SeqFrame frame;
  for (int i = 0; i < 8; ++i) frame[i] = static_cast<uint8_t>(seq >> (56 - 8 * i));
  return frame;
}

std::optional<Batch> ParseLive(Frames frames) {
  if (frames.size() != 3) return std::nullopt;
  const std::optional<uint64_t> seq = ParseSeq(frames[1]);
  if (!seq || *seq >= kSeqLimit) return std::nullopt;
  return Batch{*seq, frames[2]};
}

Reply ParseReply(Frames frames) {
  const bool known_count = frames.size() == 3 || frames.size() == 4;
  if (!known_count || !frames[0].empty()) return {};
  const std::optional<uint64_t> seq = ParseSeq(frames[frames.size() - 2]);
  const Frame payload = frames.back();
  if (!seq) return {};
  if (*seq == kEndSeq || payload.empty()) return {ReplyKind::kEnd, {kEndSeq, payload}};
  if (*seq >= kSeqLimit) return {};
  return {ReplyKind::kBatch, {*seq, payload}};
}

std::optional<Frame> ParseReplayRequest(Frames frames) {
  if (frames.size() != 3 || !frames[1].empty()) return std::nullopt;
  return frames[2];
}

uint64_t ParseStart(Frame start) { return BigEndian(start); }

}  // namespace kvcast::stream
