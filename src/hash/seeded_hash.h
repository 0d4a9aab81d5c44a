// SeededHash: hashes block hashes for hash tables, with a secret seed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvcast/core/block_hash_value.h"

namespace kvcast::router {

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
};

}  // namespace kvcast::router
