// The pickle opcodes of one integer, as CPython's C pickler chooses them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/hash/store.h"

namespace kvcast::internal {

// Opcode, length byte, 9 bytes of two's complement.
inline constexpr size_t kPickleIntMax = 11;

// LONG1 with the fewest two's complement bytes: every integer outside 32 bits.
uint8_t* PutPickleLong(uint8_t* at, int64_t value);
// The same for an unsigned value of 2^63 or above, which needs a ninth byte for the sign.
uint8_t* PutPickleLongUnsigned(uint8_t* at, uint64_t value);

// Writes `value`, returns the end. REQUIRES: kPickleIntMax bytes of memory at `at`; the bytes
// after the end may be overwritten.
inline uint8_t* PutPickleInt(uint8_t* at, int64_t value) {
  const uint64_t bits = static_cast<uint64_t>(value);
  if (bits <= 0x7fffffff) {
    // BININT1 'K', BININT2 'M' or BININT 'J', chosen without a branch: token ids mix the widths,
    // and a mispredicted branch costs more than the rest of the function.
    const unsigned shift = 8 * ((bits > 0xff) + (bits > 0xffff));
    const uint64_t opcode = (0x4a4d4bU >> shift) & 0xff;
    StoreLittle<uint64_t>(at, bits << 8 | opcode);
    return at + ((0x050302U >> shift) & 0xff);
  }
  if (value < 0 && value >= INT32_MIN) {
    *at = 'J';
    StoreLittle<uint32_t>(at + 1, static_cast<uint32_t>(bits));
    return at + 5;
  }
  return PutPickleLong(at, value);
}

}  // namespace kvcast::internal
