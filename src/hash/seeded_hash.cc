// SPDX-License-Identifier: Apache-2.0
#include "src/hash/seeded_hash.h"

#include <xxhash.h>

#include <random>

namespace kvcast::router {

uint64_t ProcessSeed() {
  // The seed decides only the positions of entries, never the answer of a query, so it need not be
  // injected.
  static const uint64_t seed = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) ^ device();
  }();
  return seed;
}

size_t SeededHash::operator()(const BlockHash& hash) const {
  if (!hash.is_bytes()) return (*this)(hash.integer());
  const auto bytes = hash.bytes();
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace kvcast::router
