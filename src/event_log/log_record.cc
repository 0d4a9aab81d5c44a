// SPDX-License-Identifier: Apache-2.0
#include "src/event_log/log_record.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <vector>

namespace kvcast::event_log {
namespace {

constexpr std::array<std::string_view, 6> kKindNames = {"begin", "part",    "end",
                                                        "batch", "refused", "status"};
constexpr size_t kFields = 9;

std::string Hex(uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

bool ReadNumber(std::string_view text, int base, uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

bool ReadPair(std::string_view text, uint64_t& high, uint64_t& low) {
  return text.size() == 32 && ReadNumber(text.substr(0, 16), 16, high) &&
         ReadNumber(text.substr(16), 16, low);
}

bool ReadBit(std::string_view text, bool& bit) {
  bit = text == "1";
  return bit || text == "0";
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t space = text.find(' ');
    fields.push_back(text.substr(0, space));
    if (space == std::string_view::npos) return fields;
    text.remove_prefix(space + 1);
  }
}

bool ReadKind(std::string_view text, RecordKind& kind) {
  for (size_t i = 0; i < kKindNames.size(); ++i) {
    if (text != kKindNames[i]) continue;
    kind = static_cast<RecordKind>(i);
    return true;
  }
  return false;
}

// "-", or the next number, a colon and the hash.
bool ReadMark(std::string_view text, std::optional<EngineMark>& mark) {
  if (text == "-") return true;
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  mark.emplace();
  return ReadNumber(text.substr(0, colon), 10, mark->next_seq) &&
         ReadPair(text.substr(colon + 1), mark->hash[0], mark->hash[1]);
}

}  // namespace

std::string EncodeRecord(const LogRecord& record) {
  std::string text(kKindNames[static_cast<size_t>(record.kind)]);
  text += ' ' + Hex(record.epoch.high) + Hex(record.epoch.low);
  text += ' ' + Hex(record.writer);
  text += ' ' + std::to_string(record.next);
  text += record.begun ? " 1" : " 0";
  text += ' ' + std::to_string(record.index);
  text += ' ' + std::to_string(record.piece);
  text += record.more ? " 1" : " 0";
  if (!record.mark) return text + " -";
  return text + ' ' + std::to_string(record.mark->next_seq) + ':' + Hex(record.mark->hash[0]) +
         Hex(record.mark->hash[1]);
}

std::optional<LogRecord> ParseRecord(std::string_view header) {
  const std::vector<std::string_view> fields = Split(header);
  if (fields.size() != kFields) return std::nullopt;
  LogRecord record;
  const bool valid = ReadKind(fields[0], record.kind) &&
                     ReadPair(fields[1], record.epoch.high, record.epoch.low) &&
                     fields[2].size() == 16 && ReadNumber(fields[2], 16, record.writer) &&
                     ReadNumber(fields[3], 10, record.next) && ReadBit(fields[4], record.begun) &&
                     ReadNumber(fields[5], 10, record.index) &&
                     ReadNumber(fields[6], 10, record.piece) && ReadBit(fields[7], record.more) &&
                     ReadMark(fields[8], record.mark);
  const bool numbered = record.kind == RecordKind::kBatch || record.kind == RecordKind::kRefused;
  if (!valid || (numbered && !record.more && record.next == 0)) return std::nullopt;
  return record;
}

}  // namespace kvcast::event_log
