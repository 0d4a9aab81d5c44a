// Writer: appends MessagePack values in the forms that the engines' encoder (msgspec) picks: the
// shortest integer and length, and 64-bit floats always.
//
// msgpack-cxx packs whole floats as integers, which no engine does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kvcast::wire {

// Lengths and counts must be below 2^32.
class Writer {
 public:
  explicit Writer(std::vector<uint8_t>& out) : out_(out) {}

  void Nil() { out_.push_back(0xc0); }
  void Bool(bool value) { out_.push_back(value ? 0xc3 : 0xc2); }
  void Float(double value) { Number<8>(0xcb, std::bit_cast<uint64_t>(value)); }
  void Unsigned(uint64_t value);
  void Signed(int64_t value);
  void Text(std::string_view text);
  void Binary(std::span<const uint8_t> bytes);
  void ArrayHead(size_t count);
  void MapHead(size_t pairs);

 private:
  template <int kBytes>
  void Number(uint8_t lead, uint64_t value) {
    uint8_t buffer[kBytes + 1] = {lead};
    for (int i = kBytes; i > 0; --i, value >>= 8) buffer[i] = static_cast<uint8_t>(value);
    out_.insert(out_.end(), buffer, buffer + kBytes + 1);
  }

  std::vector<uint8_t>& out_;
};

}  // namespace kvcast::wire
