// Texts that an attacker would choose against a hash table without a secret seed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/clock.h"

namespace kvcast::testing {

// libstdc++ hashes texts by MurmurHash2 with a fixed seed. All returned texts have the same hash.
inline std::vector<std::string> CollidingTexts(size_t count) {
  constexpr uint64_t kMul = (uint64_t{0xc6a4a793} << 32) + 0x5bd1e995;
  uint64_t inverse = kMul;  // the inverse of kMul modulo 2^64, by Newton's iteration
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMul * inverse;
  const auto shift_mix = [](uint64_t v) { return v ^ (v >> 47); };  // its own inverse
  const auto as_text = [](uint64_t v) { return std::string(reinterpret_cast<char*>(&v), 8); };
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t state = uint64_t{0xc70f6907} ^ (16 * kMul);
    state = (state ^ (shift_mix(i * kMul) * kMul)) * kMul;
    const uint64_t second = shift_mix((state ^ 42) * inverse) * inverse;
    texts.push_back(as_text(i) + as_text(second));
  }
  return texts;
}

// Texts of the same length that do not collide.
inline std::vector<std::string> PlainTexts(size_t count) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < count; ++i) texts.push_back("plain-" + std::to_string(1000000000 + i));
  return texts;
}

// Returns the CPU time that `work` takes on this thread, in nanoseconds.
template <typename Work>
int64_t ThreadNsOf(Work work) {
  const int64_t begin = ThreadCpuNs();
  work();
  return ThreadCpuNs() - begin;
}

}  // namespace kvcast::testing
