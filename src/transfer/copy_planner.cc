// SPDX-License-Identifier: Apache-2.0
#include "src/transfer/copy_planner.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "src/transfer/copy_emitter.h"

namespace kvcast::transfer {
namespace {

Status InvalidMove(const BlockMove& move, const char* problem) {
  return {StatusCode::kInvalidArgument,
          "block " + std::to_string(move.block.value) + ": " + problem};
}

bool ByHost(const BlockMove& a, const BlockMove& b) { return a.host_offset < b.host_offset; }
bool ByBlock(const BlockMove& a, const BlockMove& b) {
  return std::tie(a.block, a.offset) < std::tie(b.block, b.offset);
}

// Puts the moves in order of their destinations, so that neighbours stand side by side.
void Sort(CopyDirection direction, std::vector<BlockMove>& moves) {
  const auto order = direction == CopyDirection::kStore ? ByHost : ByBlock;
  if (!std::is_sorted(moves.begin(), moves.end(), order)) {
    std::sort(moves.begin(), moves.end(), order);
  }
}

// REQUIRES: a stands before b in order of destinations.
bool WriteTheSame(CopyDirection direction, const BlockMove& a, const BlockMove& b) {
  if (direction == CopyDirection::kStore) return b.host_offset < a.host_offset + a.bytes;
  return a.block == b.block && b.offset < a.offset + a.bytes;
}

// The part of a block that a move is about, cut where its rows begin and end.
void EmitPart(const BlockPart& part, const BlockMove& move, size_t offset, size_t bytes,
              std::byte* host, CopyEmitter& emitter) {
  std::byte* const block = part.base + move.block.value * part.block_stride;
  size_t row = offset / part.row_bytes;
  if (const size_t into_row = offset % part.row_bytes; into_row != 0) {
    const size_t rest = std::min(bytes, part.row_bytes - into_row);
    emitter.Run(block + row * part.row_pitch + into_row, host, rest);
    host += rest;
    bytes -= rest;
    ++row;
  }
  const size_t rows = bytes / part.row_bytes;
  if (rows > 0) {
    emitter.Rows(block + row * part.row_pitch, part.row_pitch, host, part.row_bytes,
                 static_cast<uint32_t>(rows));
  }
  if (const size_t rest = bytes - rows * part.row_bytes; rest > 0) {
    emitter.Run(block + (row + rows) * part.row_pitch, host + rows * part.row_bytes, rest);
  }
}

void EmitMove(const GroupLayout& layout, const BlockMove& move, std::byte* host,
              CopyEmitter& emitter) {
  size_t skip = move.offset;
  size_t left = move.bytes;
  for (const BlockPart& part : layout.parts) {
    if (left == 0) return;
    const size_t part_bytes = part.row_bytes * part.rows;
    if (skip >= part_bytes) {
      skip -= part_bytes;
      continue;
    }
    const size_t bytes = std::min(left, part_bytes - skip);
    EmitPart(part, move, skip, bytes, host, emitter);
    host += bytes;
    left -= bytes;
    skip = 0;
  }
}

}  // namespace

void CopyPlan::Clear() {
  ops.clear();
  batches.clear();
}

Status CopyPlanner::Plan(CopyDirection direction, const GroupLayout& layout,
                         std::vector<BlockMove>& moves, CopyPlan& plan) const {
  const size_t block_bytes = layout.block_bytes();
  for (const BlockMove& move : moves) {
    if (move.block.value >= static_cast<uint64_t>(layout.num_blocks)) {
      return InvalidMove(move, "is not in the pool");
    }
    if (move.offset > block_bytes || move.bytes > block_bytes - move.offset) {
      return InvalidMove(move, "has fewer bytes");
    }
    if (move.host_offset > host_.bytes || move.bytes > host_.bytes - move.host_offset) {
      return InvalidMove(move, "its slot is not in host memory");
    }
  }
  Sort(direction, moves);
  for (size_t i = 1; i < moves.size(); ++i) {
    if (WriteTheSame(direction, moves[i - 1], moves[i])) {
      return InvalidMove(moves[i], "its destination is written twice");
    }
  }
  CopyEmitter emitter(direction, limits_, plan);
  for (const BlockMove& move : moves) {
    EmitMove(layout, move, host_.base + move.host_offset, emitter);
  }
  return {};
}

}  // namespace kvcast::transfer
