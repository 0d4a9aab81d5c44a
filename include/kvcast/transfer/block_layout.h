// Where the bytes of KV blocks are: in a pool on the GPU, and in host memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast {

// A part of every block of a pool: `rows` rows of `row_bytes`. Row r of block i starts at
//   base + i * block_stride + r * row_pitch
//
//   block-major pool:              one part, one row of all the block's bytes
//   layers at a constant distance: one part, a row per layer (and K and V), row_pitch between them
//   layers anywhere:               one part per layer
struct BlockPart {
  std::byte* base = nullptr;  // borrowed; device memory if the copy backend is a device's
  size_t block_stride = 0;
  size_t row_bytes = 0;
  size_t row_pitch = 0;  // means nothing if there is one row
  uint32_t rows = 1;
};

// The blocks of one KV-cache group in the GPU pool. A block's bytes are those of parts[0], row by
// row, then those of parts[1], and so on.
struct GroupLayout {
  std::vector<BlockPart> parts;
  int64_t num_blocks = 0;

  size_t block_bytes() const;
};
// Not ok, naming the field: no parts, empty rows, rows or blocks that overlap within a part.
Status ValidateLayout(const GroupLayout& layout);

// Host memory, cut into slots of equal size: slot s is at base + s * slot_bytes. A chunk takes
// `slots_per_chunk` slots, which need not be neighbours, and holds `blocks_per_chunk` blocks, one
// behind the other; what is left of its last slot stays unused.
struct HostLayout {
  std::byte* base = nullptr;  // borrowed
  size_t bytes = 0;
  size_t slot_bytes = 0;
  // Pieces of so many bytes, from base on, that are registered with the device one by one: no copy
  // goes from one into the next. Whole slots; 0: all is one piece.
  size_t region_bytes = 0;
};
// The largest region of whole slots that has at most `most` bytes, but one slot at least.
// REQUIRES: slot_bytes > 0.
size_t RegionBytes(size_t slot_bytes, size_t most);
// The pieces, in order; the last one may be shorter.
std::vector<std::span<std::byte>> Regions(const HostLayout& host);

}  // namespace kvcast
