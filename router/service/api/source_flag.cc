// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/source_flag.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "router/service/api/source_json.h"
#include "router/service/api/source_members.h"

namespace kvcast::router {
namespace {

using Shape = MemberShape;

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    c == separator ? (void)parts.emplace_back() : parts.back().push_back(c);
  }
  return parts;
}

// A text that is not a number stays a text. The member's reader then refuses this text.
Json NumberOf(const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && !text.empty() ? Json(number) : Json(text);
}

// KIND:BLOCK_SIZE[:WINDOW or CHUNK][:eagle]
Json GroupFromText(const std::string& text) {
  std::vector<std::string> parts = Split(text, ':');
  Json group = {{"kind", parts[0]}};
  if (parts.back() == "eagle") {
    group["eagle"] = true;
    parts.pop_back();
  }
  if (parts.size() > 1) group["block_size"] = NumberOf(parts[1]);
  // The reader refuses an unknown name.
  for (size_t i = 3; i < parts.size(); ++i) group[parts[i]] = true;
  if (parts.size() > 2) {
    const bool chunked = ParseSpecKind(parts[0]) == SpecKind::kChunkedLocalAttention;
    group[chunked ? "chunk_size" : "sliding_window"] = NumberOf(parts[2]);
  }
  return group;
}

Json ValueFromText(Shape shape, const std::string& text) {
  if (shape == Shape::kInteger) return NumberOf(text);
  if (shape == Shape::kBool)
    return text == "true" || text == "false" ? Json(text == "true") : Json(text);
  if (shape == Shape::kText) return text;
  if (shape == Shape::kPairs) {
    Json pairs = Json::object();
    for (const std::string& part : Split(text, '+')) {
      const size_t colon = std::min(part.find(':'), part.size());
      pairs[part.substr(0, colon)] = part.substr(std::min(colon + 1, part.size()));
    }
    return pairs;
  }
  Json list = Json::array();
  for (const std::string& part : Split(text, '+')) {
    list.push_back(shape == Shape::kGroups     ? GroupFromText(part)
                   : shape == Shape::kIntegers ? NumberOf(part)
                                               : Json(part));
  }
  return list;
}

}  // namespace

Result<WorkerRegistration> SourceFromFlag(const std::string& text) {
  constexpr char kForm[] = "expected NAME=ENDPOINT[,REPLAY_ENDPOINT][,MEMBER=VALUE...]";
  const std::vector<std::string> parts = Split(text, ',');
  Json object;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    if (i == 1 && equals == std::string::npos) {
      object["replay_endpoint"] = parts[i];
      continue;
    }
    if (equals == std::string::npos || equals == 0 || (i == 0 && equals + 1 == parts[i].size())) {
      return BadField(std::string(kForm) + ", got '" + text + "'");
    }
    const std::string name = parts[i].substr(0, equals);
    const std::string value = parts[i].substr(equals + 1);
    if (i == 0) {
      object = {{"name", name}, {"endpoint", value}};
      continue;
    }
    const SourceMember* const member = FindSourceMember(name);
    object[name] = member == nullptr ? Json(value) : ValueFromText(member->shape, value);
  }
  return SourceFromJson(object);
}

}  // namespace kvcast::router
