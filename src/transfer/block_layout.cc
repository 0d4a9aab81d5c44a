// SPDX-License-Identifier: Apache-2.0
#include "kvcast/transfer/block_layout.h"

#include <algorithm>
#include <string>

namespace kvcast {
namespace {

// Checks that rows do not overlap and that blocks do not overlap. Two layouts are valid. Either
// each block has its own range of memory, or the blocks are interleaved: row i of one block is
// followed by row i of the next block.
const char* ProblemOf(const BlockPart& part, int64_t num_blocks) {
  if (part.base == nullptr) return "base: must not be null";
  if (part.rows == 0) return "rows: must be positive";
  if (part.row_bytes == 0) return "row_bytes: must be positive";
  if (part.rows > 1 && part.row_pitch < part.row_bytes) return "row_pitch: rows overlap";
  if (num_blocks == 1) return nullptr;
  if (part.block_stride < part.row_bytes) return "block_stride: blocks overlap";
  if (part.rows == 1) return nullptr;
  const size_t block_span = (part.rows - 1) * part.row_pitch + part.row_bytes;
  const size_t row_of_all_blocks =
      static_cast<size_t>(num_blocks - 1) * part.block_stride + part.row_bytes;
  const bool apart = part.block_stride >= block_span || part.row_pitch >= row_of_all_blocks;
  return apart ? nullptr : "block_stride: blocks overlap";
}

}  // namespace

size_t GroupLayout::block_bytes() const {
  size_t bytes = 0;
  for (const BlockPart& part : parts) bytes += part.row_bytes * part.rows;
  return bytes;
}

Status ValidateLayout(const GroupLayout& layout) {
  if (layout.parts.empty()) return {StatusCode::kInvalidArgument, "parts: is empty"};
  if (layout.num_blocks < 1) {
    return {StatusCode::kInvalidArgument, "num_blocks: must be positive"};
  }
  for (size_t i = 0; i < layout.parts.size(); ++i) {
    const char* problem = ProblemOf(layout.parts[i], layout.num_blocks);
    if (problem == nullptr) continue;
    return {StatusCode::kInvalidArgument, "parts[" + std::to_string(i) + "]." + problem};
  }
  return {};
}

size_t RegionBytes(size_t slot_bytes, size_t max_bytes) {
  return std::max<size_t>(1, max_bytes / slot_bytes) * slot_bytes;
}

std::vector<std::span<std::byte>> Regions(const HostLayout& host) {
  std::vector<std::span<std::byte>> regions;
  const size_t region = host.region_bytes == 0 ? host.bytes : host.region_bytes;
  for (size_t offset = 0; offset < host.bytes; offset += region) {
    regions.emplace_back(host.base + offset, std::min(region, host.bytes - offset));
  }
  return regions;
}

}  // namespace kvcast
