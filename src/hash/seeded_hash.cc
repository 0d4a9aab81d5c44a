// SPDX-License-Identifier: Apache-2.0
#include "src/hash/seeded_hash.h"

#include <xxhash.h>

#include <random>

namespace kvcast::router {

// A seed decides the positions of entries in hash tables, or is a secret or an id. No answer of a
// query depends on its value, so tests need not inject it.
uint64_t NewSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) ^ device();
}

uint64_t ProcessSeed() {
  static const uint64_t seed = NewSeed();
  return seed;
}

size_t SeededHash::operator()(std::string_view text) const {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

size_t SeededHash::operator()(const BlockHash& hash) const {
  if (!hash.is_bytes()) return (*this)(hash.integer());
  const auto bytes = hash.bytes();
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

TextHash128 HashText128(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(text.data(), text.size(), ProcessSeed());
  return {hash.low64, hash.high64};
}

}  // namespace kvcast::router
