// SeededHash: hashes block hashes and texts for hash tables, with a secret seed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "kvcast/core/block_hash_value.h"

namespace kvcast::router {

// A seed that differs between calls.
uint64_t NewSeed();
// A seed that differs between processes.
uint64_t ProcessSeed();

struct SeededHash {
  uint64_t seed = 0;

  size_t operator()(uint64_t value) const {
    // One 64x64 multiplication, folded to 64 bits. The odd constant makes a zero seed harmless.
    const auto product =
        static_cast<unsigned __int128>(value ^ seed) * ((seed << 1) ^ uint64_t{0x9E3779B97F4A7C15});
    return static_cast<size_t>(static_cast<uint64_t>(product) ^
                               static_cast<uint64_t>(product >> 64));
  }
  size_t operator()(const BlockHash& hash) const;
  size_t operator()(std::string_view text) const;
};

// For tables whose keys are numbers from the network. std::hash returns the number itself, so
// clients could choose numbers of one bucket.
struct SeededNumberHash {
  size_t operator()(uint64_t value) const { return SeededHash{ProcessSeed()}(value); }
};

// For tables whose keys are texts from the network. std::hash has the same seed in every process.
struct SeededTextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return SeededHash{ProcessSeed()}(text); }
};

// Two texts of the same process have equal hashes only if they are equal, or with a probability of
// about 2^-128.
using TextHash128 = std::pair<uint64_t, uint64_t>;
TextHash128 HashText128(std::string_view text);

}  // namespace kvcast::router
