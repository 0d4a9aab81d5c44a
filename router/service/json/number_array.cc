// SPDX-License-Identifier: Apache-2.0
#include "router/service/json/number_array.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

// Reads the text from the left. Scanner does not validate the text that it skips. CutArray keeps
// the skipped text unchanged, and the JSON parser finds the errors in it later.
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
  // Reads a name without escapes, and the colon after it.
  std::optional<std::string_view> Name() {
    if (!Take('"')) return std::nullopt;
    const char* const begin = at_;
    while (at_ != end_ && *at_ != '"' && *at_ != '\\') ++at_;
    if (at_ == end_ || *at_ == '\\') return std::nullopt;
    const std::string_view name(begin, static_cast<size_t>(at_ - begin));
    ++at_;
    return Take(':') ? std::optional(name) : std::nullopt;
  }

  bool Number(uint64_t& number) {
    SkipBlanks();
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

  bool Hash(BlockHash& hash) {
    uint64_t number = 0;
    if (Take('-')) {
      const bool digits = at_ != end_ && *at_ >= '0' && *at_ <= '9' && Number(number);
      if (!digits || number == 0 || number > uint64_t{1} << 63) return false;
      hash = BlockHash::FromSigned(static_cast<int64_t>(0 - number));
      return true;
    }
    if (!Take('"')) {
      if (!Number(number)) return false;
      hash = BlockHash::FromUnsigned(number);
      return true;
    }
    const char* const begin = at_;
    while (at_ != end_ && *at_ != '"') ++at_;
    const auto bytes = BytesFromHex({begin, static_cast<size_t>(at_ - begin)});
    if (!bytes || !Take('"')) return false;
    hash = BlockHash::FromBytes(*bytes);
    return true;
  }

  // Skips any value. It looks only at brackets and strings.
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

  const char* at_;
  const char* end_;
};

struct Cut {
  std::string_view member;
  bool too_long = false;
  std::string rest;
};

// `read(scanner)` reads one element. False: the element has another form.
template <typename Read>
std::optional<Cut> CutArray(std::string_view body, std::span<const std::string_view> members,
                            size_t most, Read read) {
  Scanner scanner(body);
  std::optional<Cut> cut;
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
    if (cut || !scanner.Take('[')) return std::nullopt;
    cut.emplace().member = *member;
    cut->rest.assign(body.data(), scanner.at());
    size_t count = 0;
    do {
      cut->too_long = ++count > most;
      if (cut->too_long) return cut;
      if (!read(scanner)) return std::nullopt;
    } while (scanner.Take(','));
    if (!scanner.Take(']')) return std::nullopt;
    cut_end = scanner.at() - 1;
  } while (scanner.Take(','));
  if (!cut || !scanner.Take('}') || !scanner.Done()) return std::nullopt;
  cut->rest.append(cut_end, body.data() + body.size());
  return cut;
}

}  // namespace

std::optional<NumberArray> TakeNumberArray(std::string_view body,
                                           std::span<const std::string_view> members, size_t most) {
  std::vector<uint64_t> numbers;
  numbers.reserve(std::min(most, body.size() / 8));
  auto cut = CutArray(body, members, most,
                      [&](Scanner& scanner) { return scanner.Number(numbers.emplace_back()); });
  if (!cut) return std::nullopt;
  return NumberArray{cut->member, std::move(numbers), cut->too_long, std::move(cut->rest)};
}

std::optional<HashArray> TakeHashArray(std::string_view body, std::string_view member,
                                       size_t most) {
  std::vector<BlockHash> hashes;
  auto cut = CutArray(body, {&member, 1}, most,
                      [&](Scanner& scanner) { return scanner.Hash(hashes.emplace_back()); });
  if (!cut) return std::nullopt;
  return HashArray{std::move(hashes), cut->too_long, std::move(cut->rest)};
}

}  // namespace kvcast::router
