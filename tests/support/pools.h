// A GPU pool and host memory of plain bytes; every byte encodes its origin.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvcast/transfer/block_layout.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast::testing {

inline constexpr auto kLoad = CopyDirection::kLoad;
inline constexpr auto kStore = CopyDirection::kStore;

// Returns a byte that depends on all bits of its `offset`, so that a misplaced byte is
// visible.
inline std::byte ByteOf(uint64_t seed, uint64_t offset) {
  uint64_t x = seed * 0x9E3779B97F4A7C15u + offset;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 29;
  return static_cast<std::byte>(x);
}

inline void FillWith(std::vector<std::byte>& memory, uint64_t seed) {
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = ByteOf(seed, i);
}

// Returns the address of byte `offset` of a block, by the definition of a layout.
inline std::byte* AddressOf(const GroupLayout& layout, size_t block, size_t offset) {
  for (const BlockPart& part : layout.parts) {
    const size_t bytes = part.row_bytes * part.rows;
    if (offset < bytes) {
      return part.base + block * part.block_stride + offset / part.row_bytes * part.row_pitch +
             offset % part.row_bytes;
    }
    offset -= bytes;
  }
  return nullptr;
}

// Returns a block-major pool of `blocks` blocks in `memory`.
inline GroupLayout BlockMajor(std::vector<std::byte>& memory, int64_t blocks, size_t block_bytes) {
  memory.resize(static_cast<size_t>(blocks) * block_bytes);
  return {{{.base = memory.data(), .block_stride = block_bytes, .row_bytes = block_bytes}}, blocks};
}

// Returns a layer-major pool in `memory`: each layer has one row of every block. The rows of a
// block lie at a constant distance.
inline GroupLayout LayerMajor(std::vector<std::byte>& memory, int64_t blocks, uint32_t layers,
                              size_t row_bytes) {
  const size_t pitch = static_cast<size_t>(blocks) * row_bytes;
  memory.resize(pitch * layers);
  return {{{memory.data(), row_bytes, row_bytes, pitch, layers}}, blocks};
}

}  // namespace kvcast::testing
