// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/frames/frames_record.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace kvcast::tools {
namespace {

using nlohmann::json;

// Thrown and caught only in this file, like the JSON library's errors.
struct BadRecord {
  std::string problem;
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  throw BadRecord{"a frame is not hex"};
}

std::string FromHex(const std::string& hex) {
  if (hex.size() % 2 != 0) throw BadRecord{"a frame has an odd number of hex digits"};
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(HexDigit(hex[i]) << 4 | HexDigit(hex[i + 1])));
  }
  return bytes;
}

FrameList ParseFrames(const json& list) {
  FrameList frames;
  for (const std::string& frame : list.get<std::vector<std::string>>()) {
    frames.push_back(FromHex(frame));
  }
  if (frames.empty()) throw BadRecord{"a message has no frames"};
  return frames;
}

std::vector<FrameList> ParseMessages(const json& list) {
  std::vector<FrameList> messages;
  for (const json& message : list) {
    messages.push_back(ParseFrames(message.is_object() ? message.at("frames") : message));
  }
  return messages;
}

ReplayExchange ParseExchange(const json& object) {
  ReplayExchange exchange;
  exchange.name = object.value("what", "replay");
  exchange.socket = object.at("socket").get<std::string>();
  exchange.request = ParseFrames(object.at("request_frames_sent_by_client"));
  exchange.replies = ParseMessages(object.at("replies"));
  return exchange;
}

FramesRecording ParseRecording(const json& object) {
  FramesRecording recording;
  recording.name = object.at("name").get<std::string>();
  recording.topic = object.at("topic").get<std::string>();
  recording.subscription = object.value("subscription", recording.topic);
  recording.rank = object.value("data_parallel_rank", int64_t{0});
  if (object.contains("buffer_steps")) recording.buffer_steps = object["buffer_steps"];
  recording.messages = ParseMessages(object.at("pub_messages"));
  recording.published_batches = object.value("published_batches", recording.messages.size());
  for (const std::string prefix : {"endpoint", "replay_endpoint"}) {
    if (!object.contains(prefix + "_configured") || !object.contains(prefix + "_bound")) continue;
    const json& configured = object[prefix + "_configured"];
    const json& bound = object[prefix + "_bound"];
    if (configured.is_null() || bound.is_null()) continue;
    recording.endpoints.emplace_back(configured.get<std::string>(), bound.get<std::string>());
  }
  for (const json& exchange : object.value("replays", json::array())) {
    recording.replays.push_back(ParseExchange(exchange));
  }
  return recording;
}

CapturedConnection ParseConnection(const std::string& name, const json& object) {
  CapturedConnection connection;
  connection.name = name;
  for (const json& chunk : object.at("bytes")) {
    const std::string from = chunk.at("from").get<std::string>();
    if (from != "server" && from != "client") throw BadRecord{"from: expected server or client"};
    connection.chunks.push_back({from == "server", FromHex(chunk.at("hex").get<std::string>())});
  }
  connection.messages = ParseMessages(object.at("messages"));
  return connection;
}

bool IsConnection(const json& value) {
  return value.is_object() && value.contains("bytes") && value.contains("messages");
}

FramesFile ParseDocument(const json& document) {
  FramesFile file;
  if (document.is_array()) {
    for (const json& recording : document) file.recordings.push_back(ParseRecording(recording));
  } else {
    for (const auto& [name, value] : document.items()) {
      if (IsConnection(value)) file.connections.push_back(ParseConnection(name, value));
    }
  }
  if (file.recordings.empty() && file.connections.empty()) {
    throw BadRecord{"the file has no recording of frames"};
  }
  return file;
}

}  // namespace

Result<FramesFile> ParseFramesFile(std::string_view text) {
  try {
    return ParseDocument(json::parse(text));
  } catch (const json::exception& error) {
    return Status(StatusCode::kMalformed, error.what());
  } catch (const BadRecord& error) {
    return Status(StatusCode::kMalformed, error.problem);
  }
}

bool LooksLikeFramesFile(std::string_view text) {
  return text.find("\"pub_messages\"") != text.npos ||
         (text.find("\"bytes\"") != text.npos && text.find("\"from\"") != text.npos &&
          text.find("\"messages\"") != text.npos);
}

std::optional<uint64_t> SeqOf(const FrameList& frames) {
  if (frames.size() < 2) return std::nullopt;
  const std::string& frame = frames[frames.size() - 2];
  if (frame.size() != 8) return std::nullopt;
  uint64_t seq = 0;
  for (const char c : frame) seq = seq << 8 | static_cast<uint8_t>(c);
  return seq;
}

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

std::string Hex(const FrameList& frames) {
  std::string text = "[";
  for (const std::string& frame : frames) text += (text.size() > 1 ? " " : "") + Hex(frame);
  return text + "]";
}

}  // namespace kvcast::tools
