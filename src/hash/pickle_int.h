// The pickle opcodes of integers, as CPython's C pickler chooses them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvcast/core/ids.h"

namespace kvcast::internal {

// Opcode, length byte, 9 bytes of two's complement.
inline constexpr size_t kPickleIntMax = 11;

// Each function writes at `at` and returns the end. REQUIRES: kPickleIntMax bytes of memory per
// integer. Bytes after the end may be overwritten.
uint8_t* PutPickleInts(uint8_t* at, std::span<const TokenId> values);
uint8_t* PutPickleUnsigned(uint8_t* at, uint64_t value);

}  // namespace kvcast::internal
