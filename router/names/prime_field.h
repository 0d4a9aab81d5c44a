// Arithmetic modulo p = 2^64 - 59, the largest prime below 2^64.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvcast::router {

using Wide = unsigned __int128;

inline constexpr uint64_t kFieldGap = 59;
inline constexpr uint64_t kFieldPrime = ~uint64_t{0} - kFieldGap + 1;

// Returns a 64-bit number that is equal to `value` modulo p. It may be p or larger.
inline uint64_t Fold(Wide value) {
  const Wide once =
      Wide{static_cast<uint64_t>(value >> 64)} * kFieldGap + static_cast<uint64_t>(value);
  const uint64_t carried = static_cast<uint64_t>(once >> 64) * kFieldGap;
  const uint64_t sum = static_cast<uint64_t>(once) + carried;
  return sum + (sum < carried ? kFieldGap : 0);
}

// Returns `value` modulo p, below p.
inline uint64_t Canonical(uint64_t value) {
  return value >= kFieldPrime ? value - kFieldPrime : value;
}

inline uint64_t MultiplyMod(uint64_t a, uint64_t b) { return Canonical(Fold(Wide{a} * b)); }

inline uint64_t AddMod(uint64_t a, uint64_t b) { return Canonical(Fold(Wide{a} + b)); }

inline uint64_t PowerMod(uint64_t base, uint64_t exponent) {
  uint64_t power = 1;
  for (; exponent != 0; exponent >>= 1, base = MultiplyMod(base, base)) {
    if (exponent % 2 != 0) power = MultiplyMod(power, base);
  }
  return power;
}

// REQUIRES: value is not 0 modulo p.
inline uint64_t InverseMod(uint64_t value) { return PowerMod(value, kFieldPrime - 2); }

}  // namespace kvcast::router
