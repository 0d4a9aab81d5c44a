// SPDX-License-Identifier: Apache-2.0
#include "src/base/log_line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <iterator>

namespace kvcast {
namespace {

constexpr std::string_view kCut = "...";
constexpr char kDigits[] = "0123456789abcdef";
constexpr uint32_t kReplacement = 0xfffd;

void AppendHex(uint32_t value, int digits, std::string& line) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    line += kDigits[(value >> shift) & 15];
  }
}

bool IsPlain(char c) { return c > ' ' && c <= '~' && c != '"' && c != '\\' && c != '='; }

void AppendQuoted(std::string_view text, std::string& line) {
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      line += {'\\', c};
    } else if (c >= ' ' && c <= '~') {
      line += c;
    } else {
      line += "\\x";
      AppendHex(static_cast<unsigned char>(c), 2, line);
    }
  }
}

// Takes the first character from `text`. Bytes that are not UTF-8 count as one character each.
uint32_t TakeCharacter(std::string_view& text) {
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t first = byte(0);
  const size_t bytes = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  uint32_t character = bytes == 1 ? first : first & (0xffu >> (bytes + 1));
  bool valid = bytes == 1 || (first >= 0xc0 && first < 0xf8 && bytes <= text.size());
  for (size_t i = 1; valid && i < bytes; ++i) {
    valid = (byte(i) & 0xc0) == 0x80;
    character = (character << 6) | (byte(i) & 0x3f);
  }
  const bool surrogate = character >= 0xd800 && character < 0xe000;
  valid = valid && character >= kLeast[bytes] && character < 0x110000 && !surrogate;
  text.remove_prefix(valid ? bytes : 1);
  return valid ? character : kReplacement;
}

void AppendJsonText(std::string_view text, std::string& line) {
  while (!text.empty()) {
    const uint32_t character = TakeCharacter(text);
    if (character == '"' || character == '\\') {
      line += {'\\', static_cast<char>(character)};
    } else if (character >= ' ' && character <= '~') {
      line += static_cast<char>(character);
    } else if (character < 0x10000) {
      line += "\\u";
      AppendHex(character, 4, line);
    } else {
      line += "\\u";
      AppendHex(0xd800 + ((character - 0x10000) >> 10), 4, line);
      line += "\\u";
      AppendHex(0xdc00 + ((character - 0x10000) & 0x3ff), 4, line);
    }
  }
}

void AppendText(LogFormat format, std::string_view text, std::string& line) {
  const bool cut = text.size() > kMaxLogTextBytes;
  if (cut) text = text.substr(0, kMaxLogTextBytes);
  const bool quoted = format == LogFormat::kJson || !std::ranges::all_of(text, IsPlain);
  if (quoted) line += '"';
  if (format == LogFormat::kJson) {
    AppendJsonText(text, line);
  } else {
    AppendQuoted(text, line);
  }
  if (cut) line += kCut;
  if (quoted) line += '"';
}

struct Appender {
  LogFormat format;
  std::string& line;

  void operator()(std::string_view text) const { AppendText(format, text, line); }
  void operator()(bool value) const { line += value ? "true" : "false"; }
  void operator()(double value) const {
    if (!std::isfinite(value)) {
      line += format == LogFormat::kJson ? "null" : "none";
    } else {
      AppendNumber(value);
    }
  }
  void operator()(int64_t value) const { AppendNumber(value); }
  void operator()(uint64_t value) const { AppendNumber(value); }

 private:
  template <typename Value>
  void AppendNumber(Value value) const {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    line.append(digits.data(), end);
  }
};

void AppendField(LogFormat format, std::string_view key, const LogField::Value& value,
                 std::string& line) {
  if (const auto* text = std::get_if<std::string_view>(&value); text && text->empty()) return;
  if (format == LogFormat::kJson) {
    line += line.empty() ? "{" : ",";
    AppendText(format, key, line);
    line += ':';
  } else {
    line += ' ';
    line += key;
    line += '=';
  }
  std::visit(Appender{format, line}, value);
}

// RFC 3339 in UTC, with milliseconds.
std::string TimeText(double unix_seconds) {
  const auto ms = static_cast<int64_t>(std::floor(unix_seconds * 1000));
  const auto seconds = static_cast<time_t>(ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 32> text;
  std::string time(text.data(), strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc));
  const std::string fraction = std::to_string(1000 + ms % 1000);
  return time + "." + fraction.substr(1) + "Z";
}

}  // namespace

std::string RenderLogLine(LogFormat format, double unix_seconds, const LogEvent& event,
                          std::string_view source, LogFields fields) {
  const std::string time = TimeText(unix_seconds);
  const std::string_view level = kLogLevelNames[static_cast<size_t>(event.level)];
  std::string line;
  if (format == LogFormat::kText) {
    line.append(time).append(" ").append(level).append(" ").append(event.name);
  } else {
    AppendField(format, "time", std::string_view(time), line);
    AppendField(format, "level", level, line);
    AppendField(format, "event", event.name, line);
  }
  AppendField(format, "source", source, line);
  for (const LogField& field : fields) AppendField(format, field.key(), field.value(), line);
  line += format == LogFormat::kJson ? "}\n" : "\n";
  return line;
}

}  // namespace kvcast
