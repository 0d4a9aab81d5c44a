// SPDX-License-Identifier: Apache-2.0
#include "src/wire/writer.h"

#include <algorithm>

namespace kvcast::wire {
namespace {

// Size of the first allocation; later allocations double the size.
constexpr size_t kFirstRoom = 256;

template <int kBytes>
size_t PutNumber(uint8_t* at, uint8_t lead, uint64_t value) {
  static_assert(kBytes == 1 || kBytes == 2 || kBytes == 4 || kBytes == 8);
  *at = lead;
  const uint64_t big_endian = __builtin_bswap64(value << (64 - 8 * kBytes));
  std::memcpy(at + 1, &big_endian, kBytes);
  return 1 + kBytes;
}

}  // namespace

// Forms of a length. A length below `inline_end` is in the lead byte itself. A larger length
// follows the lead byte of its width.
struct Writer::LengthForm {
  uint8_t inline_lead;
  size_t inline_end;
  uint8_t lead8;  // 0: there is no 8-bit form
  uint8_t lead16;
  uint8_t lead32;
};

void Writer::Grow(size_t bytes) { out_.resize(used_ + std::max({bytes, used_, kFirstRoom})); }

size_t Writer::PutNegative(uint8_t* at, int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value >= -32) {
    *at = static_cast<uint8_t>(bits);
    return 1;
  }
  if (value >= INT8_MIN) return PutNumber<1>(at, 0xd0, bits);
  if (value >= INT16_MIN) return PutNumber<2>(at, 0xd1, bits);
  if (value >= INT32_MIN) return PutNumber<4>(at, 0xd2, bits);
  return PutNumber<8>(at, 0xd3, bits);
}

void Writer::Float(double value) {
  used_ += PutNumber<8>(Room(kMaxScalar), 0xcb, std::bit_cast<uint64_t>(value));
}

// The same as PutSigned, with a fast path for most token ids: integers of 9 to 32 bits, which take
// 2 or 4 bytes after their lead byte. The width cannot be predicted, so the code has no branch on
// the width.
[[gnu::always_inline]] inline size_t Writer::PutTokenLike(uint8_t* at, int64_t value) {
  constexpr uint64_t kFirst = uint64_t{1} << 8;
  const auto bits = static_cast<uint64_t>(value);
  if (bits - kFirst > UINT32_MAX - kFirst) return PutSigned(at, value);
  const uint64_t wide = (UINT16_MAX - bits) >> 63;  // 1 or 0; a bool would become a branch
  const auto number = static_cast<uint32_t>(bits << (16 - 16 * wide));
  const uint64_t bytes = uint64_t{__builtin_bswap32(number)} << 8 | (0xcd + wide);
  std::memcpy(at, &bytes, sizeof(bytes));
  return 3 + 2 * wide;
}

void Writer::SignedList(std::span<const int64_t> values) {
  uint8_t* const first = Room(values.size() * kMaxScalar);
  uint8_t* at = first;
  for (const int64_t value : values) at += PutTokenLike(at, value);
  used_ += static_cast<size_t>(at - first);
}

void Writer::Length(const LengthForm& form, size_t length) {
  uint8_t* const at = Room(kMaxScalar);
  if (length < form.inline_end) {
    *at = static_cast<uint8_t>(form.inline_lead | length);
    ++used_;
  } else if (form.lead8 != 0 && length <= UINT8_MAX) {
    used_ += PutNumber<1>(at, form.lead8, length);
  } else if (length <= UINT16_MAX) {
    used_ += PutNumber<2>(at, form.lead16, length);
  } else {
    used_ += PutNumber<4>(at, form.lead32, length);
  }
}

void Writer::Text(std::string_view text) {
  Length({0xa0, 32, 0xd9, 0xda, 0xdb}, text.size());
  Raw({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

void Writer::Binary(std::span<const uint8_t> bytes) {
  Length({0, 0, 0xc4, 0xc5, 0xc6}, bytes.size());
  Raw(bytes);
}

void Writer::ArrayHead(size_t count) { Length({0x90, 16, 0, 0xdc, 0xdd}, count); }

void Writer::WideMapHead(size_t pairs) { used_ += PutNumber<2>(Room(kMaxScalar), 0xde, pairs); }

void Writer::MapHead(size_t pairs) { Length({0x80, 16, 0, 0xde, 0xdf}, pairs); }

}  // namespace kvcast::wire
