// SPDX-License-Identifier: Apache-2.0
#include "router/service/json/number_array.h"

#include <algorithm>
#include <limits>

namespace kvcast::router {
namespace {

// Reads from left to right. The scanner does not validate the text that it skips. That text stays
// unchanged in `rest`, so that the JSON parser still finds an error before the array.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

  const char* at() const { return at_; }
  bool Done() {
    SkipBlanks();
    return at_ == end_;
  }
  bool Take(char wanted) {
    SkipBlanks();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  // Reads a name without escapes and the colon after the name.
  std::optional<std::string_view> Name() {
    if (!Take('"')) return std::nullopt;
    const char* const begin = at_;
    while (at_ != end_ && *at_ != '"' && *at_ != '\\') ++at_;
    if (at_ == end_ || *at_ == '\\') return std::nullopt;
    const std::string_view name(begin, static_cast<size_t>(at_ - begin));
    ++at_;
    return Take(':') ? std::optional(name) : std::nullopt;
  }

  // Starts after the opening bracket and ends after the closing one.
  bool Numbers(std::vector<uint64_t>& numbers) {
    do {
      SkipBlanks();
      if (!Number(numbers.emplace_back())) return false;
    } while (Take(','));
    return Take(']');
  }

  // Skips any value. The scanner looks only at brackets and strings.
  bool SkipValue() {
    int depth = 0;
    do {
      SkipBlanks();
      if (at_ == end_) return false;
      const char c = *at_++;
      if (c == '"') {
        if (!SkipString()) return false;
      } else if (c == '[' || c == '{') {
        ++depth;
      } else if (c == ']' || c == '}') {
        if (--depth < 0) return false;
      } else if (depth == 0) {
        while (at_ != end_ && *at_ != ',' && *at_ != '}') ++at_;
      }
    } while (depth > 0);
    return true;
  }

 private:
  void SkipBlanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }

  bool SkipString() {
    while (at_ != end_ && *at_ != '"') at_ += *at_ == '\\' && at_ + 1 != end_ ? 2 : 1;
    if (at_ == end_) return false;
    ++at_;
    return true;
  }

  bool Number(uint64_t& number) {
    const char* const begin = at_;
    uint64_t value = 0;
    for (; at_ != end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
      const auto digit = static_cast<uint64_t>(*at_ - '0');
      constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
      if (value > kMost / 10 || (value == kMost / 10 && digit > kMost % 10)) return false;
      value = value * 10 + digit;
    }
    number = value;
    const auto digits = at_ - begin;
    return digits == 1 || (digits > 1 && *begin != '0');
  }

  const char* at_;
  const char* end_;
};

}  // namespace

std::optional<NumberArray> TakeNumberArray(std::string_view body,
                                           std::span<const std::string_view> members) {
  Scanner scanner(body);
  std::optional<NumberArray> taken;
  if (!scanner.Take('{')) return std::nullopt;
  const char* cut_end = nullptr;
  do {
    const std::optional<std::string_view> name = scanner.Name();
    if (!name) return std::nullopt;
    const auto member = std::find(members.begin(), members.end(), *name);
    if (member == members.end()) {
      if (!scanner.SkipValue()) return std::nullopt;
      continue;
    }
    if (taken || !scanner.Take('[')) return std::nullopt;
    taken.emplace().member = *member;
    taken->numbers.reserve(body.size() / 8);
    taken->rest.assign(body.data(), scanner.at());
    if (!scanner.Numbers(taken->numbers)) return std::nullopt;
    cut_end = scanner.at() - 1;
  } while (scanner.Take(','));
  if (!taken || !scanner.Take('}') || !scanner.Done()) return std::nullopt;
  taken->rest.append(cut_end, body.data() + body.size());
  return taken;
}

}  // namespace kvcast::router
