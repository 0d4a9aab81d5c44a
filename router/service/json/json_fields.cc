// SPDX-License-Identifier: Apache-2.0
#include "router/service/json/json_fields.h"

#include <cmath>
#include <sstream>
#include <utility>

#include "router/service/json/bounded_json.h"

namespace kvcast::router {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Status BadField(std::string text) { return Status(StatusCode::kInvalidArgument, std::move(text)); }

Status TooLong(std::string_view member, size_t most) {
  return BadField(std::string(member) + ": more than " + std::to_string(most) + " elements");
}

std::string ElementName(std::string_view member, size_t index) {
  return std::string(member) + "[" + std::to_string(index) + "]";
}

Result<Json> ParseObject(std::string_view body, int max_depth) {
  Result<Json> json = ReadJson(body, {.max_depth = static_cast<size_t>(max_depth)});
  if (!json.ok()) return BadField("body: not JSON");
  if (!json->is_object()) return BadField("body: must be an object");
  return json;
}

Result<Json> ParsePackedObject(std::string_view body) {
  Json json = Json::from_msgpack(body, /*strict=*/true, /*allow_exceptions=*/false);
  if (json.is_discarded()) return BadField("body: not MessagePack");
  if (!json.is_object()) return BadField("body: must be a map");
  return json;
}

std::optional<int64_t> Int64Of(const Json& json) {
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return std::nullopt;
  }
  if (!json.is_number_integer()) return std::nullopt;
  return json.get<int64_t>();
}

Status ReadText(const Json& json, const std::string& member, std::string& out) {
  if (!json.is_string()) return BadField(member + ": must be a string");
  const auto& text = json.get_ref<const std::string&>();
  if (text.size() > kMaxTextBytes) {
    return BadField(member + ": must have at most " + std::to_string(kMaxTextBytes) + " bytes");
  }
  out = text;
  return Status();
}

Status ReadTexts(const Json& json, const std::string& member, std::vector<std::string>& out) {
  if (!json.is_array() || json.empty()) return BadField(member + ": must be a non-empty array");
  std::vector<std::string> texts;
  for (const Json& item : json) {
    if (Status status = ReadText(item, member, texts.emplace_back()); !status.ok()) return status;
  }
  out = std::move(texts);
  return Status();
}

Status ReadBool(const Json& json, const std::string& member, bool& out) {
  if (!json.is_boolean()) return BadField(member + ": must be true or false");
  out = json.get<bool>();
  return Status();
}

Status ReadInteger(const Json& json, const std::string& member, int64_t min, int64_t& out) {
  const std::optional<int64_t> value = Int64Of(json);
  if (!value || *value < min) {
    return BadField(member + ": must be " +
                    (min > 0 ? "a positive integer" : "a non-negative integer"));
  }
  out = *value;
  return Status();
}

Status ReadUpTo(const Json& json, const std::string& member, int64_t max, int64_t& out) {
  int64_t value = 0;
  if (Status status = ReadInteger(json, member, 1, value); !status.ok()) return status;
  if (value > max) return BadField(member + ": must be at most " + std::to_string(max));
  out = value;
  return Status();
}

Status ReadNumber(const Json& json, const std::string& member, double min, double max,
                  double& out) {
  const double value = json.is_number() ? json.get<double>() : NAN;
  if (!(value >= min && value <= max)) {
    std::ostringstream text;
    text << member << ": must be a number from " << min << " to " << max;
    return BadField(text.str());
  }
  out = value;
  return Status();
}

std::optional<std::vector<uint8_t>> BytesFromHex(std::string_view hex) {
  if (hex.empty() || hex.size() % 2 != 0 || hex.size() > 2 * kMaxHexHashBytes) {
    return std::nullopt;
  }
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = HexDigit(hex[i]);
    const int low = HexDigit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<uint8_t>(high * 16 + low));
  }
  return bytes;
}

std::optional<BlockHash> HashOf(const Json& json) {
  if (json.is_number_unsigned()) return BlockHash::FromUnsigned(json.get<uint64_t>());
  if (json.is_number_integer()) return BlockHash::FromSigned(json.get<int64_t>());
  if (!json.is_string()) return std::nullopt;
  const auto bytes = BytesFromHex(json.get_ref<const std::string&>());
  if (!bytes) return std::nullopt;
  return BlockHash::FromBytes(*bytes);
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kvcast::router
