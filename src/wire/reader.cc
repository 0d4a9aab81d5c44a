// SPDX-License-Identifier: Apache-2.0
#include "src/wire/reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace kvcast::wire {
namespace {

// What follows a lead byte of 0xc0 ... 0xdf: a number, length or count of `width` bytes; `fixed`
// is the content length of forms that have none of these.
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

template <typename T>
uint64_t LoadBigEndian(const uint8_t* bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof(T); ++i) number = number << 8 | bytes[i];
  return number;
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

bool Reader::TakeNumber(unsigned width, uint64_t& number) {
  if (remaining() < width) return false;
  switch (width) {
    case 1:
      number = *next_;
      break;
    case 2:
      number = LoadBigEndian<uint16_t>(next_);
      break;
    case 4:
      number = LoadBigEndian<uint32_t>(next_);
      break;
    case 8:
      number = LoadBigEndian<uint64_t>(next_);
      break;
    default:
      return true;
  }
  next_ += width;
  return true;
}

bool Reader::TakeContent(Value& value, uint64_t length) {
  // An extension's type byte belongs to its content here: nobody reads extensions.
  if (value.kind == Kind::kExtension) ++length;
  if (length > remaining()) return false;
  value.number = length;
  value.data = next_;
  next_ += length;
  return true;
}

bool Reader::Next(Value& value) {
  if (at_end()) return false;
  const uint8_t lead = *next_++;
  if (lead < 0x80) {
    value = {Kind::kUnsigned, lead};
    return true;
  }
  if (lead >= 0xe0) {
    value = {Kind::kNegative, static_cast<uint64_t>(static_cast<int8_t>(lead))};
    return true;
  }
  if (lead >= 0xc0) return NextSized(lead, value);
  if (lead >= 0xa0) {
    value.kind = Kind::kText;
    return TakeContent(value, lead & 0x1f);
  }
  value = {lead >= 0x90 ? Kind::kArray : Kind::kMap, lead & 0x0fu};
  return CountFits(value);
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
  // Five bytes are the longest form taken here, so one bounds check covers each turn.
  while (done < count && remaining() >= 5) {
    const uint8_t lead = *next_;
    if (lead < 0x80) {
      out[done++] = lead;
      next_ += 1;
    } else if (lead == 0xcd) {
      out[done++] = static_cast<int64_t>(LoadBigEndian<uint16_t>(next_ + 1));
      next_ += 3;
    } else if (lead == 0xce) {
      out[done++] = static_cast<int64_t>(LoadBigEndian<uint32_t>(next_ + 1));
      next_ += 5;
    } else if (lead == 0xcc) {
      out[done++] = next_[1];
      next_ += 2;
    } else {
      break;
    }
  }
  return done;
}

bool Reader::Skip() {
  Value value;
  for (uint64_t pending = 1; pending > 0; --pending) {
    // Each pending value takes at least one byte; without this a small input with huge counts
    // would be walked to its end before it is refused.
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
