// The head of one CBOR item: major type and argument in the fewest bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/hash/store.h"

namespace kvcast::internal {

inline constexpr size_t kCborHeadMax = 9;

// `major` is the major type in its place, the top three bits. Returns the end. REQUIRES:
// kCborHeadMax bytes of memory at `at`; the bytes after the end may be overwritten.
inline uint8_t* PutCborHead(uint8_t* at, uint8_t major, uint64_t argument) {
  if (argument <= 0xffffffff) {
    // The width is chosen without a branch: token ids mix the widths, and a mispredicted branch
    // costs more than the rest of the function.
    const unsigned width = (argument > 23) + (argument > 0xff) + (argument > 0xffff);
    const uint64_t initial = width == 0 ? argument : 23 + width;
    *at = static_cast<uint8_t>(major | initial);
    StoreBig<uint64_t>(at + 1, argument << ((0x20303800U >> (8 * width)) & 0xff));
    return at + ((0x05030201U >> (8 * width)) & 0xff);
  }
  *at = major | 27;
  StoreBig<uint64_t>(at + 1, argument);
  return at + 9;
}

// Major type 0, or 1 for negative integers.
inline uint8_t* PutCborInt(uint8_t* at, int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value < 0) return PutCborHead(at, 1 << 5, ~bits);
  return PutCborHead(at, 0, bits);
}

}  // namespace kvcast::internal
