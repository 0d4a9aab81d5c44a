// JsonWriter: writes JSON in call order, without a document in memory. It is for replies that are
// sent thousands of times per second.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvcast::router {

// The caller must close each object and array that it opens. Thread-compatible.
class JsonWriter {
 public:
  void BeginObject() { Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray() { Open('['); }
  void EndArray() { Close(']'); }
  void Key(std::string_view name);  // `name` must not need escapes

  void Value(std::string_view text);  // bytes that are not UTF-8 are replaced
  void Value(const char* text) { Value(std::string_view(text)); }
  void Value(const std::string& text) { Value(std::string_view(text)); }
  void Value(double number);  // a value that is not finite becomes null
  void Null();
  template <std::same_as<bool> T>
  void Value(T value) {
    Raw(value ? "true" : "false");
  }
  template <std::integral T>
  requires(!std::same_as<T, bool>) void Value(T number) {
    if constexpr (std::signed_integral<T>) {
      Integer(static_cast<int64_t>(number));
    } else {
      Integer(static_cast<uint64_t>(number));
    }
  }
  template <typename T>
  void Value(const std::optional<T>& value) {
    value ? Value(*value) : Null();
  }
  template <typename T>
  void Value(std::span<const T> values) {
    BeginArray();
    for (const T& value : values) Value(value);
    EndArray();
  }
  template <typename T>
  void Value(const std::vector<T>& values) {
    Value(std::span<const T>(values));
  }
  template <typename T>
  void Member(std::string_view name, const T& value) {
    Key(name);
    Value(value);
  }

  // Returns the text, on one line.
  std::string Take() {
    text_ += '\n';
    return std::move(text_);
  }

 private:
  void Open(char bracket);
  void Close(char bracket);
  void Separate();
  void Raw(std::string_view text);
  void Integer(int64_t number);
  void Integer(uint64_t number);

  std::string text_;
  bool first_ = true;  // the next value or key needs no comma
};

}  // namespace kvcast::router
