// One line of the log, as text or as JSON.
//
// A value can come from a peer. In both formats a line has only printable ASCII characters, and
// quotes in a value are escaped. A value therefore cannot begin a line, end a quoted value, or
// control a terminal.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "src/base/log_event.h"

namespace kvcast {

enum class LogFormat : uint8_t { kText, kJson };

// A named value. A text value is borrowed. A field with an empty text is not written.
class LogField {
 public:
  LogField(std::string_view key, std::string_view text) : key_(key), value_(text) {}
  LogField(std::string_view key, const std::string& text) : LogField(key, std::string_view(text)) {}
  LogField(std::string_view key, const char* text) : LogField(key, std::string_view(text)) {}
  LogField(std::string_view key, bool value) : key_(key), value_(value) {}
  LogField(std::string_view key, double value) : key_(key), value_(value) {}
  template <typename Integer>
  requires std::is_integral_v<Integer> LogField(std::string_view key, Integer value) : key_(key) {
    if constexpr (std::is_signed_v<Integer>) {
      value_ = static_cast<int64_t>(value);
    } else {
      value_ = static_cast<uint64_t>(value);
    }
  }

  using Value = std::variant<std::string_view, bool, double, int64_t, uint64_t>;
  std::string_view key() const { return key_; }
  const Value& value() const { return value_; }

 private:
  std::string_view key_;
  Value value_;
};
using LogFields = std::initializer_list<LogField>;

// A text of more bytes is cut to this number of bytes, and "..." is appended.
inline constexpr size_t kMaxLogTextBytes = 256;

// Returns the line with its newline. `unix_seconds`: the time of the line. `source`: empty if the
// event has no source.
// - Text: TIME LEVEL EVENT [source=NAME] KEY=VALUE ... A text is in double quotes if it has a
//   blank, a quote, a backslash, a '=', or a byte that is not printable ASCII. In the quotes, a
//   backslash precedes quotes and backslashes. \xNN replaces a byte that is not printable ASCII.
// - JSON: one object with the members time, level, event, source, and the fields. Bytes that are
//   not UTF-8 become U+FFFD.
std::string RenderLogLine(LogFormat format, double unix_seconds, const LogEvent& event,
                          std::string_view source, LogFields fields);

}  // namespace kvcast
