// SPDX-License-Identifier: Apache-2.0
#include "router/service/json/number_array.h"

#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

namespace ondemand = simdjson::ondemand;

// Maximum size in bytes of a body that uses the thread's own buffer. A larger body gets a buffer of
// its own.
constexpr size_t kKeptBytes = 256 << 10;

// A JSON body that simdjson reads: the bytes, with the padding that simdjson needs, and the parser.
class Body {
 public:
  // nullopt: simdjson has found an error in the body.
  std::optional<ondemand::object> Open(std::string_view text) {
    bytes_.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    bytes_.assign(text);
    ondemand::object object;
    if (parser_.iterate(bytes_.data(), bytes_.size(), bytes_.capacity()).get(document_) !=
            simdjson::SUCCESS ||
        document_.get_object().get(object) != simdjson::SUCCESS) {
      return std::nullopt;
    }
    return object;
  }
  // Position of the next JSON token in the body. nullopt: the body has no further token.
  std::optional<size_t> position() {
    const char* at = nullptr;
    if (document_.current_location().get(at) != simdjson::SUCCESS) return std::nullopt;
    return static_cast<size_t>(at - bytes_.data());
  }

 private:
  std::string bytes_;
  ondemand::parser parser_;
  ondemand::document document_;
};

struct Cut {
  std::string_view member;
  bool too_long = false;
  std::string rest;
};

// Reads the elements with `read(element)`. False: the array is empty, or an element has another
// form.
template <typename Read>
bool ReadElements(ondemand::array array, size_t most, Read& read, bool& too_long) {
  size_t count = 0;
  for (auto element : array) {
    too_long = ++count > most;
    if (too_long) return true;
    ondemand::value value;
    if (std::move(element).get(value) != simdjson::SUCCESS || !read(value)) return false;
  }
  return count > 0;
}

template <typename Read>
std::optional<Cut> CutArray(Body& body, std::string_view text,
                            std::span<const std::string_view> members, size_t most, Read& read) {
  std::optional<ondemand::object> object = body.Open(text);
  if (!object) return std::nullopt;
  std::optional<Cut> cut;
  size_t begin = 0;  // positions of the array's brackets
  size_t end = 0;
  for (auto each : *object) {
    ondemand::field field;
    std::string_view name;
    if (std::move(each).get(field) != simdjson::SUCCESS ||
        field.unescaped_key().get(name) != simdjson::SUCCESS) {
      return std::nullopt;
    }
    const auto member = std::find(members.begin(), members.end(), name);
    if (member == members.end()) continue;
    const auto opens = body.position();
    ondemand::array array;
    if (cut || !opens || field.value().get_array().get(array) != simdjson::SUCCESS) {
      return std::nullopt;
    }
    cut.emplace().member = *member;
    if (!ReadElements(array, most, read, cut->too_long)) return std::nullopt;
    if (cut->too_long) return cut;
    const auto next = body.position();
    if (!next) return std::nullopt;
    begin = *opens;
    end = text.rfind(']', *next);
  }
  if (!cut || body.position()) return std::nullopt;
  cut->rest.assign(text.substr(0, begin + 1)).append(text.substr(end));
  return cut;
}

template <typename Read>
std::optional<Cut> CutArray(std::string_view text, std::span<const std::string_view> members,
                            size_t most, Read read) {
  if (text.size() > kKeptBytes) {
    Body large;
    return CutArray(large, text, members, most, read);
  }
  thread_local Body kept;
  return CutArray(kept, text, members, most, read);
}

bool ReadHash(ondemand::value& value, BlockHash& hash) {
  ondemand::json_type type;
  if (value.type().get(type) != simdjson::SUCCESS) return false;
  if (type == ondemand::json_type::string) {
    std::string_view hex;
    if (value.get_string().get(hex) != simdjson::SUCCESS) return false;
    const auto bytes = BytesFromHex(hex);
    if (bytes) hash = BlockHash::FromBytes(*bytes);
    return bytes.has_value();
  }
  uint64_t number = 0;
  if (value.get_uint64().get(number) == simdjson::SUCCESS) {
    hash = BlockHash::FromUnsigned(number);
    return true;
  }
  int64_t negative = 0;
  if (value.get_int64().get(negative) != simdjson::SUCCESS || negative >= 0) return false;
  hash = BlockHash::FromSigned(negative);
  return true;
}

}  // namespace

std::optional<NumberArray> TakeNumberArray(std::string_view body,
                                           std::span<const std::string_view> members, size_t most) {
  std::vector<uint64_t> numbers;
  numbers.reserve(std::min(most, body.size() / 8));
  auto cut = CutArray(body, members, most, [&](ondemand::value& value) {
    return value.get_uint64().get(numbers.emplace_back()) == simdjson::SUCCESS;
  });
  if (!cut) return std::nullopt;
  return NumberArray{cut->member, std::move(numbers), cut->too_long, std::move(cut->rest)};
}

std::optional<HashArray> TakeHashArray(std::string_view body, std::string_view member,
                                       size_t most) {
  std::vector<BlockHash> hashes;
  auto cut = CutArray(body, {&member, 1}, most, [&](ondemand::value& value) {
    return ReadHash(value, hashes.emplace_back());
  });
  if (!cut) return std::nullopt;
  return HashArray{std::move(hashes), cut->too_long, std::move(cut->rest)};
}

}  // namespace kvcast::router
