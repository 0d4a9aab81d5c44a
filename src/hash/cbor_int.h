// Heads of CBOR items: major type and argument in the fewest bytes. An integer is a head without
// content.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvcast/core/ids.h"

namespace kvcast::internal {

inline constexpr size_t kMaxCborHeadBytes = 9;

// The major types, shifted to the top three bits of the initial byte.
enum CborMajor : uint8_t {
  kCborUnsigned = 0,
  kCborNegative = 1 << 5,
  kCborBytes = 2 << 5,
  kCborText = 3 << 5,
  kCborArray = 4 << 5,
};

// Each function writes at `at` and returns the end. REQUIRES: kMaxCborHeadBytes bytes of
// writable memory per head. Bytes after the end may be overwritten.
uint8_t* PutCborHead(uint8_t* at, CborMajor major, uint64_t argument);
uint8_t* PutCborInts(uint8_t* at, std::span<const TokenId> values);

}  // namespace kvcast::internal
