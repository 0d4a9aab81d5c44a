// SPDX-License-Identifier: Apache-2.0
#include "src/wire/reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace kvcast::wire {
namespace {

// The form of a value by its lead byte, 0xc0 ... 0xdf. A number, length or count of `width` bytes
// follows the lead byte. If `width` is 0, `fixed` is the number or the content length.
struct Lead {
  enum Form : uint8_t { kNever, kPlain, kSigned, kFloat32, kSized, kCounted };
  Form form;
  Kind kind;
  uint8_t width;
  uint8_t fixed = 0;
};

constexpr std::array<Lead, 32> kLeads = {{
    {Lead::kPlain, Kind::kNil, 0},            // c0
    {Lead::kNever, Kind::kNil, 0},            // c1
    {Lead::kPlain, Kind::kBool, 0, 0},        // c2 false
    {Lead::kPlain, Kind::kBool, 0, 1},        // c3 true
    {Lead::kSized, Kind::kBytes, 1},          // c4 bin 8, 16, 32
    {Lead::kSized, Kind::kBytes, 2},          // c5
    {Lead::kSized, Kind::kBytes, 4},          // c6
    {Lead::kSized, Kind::kExtension, 1},      // c7 ext 8, 16, 32
    {Lead::kSized, Kind::kExtension, 2},      // c8
    {Lead::kSized, Kind::kExtension, 4},      // c9
    {Lead::kFloat32, Kind::kFloat, 4},        // ca
    {Lead::kPlain, Kind::kFloat, 8},          // cb
    {Lead::kPlain, Kind::kUnsigned, 1},       // cc uint 8, 16, 32, 64
    {Lead::kPlain, Kind::kUnsigned, 2},       // cd
    {Lead::kPlain, Kind::kUnsigned, 4},       // ce
    {Lead::kPlain, Kind::kUnsigned, 8},       // cf
    {Lead::kSigned, Kind::kNegative, 1},      // d0 int 8, 16, 32, 64
    {Lead::kSigned, Kind::kNegative, 2},      // d1
    {Lead::kSigned, Kind::kNegative, 4},      // d2
    {Lead::kSigned, Kind::kNegative, 8},      // d3
    {Lead::kSized, Kind::kExtension, 0, 1},   // d4 fixext 1, 2, 4, 8, 16
    {Lead::kSized, Kind::kExtension, 0, 2},   // d5
    {Lead::kSized, Kind::kExtension, 0, 4},   // d6
    {Lead::kSized, Kind::kExtension, 0, 8},   // d7
    {Lead::kSized, Kind::kExtension, 0, 16},  // d8
    {Lead::kSized, Kind::kText, 1},           // d9 str 8, 16, 32
    {Lead::kSized, Kind::kText, 2},           // da
    {Lead::kSized, Kind::kText, 4},           // db
    {Lead::kCounted, Kind::kArray, 2},        // dc array 16, 32
    {Lead::kCounted, Kind::kArray, 4},        // dd
    {Lead::kCounted, Kind::kMap, 2},          // de map 16, 32
    {Lead::kCounted, Kind::kMap, 4},          // df
}};

// The integer forms of token ids vary at random. A branch on the form would be mispredicted half of
// the time. Without a branch, the read of each value waits for the length of the previous value.
// The reader therefore works in windows. First it computes, in one pass over the bytes of a window,
// the length of the value that would start at each byte. Then it steps from value to value.
constexpr size_t kWindow = 64;

// 0: no unsigned integer of up to 32 bits starts with this byte.
inline uint8_t SmallIntegerLength(uint8_t lead) {
  return static_cast<uint8_t>((lead < 0x80) + 2 * (lead == 0xcc) + 3 * (lead == 0xcd) +
                              5 * (lead == 0xce));
}

// Has no branches and works in place, so that compilers vectorise it.
void MeasureSmallIntegers(const uint8_t* bytes, std::array<uint8_t, kWindow>& lengths) {
  std::memcpy(lengths.data(), bytes, kWindow);
  for (uint8_t& byte : lengths) {
    byte = SmallIntegerLength(byte);
  }
}

// Each step waits for the length of its value. With the combined length of two adjacent values, the
// reader needs half as many steps. With a larger window, the reader needs fewer windows.
constexpr size_t kSkipWindow = 512;
constexpr size_t kLongestSmallInteger = 5;

// For each byte: `one` is the length of the small integer that starts there. `two` is the length of
// that integer together with the next small integer. 0: there is no such integer, or no such pair.
struct PairLengths {
  std::array<uint8_t, kSkipWindow + kWindow> one;
  std::array<uint8_t, kSkipWindow + kWindow> two;
};

// Fills `two` for the first `window` bytes, and `one` for at least kLongestSmallInteger bytes more.
// Has no branches, so that compilers vectorise it. REQUIRES: window + kWindow readable bytes.
void MeasurePairs(const uint8_t* bytes, size_t window, PairLengths& lengths) {
  constexpr size_t kStep = 16;
  const size_t padded = (window + kStep - 1) / kStep * kStep;
  for (size_t i = 0; i < padded + kStep; i += kStep) {
    for (size_t k = i; k < i + kStep; ++k) lengths.one[k] = SmallIntegerLength(bytes[k]);
  }
  const uint8_t* const one = lengths.one.data();
  for (size_t i = 0; i < padded; i += kStep) {
    for (size_t k = i; k < i + kStep; ++k) {
      const auto mask = [](bool condition) { return static_cast<uint8_t>(-condition); };
      const auto next =
          static_cast<uint8_t>((mask(one[k] == 1) & one[k + 1]) | (mask(one[k] == 2) & one[k + 2]) |
                               (mask(one[k] == 3) & one[k + 3]) | (mask(one[k] == 5) & one[k + 5]));
      lengths.two[k] = static_cast<uint8_t>(mask(next != 0) & (one[k] + next));
    }
  }
}

bool SameBytes(const uint8_t* a, const uint8_t* b, size_t size) {
  constexpr size_t kWord = sizeof(uint64_t);
  if (size < kWord) return std::equal(a, a + size, b);
  const auto word = [](const uint8_t* from) {
    uint64_t value;
    std::memcpy(&value, from, kWord);
    return value;
  };
  uint64_t differing = word(a + size - kWord) ^ word(b + size - kWord);
  for (size_t i = 0; i + kWord <= size; i += kWord) differing |= word(a + i) ^ word(b + i);
  return differing == 0;
}

// Indexed by the length of the value, lead byte included.
constexpr uint64_t kValueMasks[] = {0, 0x7f, 0xff, 0xffff, 0, 0xffffffff};

// REQUIRES: eight readable bytes.
int64_t CutSmallInteger(const uint8_t* bytes, size_t length) {
  return static_cast<int64_t>(Load64(bytes) >> (64 - 8 * length) & kValueMasks[length]);
}

void WidenSigned(Value& value, unsigned width) {
  const unsigned shift = 64 - 8 * width;
  const int64_t number = static_cast<int64_t>(value.number << shift) >> shift;
  value.number = static_cast<uint64_t>(number);
  value.kind = number < 0 ? Kind::kNegative : Kind::kUnsigned;
}

void WidenFloat(Value& value) {
  const float narrow = std::bit_cast<float>(static_cast<uint32_t>(value.number));
  value.number = std::bit_cast<uint64_t>(static_cast<double>(narrow));
}

}  // namespace

double Value::as_double() const {
  if (kind == Kind::kFloat) return std::bit_cast<double>(number);
  if (kind == Kind::kNegative) return static_cast<double>(static_cast<int64_t>(number));
  return static_cast<double>(number);
}

bool Reader::PeekKind(Kind& kind) const {
  if (at_end()) return false;
  const uint8_t lead = *next_;
  if (lead < 0xc0) {
    kind = lead < 0x80   ? Kind::kUnsigned
           : lead < 0x90 ? Kind::kMap
           : lead < 0xa0 ? Kind::kArray
                         : Kind::kText;
    return true;
  }
  kind = lead < 0xe0 ? kLeads[lead - 0xc0].kind : Kind::kUnsigned;
  if (kind == Kind::kNegative) kind = Kind::kUnsigned;
  return lead != 0xc1;
}

bool Reader::TakeNumber(unsigned width, uint64_t& number) {
  if (remaining() < width) return false;
  switch (width) {
    case 1:
      number = *next_;
      break;
    case 2:
      number = Load16(next_);
      break;
    case 4:
      number = Load32(next_);
      break;
    case 8:
      number = Load64(next_);
      break;
    default:
      return true;
  }
  next_ += width;
  return true;
}

bool Reader::TakeContent(Value& value, uint64_t length) {
  // The type byte of an extension counts as content here, because no caller reads extensions.
  if (value.kind == Kind::kExtension) ++length;
  if (length > remaining()) return false;
  value.number = length;
  value.data = next_;
  next_ += length;
  return true;
}

bool Reader::NextLong(uint8_t lead, Value& value) {
  if (lead >= 0xe0) {
    value = {Kind::kNegative, static_cast<uint64_t>(static_cast<int8_t>(lead))};
    return true;
  }
  if (lead >= 0xc0) return NextSized(lead, value);
  value.kind = Kind::kText;
  return TakeContent(value, lead & 0x1fu);
}

bool Reader::NextSized(uint8_t lead, Value& value) {
  const Lead& shape = kLeads[lead - 0xc0];
  value = {shape.kind, shape.fixed};
  if (!TakeNumber(shape.width, value.number)) return false;
  switch (shape.form) {
    case Lead::kNever:
      return false;
    case Lead::kPlain:
      return true;
    case Lead::kSigned:
      WidenSigned(value, shape.width);
      return true;
    case Lead::kFloat32:
      WidenFloat(value);
      return true;
    case Lead::kSized:
      return TakeContent(value, value.number);
    case Lead::kCounted:
      return CountFits(value);
  }
  return false;
}

size_t Reader::NextSmallIntegers(size_t count, int64_t* out) {
  size_t done = 0;
  std::array<uint8_t, kWindow> lengths;
  while (done < count && remaining() >= kWindow + sizeof(uint64_t)) {
    MeasureSmallIntegers(next_, lengths);
    size_t offset = 0;
    for (; offset < kWindow && done < count && lengths[offset] != 0; offset += lengths[offset]) {
      out[done++] = CutSmallInteger(next_ + offset, lengths[offset]);
    }
    next_ += offset;
    if (offset < kWindow) break;
  }
  return done;
}

size_t Reader::SkipSmallIntegers(size_t count) {
  size_t done = 0;
  PairLengths lengths;
  while (done < count && remaining() >= kSkipWindow + kWindow) {
    const size_t window = std::min(kSkipWindow, (count - done) * kLongestSmallInteger);
    MeasurePairs(next_, window, lengths);
    size_t offset = 0;
    // The last value may extend past the window.
    for (; offset < window && count - done >= 2 && lengths.two[offset] != 0; done += 2) {
      offset += lengths.two[offset];
    }
    if (offset < window && done < count && lengths.one[offset] != 0) {
      offset += lengths.one[offset];
      ++done;
    }
    next_ += offset;
    if (offset < window) break;
  }
  return done;
}

bool Reader::NextLike(std::span<const uint8_t> model, size_t number_offset, uint64_t& number) {
  constexpr size_t kForm = 9;
  if (remaining() < model.size() || next_[number_offset] != 0xcf) return false;
  const size_t after_number = number_offset + kForm;
  if (!SameBytes(next_ + after_number, model.data() + after_number, model.size() - after_number))
    return false;
  if (!SameBytes(next_, model.data(), number_offset)) return false;
  number = Load64(next_ + number_offset + 1);
  next_ += model.size();
  return true;
}

bool Reader::Skip() {
  Value value;
  for (uint64_t pending = 1; pending > 0; --pending) {
    // Each pending value takes at least one byte. Without this check, the reader would walk an
    // input with huge counts to its end before it refuses the input.
    if (pending > remaining() || !Next(value)) return false;
    pending += value.children();
  }
  return true;
}

Reader::SkipResult Reader::SkipWithin(uint32_t depth_max) {
  constexpr uint32_t kDepthMax = 64;
  std::array<uint64_t, kDepthMax + 1> pending;
  depth_max = std::min(depth_max, kDepthMax);
  uint32_t depth = 0;
  pending[0] = 1;
  while (true) {
    while (pending[depth] == 0) {
      if (depth-- == 0) return SkipResult::kOk;
    }
    --pending[depth];
    Value value;
    if (!Next(value)) return SkipResult::kMalformed;
    if (!value.is_container()) continue;
    if (depth == depth_max) return SkipResult::kTooDeep;
    pending[++depth] = value.children();
  }
}

}  // namespace kvcast::wire
