// Reads JSON objects from clients and files, member by member. Each error is one line that names
// the wrong member, or the body.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/status.h"

namespace kvcast::router {

using Json = nlohmann::json;

inline constexpr size_t kMaxTextBytes = 1024;    // of names, salts and endpoints
inline constexpr size_t kMaxHexHashBytes = 256;  // bytes of a hash; 2 hex digits per byte

// Not ok: the body is not JSON, or is not an object. Values nested deeper than `max_depth` are left
// out of the result.
Result<Json> ParseObject(std::string_view body, int max_depth);
// Like ParseObject, for a map in MessagePack. REQUIRES: the body's depth is bounded, because
// nlohmann-json reads nested values recursively.
Result<Json> ParsePackedObject(std::string_view body);

Status BadField(std::string text);  // kInvalidArgument
// kInvalidArgument: the array has more than `most` elements.
Status TooLong(std::string_view member, size_t most);
// "member[index]", for error texts.
std::string ElementName(std::string_view member, size_t index);

// Accepts signed and unsigned JSON integers that fit into 64 signed bits.
std::optional<int64_t> Int64Of(const Json& json);
// Each Read function returns not ok if the type or the range of the value is wrong. `out` then
// keeps its old value.
Status ReadText(const Json& json, const std::string& member, std::string& out);
Status ReadTexts(const Json& json, const std::string& member, std::vector<std::string>& out);
Status ReadBool(const Json& json, const std::string& member, bool& out);
Status ReadInteger(const Json& json, const std::string& member, int64_t min, int64_t& out);
// Reads an integer from 1 to `max`.
Status ReadUpTo(const Json& json, const std::string& member, int64_t max, int64_t& out);
Status ReadNumber(const Json& json, const std::string& member, double min, double max, double& out);

std::optional<std::vector<uint8_t>> BytesFromHex(std::string_view hex);
// Accepts an integer, or a string of hex digits.
std::optional<BlockHash> HashOf(const Json& json);

// One line of JSON. Bytes that are not UTF-8 are replaced.
std::string Dump(const Json& json);

}  // namespace kvcast::router
