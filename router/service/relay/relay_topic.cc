// SPDX-License-Identifier: Apache-2.0
#include "router/service/relay/relay_topic.h"

#include <array>
#include <charconv>

namespace kvcast::router {
namespace {

constexpr std::string_view kHex = "0123456789ABCDEF";

std::optional<std::string> NameOf(std::string_view text) {
  if (text == "-") return std::string();
  std::string name;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      name += text[i];
      continue;
    }
    const size_t high = i + 1 < text.size() ? kHex.find(text[i + 1]) : std::string_view::npos;
    const size_t low = i + 2 < text.size() ? kHex.find(text[i + 2]) : std::string_view::npos;
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    name += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return name;
}

std::optional<int64_t> NumberOf(std::string_view text) {
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string TopicName(std::string_view name) {
  if (name.empty()) return "-";
  if (name == "-") return "%2D";
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c != '.' && c != '%' && byte > 0x20 && byte != 0x7f) {
      text += c;
    } else {
      text += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return text;
}

std::string FormatTopic(const RelayTopic& topic) {
  return "kv." + TopicName(topic.model) + "." + TopicName(topic.worker) + "." +
         std::to_string(topic.rank) + "." + topic.tier + "." +
         (topic.group ? std::to_string(*topic.group) : "-");
}

std::optional<RelayTopic> ParseTopic(std::string_view text) {
  std::array<std::string_view, 6> parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t dot = text.find('.');
    if ((dot == std::string_view::npos) != (i + 1 == parts.size())) return std::nullopt;
    parts[i] = text.substr(0, dot);
    text.remove_prefix(dot == std::string_view::npos ? text.size() : dot + 1);
  }
  const auto model = NameOf(parts[1]);
  const auto worker = NameOf(parts[2]);
  const auto rank = NumberOf(parts[3]);
  const auto group = NumberOf(parts[5]);
  if (parts[0] != "kv" || !model || !worker || !rank || (!group && parts[5] != "-")) {
    return std::nullopt;
  }
  return RelayTopic{*model, *worker, *rank, std::string(parts[4]), group};
}

}  // namespace kvcast::router
