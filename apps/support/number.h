// Parses numbers in flags.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvcast::tools {

// Accepts an integer of at least 0 that fills the whole `text`.
inline std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < 0) return std::nullopt;
  return value;
}

}  // namespace kvcast::tools
