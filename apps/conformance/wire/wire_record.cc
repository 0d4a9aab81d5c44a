// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/wire/wire_record.h"

#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

namespace kvcast::tools {
namespace {

using json = nlohmann::ordered_json;  // metadata keeps the order of the wire

// Thrown if a record does not have the expected form. ParseWireRecord catches the exception.
struct BadRecord {
  std::string problem;
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  if (hex.size() % 2 != 0) throw BadRecord{"hex string of odd length"};
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = HexDigit(hex[i]);
    const int low = HexDigit(hex[i + 1]);
    if (high < 0 || low < 0) throw BadRecord{"not a hex string"};
    bytes.push_back(static_cast<char>(high << 4 | low));
  }
  return bytes;
}

std::vector<uint8_t> AsVector(const std::string& bytes) { return {bytes.begin(), bytes.end()}; }

// {"bytes": "<hex>"}
std::string BytesOf(const json& value) { return FromHex(value.at("bytes").get<std::string>()); }

int64_t IntegerOf(const json& value) {
  if (!value.is_number_integer()) throw BadRecord{"an integer was expected"};
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
    throw BadRecord{"an integer is out of range"};
  }
  return value.get<int64_t>();
}

BlockHash HashOf(const json& value) {
  if (value.is_object()) return BlockHash::FromBytes(AsVector(BytesOf(value)));
  if (value.is_number_unsigned()) return BlockHash::FromUnsigned(value.get<uint64_t>());
  return BlockHash::FromSigned(IntegerOf(value));
}

ExtraKey ExtraKeyOf(const json& value, int depth = 0) {
  constexpr int kDepthMax = 60;
  if (depth > kDepthMax) throw BadRecord{"extra keys are nested too deep"};
  if (value.is_null()) return {};
  if (value.is_boolean()) return {value.get<bool>()};
  if (value.is_string()) return ExtraKey::Text(value.get<std::string>());
  if (value.is_number_float()) return {value.get<double>()};
  if (value.is_object()) return ExtraKey::Binary(BytesOf(value));
  if (value.is_array()) {
    ExtraKeyList list;
    for (const json& item : value) list.items.push_back(ExtraKeyOf(item, depth + 1));
    return {std::move(list)};
  }
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
    return {value.get<uint64_t>()};
  }
  return ExtraKey::Int(IntegerOf(value));
}

void Read(const json& value, int64_t& out) { out = IntegerOf(value); }
void Read(const json& value, std::string& out) { out = value.get<std::string>(); }
void Read(const json& value, BlockHash& out) { out = HashOf(value); }

void Read(const json& value, std::vector<BlockHash>& out) {
  for (const json& hash : value) out.push_back(HashOf(hash));
}

void Read(const json& value, std::vector<std::optional<ExtraKeys>>& out) {
  for (const json& entry : value) {
    std::optional<ExtraKeys>& keys = out.emplace_back();
    if (entry.is_null()) continue;
    keys.emplace();
    for (const json& key : entry) keys->push_back(ExtraKeyOf(key));
  }
}

void Read(const json& value, std::vector<std::pair<std::string, ExtraKey>>& out) {
  for (const auto& [key, item] : value.items()) out.emplace_back(key, ExtraKeyOf(item));
}

void Read(const json& value, LookaheadTokens& out) {
  for (const json& list : value) {
    if (&list == &value.front()) out.width = static_cast<int64_t>(list.size());
    if (static_cast<int64_t>(list.size()) != out.width) {
      throw BadRecord{"lookahead_token_ids: lists of different lengths"};
    }
    for (const json& token : list) out.token_ids.push_back(IntegerOf(token));
  }
}

template <typename T>
void Read(const json& value, std::optional<T>& out) {
  if (!value.is_null()) Read(value, out.emplace());
}

void ReadTokens(const json& value, BlockStored& event) {
  if (value.is_null()) return;
  std::vector<TokenId>& tokens = event.token_ids.emplace();
  for (const json& token : value) {
    if (!token.is_array()) {
      tokens.push_back(IntegerOf(token));
      continue;
    }
    event.tokens_per_position = static_cast<uint8_t>(token.size());
    for (const json& part : token) tokens.push_back(IntegerOf(part));
  }
}

// False: the event has no such field.
bool ReadField(const std::string& key, const json& value, BlockRemoved& event) {
  if (key == "block_hashes") return Read(value, event.block_hashes), true;
  if (key == "medium") return Read(value, event.medium), true;
  if (key == "group_idx") return Read(value, event.group_idx), true;
  if (key == "locality") return Read(value, event.locality), true;
  if (key == "ownership") return Read(value, event.ownership), true;
  return false;
}

bool ReadField(const std::string& key, const json& value, BlockStored& event) {
  if (key == "block_hashes") return Read(value, event.block_hashes), true;
  if (key == "parent_block_hash") return Read(value, event.parent_block_hash), true;
  if (key == "token_ids") return ReadTokens(value, event), true;
  if (key == "block_size") return Read(value, event.block_size), true;
  if (key == "lora_id") return Read(value, event.lora_id), true;
  if (key == "medium") return Read(value, event.medium), true;
  if (key == "lora_name") return Read(value, event.lora_name), true;
  if (key == "extra_keys") return Read(value, event.extra_keys), true;
  if (key == "group_idx") return Read(value, event.group_idx), true;
  if (key == "kv_cache_spec_kind") return Read(value, event.kv_cache_spec_kind), true;
  if (key == "kv_cache_spec_sliding_window") {
    return Read(value, event.kv_cache_spec_sliding_window), true;
  }
  if (key == "locality") return Read(value, event.locality), true;
  if (key == "ownership") return Read(value, event.ownership), true;
  if (key == "session_id") return Read(value, event.session_id), true;
  if (key == "lookahead_token_ids") return Read(value, event.lookahead), true;
  if (key == "cache_salt") return Read(value, event.cache_salt), true;
  if (key == "metadata") return Read(value, event.metadata), true;
  if (key == "token_offset") return Read(value, event.token_offset), true;
  return false;
}

bool ReadField(const std::string& key, const json& value, AllBlocksCleared& event) {
  if (key == "medium") return Read(value, event.medium), true;
  return false;
}

template <typename EventType>
Event EventOf(const json& object, bool& unknown_fields) {
  EventType event;
  for (const auto& [key, value] : object.items()) {
    if (key != "type" && !ReadField(key, value, event)) unknown_fields = true;
  }
  return event;
}

Event EventOf(const json& object, bool& unknown_fields) {
  const std::string type = object.at("type").get<std::string>();
  if (type == "BlockStored") return EventOf<BlockStored>(object, unknown_fields);
  if (type == "BlockRemoved") return EventOf<BlockRemoved>(object, unknown_fields);
  if (type != "AllBlocksCleared") unknown_fields = true;
  return EventOf<AllBlocksCleared>(object, unknown_fields);
}

uint64_t TimestampBits(const json& decoded) {
  const std::string bytes = FromHex(decoded.at("ts_float64_hex").get<std::string>());
  if (bytes.size() != 8) throw BadRecord{"ts_float64_hex is not 8 bytes"};
  uint64_t bits = 0;
  for (const char byte : bytes) bits = bits << 8 | static_cast<uint8_t>(byte);
  return bits;
}

// Example: "vllm_l07/stored-basic" has the dialect vllm-7.
std::optional<Dialect> DialectOf(const std::string& name) {
  const std::string layout = name.substr(0, name.find('/'));
  const size_t split = layout.find("_l");
  if (split == std::string::npos) return std::nullopt;
  std::string number = layout.substr(split + 2);
  number.erase(0, number.find_first_not_of('0'));
  return ParseDialect(layout.substr(0, split) + "-" + number);
}

WireRecord RecordOf(const json& object) {
  WireRecord record;
  record.name = object.at("name").get<std::string>();
  record.dialect = DialectOf(record.name);
  record.payload = AsVector(FromHex(object.at("hex").get<std::string>()));
  record.file = object.value("file", "");
  const json& decoded = object.at("decoded");
  record.ts_bits = TimestampBits(decoded);
  record.decoded.ts = std::bit_cast<double>(record.ts_bits);
  for (const json& event : decoded.at("events")) {
    record.decoded.events.push_back(EventOf(event, record.unknown_fields));
  }
  Read(decoded.at("data_parallel_rank"), record.decoded.data_parallel_rank);
  return record;
}

}  // namespace

Result<WireRecord> ParseWireRecord(std::string_view line) {
  const json object = json::parse(line, nullptr, false);
  if (object.is_discarded()) return Status(StatusCode::kMalformed, "not JSON");
  try {
    return RecordOf(object);
  } catch (const json::exception& error) {
    return Status(StatusCode::kMalformed, error.what());
  } catch (const BadRecord& bad) {
    return Status(StatusCode::kMalformed, bad.problem);
  }
}

bool LooksLikeWireRecord(std::string_view line) {
  const json object = json::parse(line, nullptr, false);
  return object.is_object() && object.contains("hex") && object.contains("decoded");
}

}  // namespace kvcast::tools
