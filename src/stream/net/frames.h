// The frames of the event stream: parsing and building, no sockets.
//
//   live     [topic][seq][payload]
//   request  [identity][empty][start]            start: big-endian integer of any length
//   reply    [empty][topic][seq][payload]        or, before 2026-07-07, [empty][seq][payload]
//   end      [empty][empty][ff * 8][empty]       or [empty][ff * 8][empty]
//
// A seq is 8 bytes, big-endian.
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
// Sequence numbers from here on are not accepted: as signed integers they would be negative.
inline constexpr uint64_t kSeqLimit = uint64_t{1} << 63;

SeqFrame EncodeSeq(uint64_t seq);

// A sequence number and its payload, borrowed from the frames.
struct Batch {
  uint64_t seq = 0;
  Frame payload;
};

// nullopt: wrong frame count, wrong length of the sequence frame, or a number past kSeqLimit.
std::optional<Batch> ParseLive(Frames frames);

enum class ReplyKind : uint8_t { kMalformed, kBatch, kEnd };
struct Reply {
  ReplyKind kind = ReplyKind::kMalformed;
  // kBatch: the batch. kEnd: kEndSeq and what the END carries, in KVX1 answers a status.
  Batch batch;
};
// A reply as a DEALER receives it, either layout by frame count. The end marker is known by its
// sequence number or by its empty payload.
Reply ParseReply(Frames frames);

// The last frame of a request, as a ROUTER receives it: mostly a start number. nullopt: not a
// request, it gets no answer.
std::optional<Frame> ParseReplayRequest(Frames frames);
// The start number. Values past 64 bits become UINT64_MAX, which no batch has.
uint64_t ParseStart(Frame start);

}  // namespace kvcast::stream
