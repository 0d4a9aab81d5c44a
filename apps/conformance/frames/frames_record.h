// Recordings of complete ZeroMQ messages, as read from the files in the folders `frames` of
// tests/data/recordings.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

// Frames of one message, raw bytes.
using FrameList = std::vector<std::string>;

// One replay request and all its replies, as the client received them.
struct ReplayExchange {
  std::string name;
  std::string socket;  // "DEALER", "REQ"
  FrameList request;
  std::vector<FrameList> replies;
};

// The messages and replies of one publisher.
struct FramesRecording {
  std::string name;
  std::string topic;
  std::string subscription;
  int64_t rank = 0;
  std::optional<uint64_t> buffer_steps;  // batches kept for replays; nullopt: not recorded
  uint64_t published_batches = 0;
  // Pairs (configured, bound). <P> stands for the base port and <P+2> for that port plus 2.
  std::vector<std::pair<std::string, std::string>> endpoints;
  std::vector<FrameList> messages;
  std::vector<ReplayExchange> replays;
};

// One TCP connection, byte for byte.
struct CapturedConnection {
  struct Chunk {
    bool from_server = false;
    std::string bytes;
  };
  std::string name;  // "sub", "replay"
  std::vector<Chunk> chunks;
  std::vector<FrameList> messages;  // the messages that the client's socket returned
};

// The content of one file: one of the two lists is empty.
struct FramesFile {
  std::vector<FramesRecording> recordings;
  std::vector<CapturedConnection> connections;
};

// kMalformed: the text is not JSON or is another kind of recording, or a field is missing or of the
// wrong type.
Result<FramesFile> ParseFramesFile(std::string_view text);

// True: the text may be a file of class `frames`. Used to select files.
bool LooksLikeFramesFile(std::string_view text);

// Returns the sequence number in the second-last frame. nullopt: there is no such frame, or it is
// not a number.
std::optional<uint64_t> SeqOf(const FrameList& frames);
std::string Hex(std::string_view bytes);
std::string Hex(const FrameList& frames);

}  // namespace kvcast::tools
