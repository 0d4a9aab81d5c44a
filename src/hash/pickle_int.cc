// SPDX-License-Identifier: Apache-2.0
#include "src/hash/pickle_int.h"

#include <bit>

namespace kvcast::internal {
namespace {

constexpr uint8_t kLong1 = 0x8a;

}  // namespace

uint8_t* PutPickleLong(uint8_t* at, int64_t value) {
  const uint64_t bits = static_cast<uint64_t>(value);
  const int magnitude_bits = 64 - std::countl_zero(value < 0 ? ~bits : bits);
  const int bytes = magnitude_bits / 8 + 1;
  at[0] = kLong1;
  at[1] = static_cast<uint8_t>(bytes);
  StoreLittle<uint64_t>(at + 2, bits);
  return at + 2 + bytes;
}

uint8_t* PutPickleLongUnsigned(uint8_t* at, uint64_t value) {
  at[0] = kLong1;
  at[1] = 9;
  StoreLittle<uint64_t>(at + 2, value);
  at[10] = 0;
  return at + 11;
}

}  // namespace kvcast::internal
