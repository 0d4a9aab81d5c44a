// FieldWriter and FieldReader: fields of a saved state, as bytes. The reader must read the fields
// in the order in which they were written. Integers are varints: 7 bits per byte, the low bits
// first.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace kvcast {

// Maximum number of bytes of a varint.
inline constexpr size_t kMaxVarint = 10;

// Writes `value` as a varint to `to`, which must have room for kMaxVarint bytes. Returns the end of
// the written bytes.
inline uint8_t* PutVarint(uint64_t value, uint8_t* to) {
  for (; value >= 0x80; value >>= 7) *to++ = static_cast<uint8_t>(value | 0x80);
  *to++ = static_cast<uint8_t>(value);
  return to;
}

// Thread-compatible.
class FieldWriter {
 public:
  void Int(uint64_t value) {
    std::array<uint8_t, kMaxVarint> bytes;
    bytes_.insert(bytes_.end(), bytes.data(), PutVarint(value, bytes.data()));
  }
  void Bool(bool value) { Int(value ? 1 : 0); }
  // 8 bytes, in the byte order of this machine.
  void Fixed(uint64_t value) { Raw({reinterpret_cast<const uint8_t*>(&value), sizeof(value)}); }
  // The size, and then the bytes.
  void Text(std::string_view text) {
    Bytes({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  void Bytes(std::span<const uint8_t> bytes) {
    Int(bytes.size());
    Raw(bytes);
  }

  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::vector<uint8_t> Take() { return std::move(bytes_); }

 private:
  void Raw(std::span<const uint8_t> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  std::vector<uint8_t> bytes_;
};

// Reads bytes that may be damaged. After the first field that is absent or out of range, ok() is
// false, and every field is 0 or empty. Thread-compatible.
class FieldReader {
 public:
  // The bytes must exist as long as the reader.
  explicit FieldReader(std::span<const uint8_t> bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  // True: all bytes were read, without an error.
  bool AtEnd() const { return ok_ && rest_.empty(); }
  size_t left() const { return rest_.size(); }
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

  // Fails if the value is above `max`.
  uint64_t Int(uint64_t max = ~uint64_t{0}) {
    uint64_t value = 0;
    for (size_t i = 0; i < kMaxVarint && i < rest_.size(); ++i) {
      if (i == kMaxVarint - 1 && rest_[i] > 1) break;  // above 2^64 - 1
      value |= uint64_t{rest_[i] & 0x7Fu} << 7 * i;
      if ((rest_[i] & 0x80) != 0) continue;
      rest_ = rest_.subspan(i + 1);
      if (value <= max) return value;
      break;
    }
    Fail();
    return 0;
  }
  bool Bool() { return Int(1) != 0; }
  uint64_t Fixed() {
    uint64_t value = 0;
    const std::span<const uint8_t> bytes = Raw(sizeof(value));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  // Borrowed from the bytes of the reader.
  std::span<const uint8_t> Bytes(size_t max_size = ~size_t{0}) { return Raw(Int(max_size)); }
  std::string_view Text(size_t max_size = ~size_t{0}) {
    const std::span<const uint8_t> bytes = Bytes(max_size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Reads a number of elements. Each element takes at least `bytes_each` bytes. Fails if too few
  // bytes are left for the elements.
  size_t Count(size_t bytes_each) { return Int(rest_.size() / bytes_each); }
  // Empty: there are fewer bytes, or `size` is 0.
  std::span<const uint8_t> Raw(size_t size) {
    if (size > rest_.size()) {
      Fail();
      return {};
    }
    const std::span<const uint8_t> bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }

 private:
  std::span<const uint8_t> rest_;
  bool ok_ = true;
};

}  // namespace kvcast
