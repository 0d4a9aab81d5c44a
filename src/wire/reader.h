// Reader: a bounded cursor over MessagePack bytes.
//
// It never reads past its end, never allocates, and believes a count or a length only as far as
// bytes remain for it. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvcast::wire {

enum class Kind : uint8_t {
  kNil,
  kBool,
  kUnsigned,  // any integer >= 0, whatever its form
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
  // Text, bytes, extension: the content, borrowed from the input.
  const uint8_t* data = nullptr;

  bool is_integer() const { return kind == Kind::kUnsigned || kind == Kind::kNegative; }
  bool is_container() const { return kind == Kind::kArray || kind == Kind::kMap; }
  // REQUIRES: kFloat, or an integer.
  double as_double() const;
  // REQUIRES: kText, kBytes or kExtension.
  std::string_view as_view() const {
    return {reinterpret_cast<const char*>(data), static_cast<size_t>(number)};
  }
  // Values that follow the head: elements, or keys and values.
  uint64_t children() const {
    return kind == Kind::kArray ? number : kind == Kind::kMap ? 2 * number : 0;
  }
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes)
      : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  size_t remaining() const { return static_cast<size_t>(end_ - next_); }
  bool at_end() const { return next_ == end_; }

  // Reads one value. Text, bytes and extensions are consumed with their content, containers only
  // with their head. False (position undefined): cut short, more declared than bytes remain, or
  // the byte 0xc1, which MessagePack never uses.
  bool Next(Value& value);

  // Reads up to `count` unsigned integers of at most 32 bits, stopping before the first value of
  // another form or near the end. Returns how many it wrote to `out`.
  size_t NextSmallIntegers(size_t count, int64_t* out);

  // Passes over one value with everything in it, however deep. False: as Next.
  bool Skip();

  enum class SkipResult : uint8_t { kOk, kMalformed, kTooDeep };
  // Like Skip, but refuses containers nested more than `depth_max` deep (1: a flat container).
  SkipResult SkipWithin(uint32_t depth_max);

 private:
  bool NextSized(uint8_t lead, Value& value);
  bool TakeNumber(unsigned width, uint64_t& number);
  bool TakeContent(Value& value, uint64_t length);
  bool CountFits(Value& value) const { return value.children() <= remaining(); }

  const uint8_t* next_;
  const uint8_t* end_;
};

}  // namespace kvcast::wire
