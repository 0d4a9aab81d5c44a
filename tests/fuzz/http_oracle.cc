// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/http_oracle.h"

#include <cstdint>
#include <map>

namespace kvcast::oracle {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return lower;
}

std::string_view WithoutBlanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Takes a line and its end from the front.
std::optional<std::string_view> TakeLine(std::string_view& text) {
  const size_t end = text.find(kLineEnd);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + kLineEnd.size());
  return line;
}

std::optional<uint64_t> Number(std::string_view digits, uint64_t base) {
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  if (digits.empty() || digits.size() > 20) return std::nullopt;
  uint64_t number = 0;
  for (const char c : Lower(digits)) {
    const uint64_t digit = c >= '0' && c <= '9'   ? c - '0'
                           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                  : 99;
    if (digit >= base) return std::nullopt;
    number = number * base + digit;
  }
  return number;
}

// The lines up to an empty line. A line that begins with a blank continues the line before it.
std::optional<std::map<std::string, std::string>> TakeHeaders(std::string_view& text) {
  std::map<std::string, std::string> headers;
  std::string* last = nullptr;
  while (true) {
    const auto line = TakeLine(text);
    if (!line) return std::nullopt;
    if (line->empty()) return headers;
    if (line->front() == ' ' || line->front() == '\t') {
      if (last == nullptr) return std::nullopt;
      const std::string_view more = WithoutBlanks(*line);
      if (!last->empty() && !more.empty()) *last += ' ';
      *last += more;
      continue;
    }
    const size_t colon = line->find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    last = &headers[Lower(line->substr(0, colon))];
    *last = WithoutBlanks(line->substr(colon + 1));
  }
}

bool TakeChunks(std::string_view& text, std::string& body) {
  while (true) {
    const auto line = TakeLine(text);
    if (!line) return false;
    const auto size = Number(WithoutBlanks(line->substr(0, line->find(';'))), 16);
    if (!size || *size > text.size()) return false;
    body += text.substr(0, *size);
    text.remove_prefix(*size);
    if (*size == 0) return TakeHeaders(text).has_value();
    if (!text.starts_with(kLineEnd)) return false;
    text.remove_prefix(kLineEnd.size());
  }
}

}  // namespace

std::optional<HttpText> ReadHttp(std::string_view text) {
  const size_t total_bytes = text.size();
  while (text.starts_with(kLineEnd)) text.remove_prefix(kLineEnd.size());
  const auto first = TakeLine(text);
  if (!first) return std::nullopt;
  HttpText request;
  const size_t blank = first->find(' ');
  const size_t second = first->find(' ', blank + 1);
  if (blank == std::string_view::npos || second == std::string_view::npos) return std::nullopt;
  request.method = first->substr(0, blank);
  request.target = first->substr(blank + 1, second - blank - 1);
  auto headers = TakeHeaders(text);
  if (!headers) return std::nullopt;
  request.host = (*headers)["host"];
  if (headers->contains("transfer-encoding")) {
    if (!TakeChunks(text, request.body)) return std::nullopt;
  } else if (headers->contains("content-length")) {
    const auto length = Number((*headers)["content-length"], 10);
    if (!length || *length > text.size()) return std::nullopt;
    request.body = text.substr(0, *length);
    text.remove_prefix(*length);
  }
  request.bytes = total_bytes - text.size();
  return request;
}

}  // namespace kvcast::oracle
