// SPDX-License-Identifier: Apache-2.0
#include "src/http/request_target.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

namespace kvcast {
namespace {

// nullopt: an escape is invalid.
std::optional<std::string> PercentDecoded(std::string_view text, bool plus_is_blank) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const std::string_view digits = text.substr(i + 1, 2);
      const char* const end = digits.data() + digits.size();
      uint8_t byte = 0;
      const auto [stop, error] = std::from_chars(digits.data(), end, byte, 16);
      if (digits.size() != 2 || error != std::errc() || stop != end) return std::nullopt;
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += plus_is_blank && text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

constexpr char kBadEscape[] = "target: invalid percent escape";

const char* ReadQuery(std::string_view text, std::map<std::string, std::string>& query) {
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    auto name = PercentDecoded(pair.substr(0, equals), true);
    auto value = PercentDecoded(pair.substr(std::min(equals + 1, pair.size())), true);
    if (!name || !value) return kBadEscape;
    query[std::move(*name)] = std::move(*value);
    if (query.size() > kMaxQueryNames) return "target: more than 128 query parameters";
  }
  return nullptr;
}

}  // namespace

const char* ReadTarget(std::string_view target, HttpRequest& request) {
  const size_t mark = std::min(target.find('?'), target.size());
  auto path = PercentDecoded(target.substr(0, mark), false);
  if (!path) return kBadEscape;
  request.path = std::move(*path);
  return ReadQuery(target.substr(std::min(mark + 1, target.size())), request.query);
}

}  // namespace kvcast
