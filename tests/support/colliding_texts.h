// Texts of one value of std::hash, for tests of hash tables whose keys come from the network.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace kvcast::testing {

// libstdc++ hashes texts with MurmurHash64A and a constant seed. For each first half of a text of
// 16 bytes, there is a second half that leads to the same state. The second halves are any bytes.
inline std::vector<std::string> CollidingTexts(size_t count) {
  constexpr uint64_t kFactor = (uint64_t{0xc6a4a793} << 32) + 0x5bd1e995;
  constexpr uint64_t kSeed = 0xc70f6907;
  uint64_t inverse = kFactor;  // of kFactor modulo 2^64
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;
  const auto mix = [](uint64_t value) { return value ^ value >> 47; };
  const auto absorbed = [&](uint64_t word) { return mix(word * kFactor) * kFactor; };
  constexpr uint64_t kState = 0x0123456789abcdef;  // of all texts, before the final mix
  const uint64_t start = kSeed ^ (2 * sizeof(uint64_t) * kFactor);
  std::vector<std::string> texts;
  for (uint64_t first = 0x2020202020202020; texts.size() < count; ++first) {
    const uint64_t after = (start ^ absorbed(first)) * kFactor;
    const uint64_t second = mix((kState * inverse ^ after) * inverse) * inverse;
    std::string text(2 * sizeof(uint64_t), '\0');
    std::memcpy(text.data(), &first, sizeof(first));
    std::memcpy(text.data() + sizeof(first), &second, sizeof(second));
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace kvcast::testing
