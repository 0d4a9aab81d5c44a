// SPDX-License-Identifier: Apache-2.0
#include "src/hash/pickle_int.h"

#include <bit>

#include "src/hash/store.h"

namespace kvcast::internal {
namespace {

constexpr uint8_t kBinInt = 'J';
constexpr uint8_t kLong1 = 0x8a;

// BININT1, BININT2 and BININT. The size includes opcode and value.
constexpr uint8_t kOpcode[] = {'K', 'M', kBinInt};
constexpr uint8_t kPickleSize[] = {2, 3, 5};

// LONG1 with the fewest two's complement bytes, for every integer that does not fit in 32 bits.
uint8_t* PutLong(uint8_t* at, int64_t value) {
  const uint64_t bits = static_cast<uint64_t>(value);
  const int magnitude_bits = 64 - std::countl_zero(value < 0 ? ~bits : bits);
  const int bytes = magnitude_bits / 8 + 1;
  at[0] = kLong1;
  at[1] = static_cast<uint8_t>(bytes);
  StoreLittle<uint64_t>(at + 2, bits);
  return at + 2 + bytes;
}

inline uint8_t* PutInt(uint8_t* at, int64_t value) {
  const uint64_t bits = static_cast<uint64_t>(value);
  if (bits <= 0x7fffffff) {
    // The width is chosen without a branch: token ids have mixed widths, and a mispredicted branch
    // costs more than the rest of the function.
    const unsigned width = (bits > 0xff) + (bits > 0xffff);
    StoreLittle<uint64_t>(at, bits << 8 | kOpcode[width]);
    return at + kPickleSize[width];
  }
  if (value < 0 && value >= INT32_MIN) {
    *at = kBinInt;
    StoreLittle<uint32_t>(at + 1, static_cast<uint32_t>(bits));
    return at + 5;
  }
  return PutLong(at, value);
}

}  // namespace

uint8_t* PutPickleInts(uint8_t* at, std::span<const TokenId> values) {
  for (const TokenId value : values) at = PutInt(at, value);
  return at;
}

uint8_t* PutPickleUnsigned(uint8_t* at, uint64_t value) {
  if (value <= INT64_MAX) return PutInt(at, static_cast<int64_t>(value));
  // LONG1 is signed: without a ninth byte, the top bit of the eighth byte would be the sign.
  at[0] = kLong1;
  at[1] = 9;
  StoreLittle<uint64_t>(at + 2, value);
  at[10] = 0;
  return at + 11;
}

}  // namespace kvcast::internal
