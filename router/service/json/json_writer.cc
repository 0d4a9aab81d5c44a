// SPDX-License-Identifier: Apache-2.0
#include "router/service/json/json_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace kvcast::router {
namespace {

bool IsPlain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

}  // namespace

void JsonWriter::Separate() {
  if (!std::exchange(first_, false)) text_ += ',';
}

void JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  first_ = true;
}

void JsonWriter::Close(char bracket) {
  text_ += bracket;
  first_ = false;
}

void JsonWriter::Key(std::string_view name) {
  Separate();
  text_ += '"';
  text_ += name;
  text_ += "\":";
  first_ = true;  // the member's value follows without a comma
}

void JsonWriter::Raw(std::string_view text) {
  Separate();
  text_ += text;
}

void JsonWriter::Null() { Raw("null"); }

void JsonWriter::Value(std::string_view text) {
  Separate();
  if (std::all_of(text.begin(), text.end(), IsPlain)) {
    text_ += '"';
    text_ += text;
    text_ += '"';
    return;
  }
  text_ += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void JsonWriter::Value(double number) {
  if (!std::isfinite(number)) return Null();
  char digits[32];
  const char* const end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
  std::string_view text(digits, static_cast<size_t>(end - digits));
  Raw(text);
  // A client may distinguish integers from floating-point numbers. Every value of a double must
  // have the same type for this client.
  if (text.find_first_of(".e") == std::string_view::npos) text_ += ".0";
}

void JsonWriter::Integer(int64_t number) {
  char digits[24];
  Raw({digits, static_cast<size_t>(std::to_chars(digits, digits + 24, number).ptr - digits)});
}

void JsonWriter::Integer(uint64_t number) {
  char digits[24];
  Raw({digits, static_cast<size_t>(std::to_chars(digits, digits + 24, number).ptr - digits)});
}

}  // namespace kvcast::router
