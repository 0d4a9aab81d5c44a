// Random choices of the engine tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

namespace kvcast::engine {

using Random = std::mt19937_64;

// Uniform in [low, high].
inline int64_t Pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

}  // namespace kvcast::engine
