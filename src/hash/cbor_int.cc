// SPDX-License-Identifier: Apache-2.0
#include "src/hash/cbor_int.h"

#include "src/hash/store.h"

namespace kvcast::internal {
namespace {

constexpr uint64_t kNarrowMax = 0xffffffff;
constexpr uint8_t kEightBytes = 27;

// The three tables are indexed by the width of the argument. Width 0: the argument is part of the
// initial byte. Widths 1 to 3: the argument has 1, 2 or 4 bytes after the initial byte. kInitial:
// the initial byte without the major type, shifted left by the bits of the argument. kShift: moves
// the initial byte and the argument to the top of 64 bits.
constexpr uint64_t kInitial[] = {0, 24 << 8, 25 << 16, 26ULL << 32};
constexpr uint8_t kShift[] = {56, 48, 40, 24};
constexpr uint8_t kHeadSize[] = {1, 2, 3, 5};

inline uint8_t* PutNarrow(uint8_t* at, CborMajor major, uint32_t argument) {
  // The width is chosen without a branch: token ids have mixed widths, and a mispredicted branch
  // costs more than the rest of the function.
  const unsigned width = (argument > 23) + (argument > 0xff) + (argument > 0xffff);
  const uint64_t head = (kInitial[width] + argument) << kShift[width];
  StoreBig<uint64_t>(at, head | static_cast<uint64_t>(major) << 56);
  return at + kHeadSize[width];
}

}  // namespace

uint8_t* PutCborHead(uint8_t* at, CborMajor major, uint64_t argument) {
  if (argument <= kNarrowMax) return PutNarrow(at, major, static_cast<uint32_t>(argument));
  *at = static_cast<uint8_t>(major | kEightBytes);
  StoreBig<uint64_t>(at + 1, argument);
  return at + kMaxCborHeadBytes;
}

uint8_t* PutCborInts(uint8_t* at, std::span<const TokenId> values) {
  for (const TokenId value : values) {
    const uint64_t bits = static_cast<uint64_t>(value);
    if (bits <= kNarrowMax) {
      at = PutNarrow(at, kCborUnsigned, static_cast<uint32_t>(bits));
    } else if (value < 0) {
      at = PutCborHead(at, kCborNegative, ~bits);
    } else {
      at = PutCborHead(at, kCborUnsigned, bits);
    }
  }
  return at;
}

}  // namespace kvcast::internal
