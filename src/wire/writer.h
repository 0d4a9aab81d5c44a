// Writer: appends MessagePack values in the forms that the engines' encoder (msgspec) uses.
// Integers and lengths have their shortest form. Floats always have 64 bits.
//
// The library msgpack-cxx is not used, because it packs whole floats as integers. No engine does
// that.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace kvcast::wire {

// Lengths and counts must be below 2^32. Until Close is called, the vector has unwritten room at
// its end: read the vector only after Close.
class Writer {
 public:
  explicit Writer(std::vector<uint8_t>& out) : out_(out), used_(out.size()) {}

  // Removes the room that was not needed. May be called more than once.
  void Close() { out_.resize(used_); }
  // The position of the next byte.
  size_t position() const { return used_; }
  // The bytes between two positions. Valid until the next write.
  std::span<const uint8_t> written(size_t begin, size_t end) const {
    return {out_.data() + begin, end - begin};
  }

  void Nil() { Byte(0xc0); }
  void Bool(bool value) { Byte(value ? 0xc3 : 0xc2); }
  void Float(double value);
  void Unsigned(uint64_t value) { used_ += PutUnsigned(Room(kMaxScalar), value); }
  void Signed(int64_t value) { used_ += PutSigned(Room(kMaxScalar), value); }
  // Writes the values one after the other, without an array head.
  void SignedList(std::span<const int64_t> values);
  void Text(std::string_view text);
  void Binary(std::span<const uint8_t> bytes);
  void ArrayHead(size_t count);
  void MapHead(size_t pairs);
  // Writes a 16-bit head even if a shorter head is sufficient. REQUIRES: pairs < 2^16.
  void WideMapHead(size_t pairs);
  // Writes the bytes unchanged.
  void Raw(std::span<const uint8_t> bytes) {
    if (bytes.empty()) return;
    std::memcpy(Room(bytes.size()), bytes.data(), bytes.size());
    used_ += bytes.size();
  }

 private:
  // The size of the longest head or number. Each Put function may overwrite this number of bytes,
  // and returns the number of bytes that belong to the value.
  static constexpr size_t kMaxScalar = 9;
  struct LengthForm;

  static size_t PutUnsigned(uint8_t* at, uint64_t value);
  static size_t PutSigned(uint8_t* at, int64_t value) {
    return value >= 0 ? PutUnsigned(at, static_cast<uint64_t>(value)) : PutNegative(at, value);
  }
  static size_t PutNegative(uint8_t* at, int64_t value);
  static size_t PutTokenLike(uint8_t* at, int64_t value);

  uint8_t* Room(size_t bytes) {
    if (out_.size() - used_ < bytes) Grow(bytes);
    return out_.data() + used_;
  }
  void Grow(size_t bytes);
  void Byte(uint8_t byte) {
    *Room(1) = byte;
    ++used_;
  }
  void Length(const LengthForm& form, size_t length);

  std::vector<uint8_t>& out_;
  size_t used_;
};

// The form of an integer by its number of significant bits: a lead byte and `bytes` more bytes. For
// up to 7 bits, the lead byte is the value itself. A table avoids a branch, because the size of a
// token id cannot be predicted.
struct IntegerForm {
  uint8_t lead;
  uint8_t value_mask;  // mask of the value's bits that enter the lead
  uint8_t bytes;
};
inline constexpr auto kIntegerForms = [] {
  struct {
    IntegerForm by_bits[65];
  } forms{};
  for (int bits = 0; bits <= 64; ++bits) {
    forms.by_bits[bits] = bits <= 7    ? IntegerForm{0, 0x7f, 0}
                          : bits <= 8  ? IntegerForm{0xcc, 0, 1}
                          : bits <= 16 ? IntegerForm{0xcd, 0, 2}
                          : bits <= 32 ? IntegerForm{0xce, 0, 4}
                                       : IntegerForm{0xcf, 0, 8};
  }
  return forms;
}();

inline size_t Writer::PutUnsigned(uint8_t* at, uint64_t value) {
  const IntegerForm form = kIntegerForms.by_bits[std::bit_width(value)];
  *at = static_cast<uint8_t>(form.lead | (value & form.value_mask));
  // If form.bytes is 0, the stored bytes are irrelevant; the mask keeps the shift count below 64.
  const uint64_t big_endian = __builtin_bswap64(value << ((64 - 8 * form.bytes) & 63));
  std::memcpy(at + 1, &big_endian, sizeof(big_endian));
  return size_t{1} + form.bytes;
}

}  // namespace kvcast::wire
