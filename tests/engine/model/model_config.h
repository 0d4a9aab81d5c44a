// Random cache configurations for the model test.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "kvcast/spec/cache_spec.h"

namespace kvcast::naive {

using Random = std::mt19937_64;

// Uniform in [low, high].
int64_t Pick(Random& random, int64_t low, int64_t high);
// True with probability 1/`n`.
bool OneIn(Random& random, int64_t n);

// Any mix of groups and options. The configuration may be invalid.
CacheConfig RandomConfig(Random& random);
// One line of text.
std::string Describe(const CacheConfig& config);

}  // namespace kvcast::naive
