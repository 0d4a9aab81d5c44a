// Reader: a bounded cursor over MessagePack bytes.
//
// The reader never reads past the end of its bytes and never allocates. It accepts a count or a
// length only if enough bytes remain.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvcast::wire {

enum class Kind : uint8_t {
  kNil,
  kBool,
  kUnsigned,  // any integer >= 0, in any form
  kNegative,
  kFloat,  // 32-bit floats are widened
  kText,
  kBytes,
  kExtension,
  kArray,
  kMap,
};

// One value, or the head of a container whose elements follow.
struct Value {
  Kind kind = Kind::kNil;
  // Bool: 0 or 1. Integers: two's complement bits. Float: IEEE bits of the double. Text, bytes,
  // extension: length in bytes. Array: elements. Map: pairs.
  uint64_t number = 0;
  // Text, bytes, extension: the content. It points into the input.
  const uint8_t* data = nullptr;

  bool is_integer() const { return kind == Kind::kUnsigned || kind == Kind::kNegative; }
  bool is_container() const { return kind == Kind::kArray || kind == Kind::kMap; }
  // REQUIRES: kFloat, or an integer.
  double as_double() const;
  // REQUIRES: kText, kBytes or kExtension.
  std::string_view as_view() const {
    return {reinterpret_cast<const char*>(data), static_cast<size_t>(number)};
  }
  // Number of values after the head: elements, or keys and values.
  uint64_t children() const {
    return kind == Kind::kArray ? number : kind == Kind::kMap ? 2 * number : 0;
  }
};

inline uint64_t Load16(const uint8_t* bytes) {
  return static_cast<uint64_t>(bytes[0]) << 8 | bytes[1];
}
inline uint64_t Load32(const uint8_t* bytes) { return Load16(bytes) << 16 | Load16(bytes + 2); }
inline uint64_t Load64(const uint8_t* bytes) { return Load32(bytes) << 32 | Load32(bytes + 4); }

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes)
      : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  size_t remaining() const { return static_cast<size_t>(end_ - next_); }
  bool at_end() const { return next_ == end_; }

  // Reads one value. Consumes text, bytes and extensions with their content, but only the head of a
  // container. False: the value is incomplete, it declares more than the remaining bytes can hold,
  // or its lead byte is 0xc1, which MessagePack never uses. The position is then undefined.
  bool Next(Value& value) {
    if (at_end()) return false;
    const uint8_t lead = *next_++;
    if (lead >= 0xa0) return NextLong(lead, value);
    value.kind = lead < 0x80 ? Kind::kUnsigned : lead < 0x90 ? Kind::kMap : Kind::kArray;
    value.number = lead < 0x80 ? lead : lead & 0x0fu;
    return CountFits(value);
  }

  // Returns the kind of the next value without consuming the value. All integers are kUnsigned.
  // False: no bytes remain, or the lead byte is 0xc1.
  bool PeekKind(Kind& kind) const;

  // The start of the next value.
  const uint8_t* position() const { return next_; }

  // True if the next value has the 9-byte form of 64-bit hashes.
  bool AtUint64() const { return remaining() >= 9 && *next_ == 0xcf; }
  // Reads one value if it has the 9-byte form. False: it has another form, and nothing is consumed.
  bool NextUint64(uint64_t& number) {
    if (!AtUint64()) return false;
    number = Load64(next_ + 1);
    next_ += 9;
    return true;
  }

  // Reads up to `count` unsigned integers of at most 32 bits. Stops before the first value of
  // another form, and near the end of the input. Returns the number of values that it wrote to
  // `out`.
  size_t NextSmallIntegers(size_t count, int64_t* out);

  // As NextSmallIntegers, but skips the values, and stops at a larger distance from the end of the
  // input. Returns the number of skipped values.
  size_t SkipSmallIntegers(size_t count);

  // Skips bytes that are equal to `model`, except for one number in the 9-byte form. The lead byte
  // of this number is at `number_offset`. Writes the number to `number`. False: the bytes differ,
  // and nothing is consumed.
  bool NextLike(std::span<const uint8_t> model, size_t number_offset, uint64_t& number);

  // Skips one value with all its content, at any depth. False: see Next.
  bool Skip();

  enum class SkipResult : uint8_t { kOk, kMalformed, kTooDeep };
  // Like Skip, but refuses containers nested more than `depth_max` deep (1: a flat container).
  SkipResult SkipWithin(uint32_t depth_max);

 private:
  bool NextLong(uint8_t lead, Value& value);
  bool NextSized(uint8_t lead, Value& value);
  bool TakeNumber(unsigned width, uint64_t& number);
  bool TakeContent(Value& value, uint64_t length);
  bool CountFits(const Value& value) const { return value.children() <= remaining(); }

  const uint8_t* next_;
  const uint8_t* end_;
};

}  // namespace kvcast::wire
