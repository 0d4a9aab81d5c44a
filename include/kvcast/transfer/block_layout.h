// Block layout: the addresses of the bytes of KV blocks, in a pool on the GPU and in host memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast {

// A part of every block of a pool: `rows` rows of `row_bytes` bytes. Row r of block i starts at
//   base + i * block_stride + r * row_pitch
//
//   block-major pool:              one part, with one row for all bytes of the block
//   layers at a constant distance: one part, with a row per layer (and per K and V); row_pitch is
//                                  the distance
//   layers at other addresses:     one part per layer
struct BlockPart {
  // Borrowed. Device memory if the copy backend is for a device.
  std::byte* base = nullptr;
  size_t block_stride = 0;
  size_t row_bytes = 0;
  size_t row_pitch = 0;  // unused if there is one row
  uint32_t rows = 1;
};

// The blocks of one KV-cache group in the GPU pool. The bytes of a block are the bytes of parts[0],
// row by row, then the bytes of parts[1], and so on.
struct GroupLayout {
  std::vector<BlockPart> parts;
  int64_t num_blocks = 0;

  size_t block_bytes() const;
};
// Error: kInvalidArgument; the message names the field. Causes: no parts, no blocks, a null base,
// empty rows, or rows or blocks of one part that overlap.
Status ValidateLayout(const GroupLayout& layout);

// Host memory, divided into slots of equal size. Slot s starts at base + s * slot_bytes. A chunk
// contains TransferGroupConfig::blocks_per_chunk blocks of one group, one after the other. It
// occupies ceil(blocks_per_chunk * block_bytes / slot_bytes) slots, which need not be adjacent. The
// remaining bytes of the last slot are unused.
struct HostLayout {
  std::byte* base = nullptr;  // borrowed
  size_t bytes = 0;
  size_t slot_bytes = 0;
  // The device registers the host memory in regions of this number of bytes, counted from base. No
  // copy crosses the border of two regions. A multiple of slot_bytes; 0: one region.
  size_t region_bytes = 0;
};
// Returns the largest multiple of slot_bytes that is at most `max_bytes`, but at least slot_bytes.
// REQUIRES: slot_bytes > 0.
size_t RegionBytes(size_t slot_bytes, size_t max_bytes);
// The regions, in order. The last region may be shorter.
std::vector<std::span<std::byte>> Regions(const HostLayout& host);

}  // namespace kvcast
