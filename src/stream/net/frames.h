// The frames of the event stream: parsing and building, no sockets.
//
//   live     [topic][seq][payload]
//   request  [identity][empty][start]            start: big-endian integer of any length
//   reply    [empty][topic][seq][payload]        or [empty][seq][payload]
//   end      [empty][empty][ff * 8][empty]       or [empty][ff * 8][empty]
//
// A seq is 8 bytes, big-endian. SGLang, and vLLM before 2026-07-07, send replies and ends without a
// topic frame (the second form).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace kvcast::stream {

using Frame = std::span<const uint8_t>;
using Frames = std::span<const Frame>;
using SeqFrame = std::array<uint8_t, 8>;

inline constexpr uint64_t kEndSeq = UINT64_MAX;
// Sequence numbers from kSeqLimit on are not accepted, because they are negative as signed
// integers.
inline constexpr uint64_t kSeqLimit = uint64_t{1} << 63;

SeqFrame EncodeSeq(uint64_t seq);

// A sequence number and its payload, borrowed from the frames.
struct Batch {
  uint64_t seq = 0;
  Frame payload;
};

// nullopt: wrong frame count, wrong length of the sequence frame, or a number from kSeqLimit on.
std::optional<Batch> ParseLive(Frames frames);

enum class ReplyKind : uint8_t { kMalformed, kBatch, kEnd };
struct Reply {
  ReplyKind kind = ReplyKind::kMalformed;
  // kBatch: the batch. kEnd: kEndSeq and the payload of END. In KVX1 answers the payload is a
  // status.
  Batch batch;
};
// Parses a reply as a DEALER socket receives it. The frame count determines the layout. An end
// marker has the sequence number kEndSeq or an empty payload.
Reply ParseReply(Frames frames);

// The last frame of a request, as a ROUTER socket receives it. It is usually a start number.
// nullopt: the message is not a request, and gets no answer.
std::optional<Frame> ParseReplayRequest(Frames frames);
// The start number. A value of more than 64 bits becomes UINT64_MAX. No batch has this number.
uint64_t ParseStart(Frame start);

}  // namespace kvcast::stream
