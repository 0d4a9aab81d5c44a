// SPDX-License-Identifier: Apache-2.0
#include "src/transfer/copy_planner.h"

#include <algorithm>

namespace kvcast::transfer {
namespace {

bool IsContinuedBy(const CopyOp& op, const std::byte* src, const std::byte* dst) {
  return op.rows == 1 && op.src + op.row_bytes == src && op.dst + op.row_bytes == dst;
}

}  // namespace

void CopyPlanner::Start(CopyDirection direction, const GroupLayout& layout, std::byte* host,
                        std::span<const BlockMove> moves) {
  store_ = direction == CopyDirection::kStore;
  layout_ = &layout;
  block_bytes_ = layout.block_bytes();
  host_ = host;
  moves_ = moves;
  ops_.clear();
  next_op_ = 0;
}

bool CopyPlanner::Fill(CopyBatch& batch) {
  for (;;) {
    for (; next_op_ < ops_.size(); ++next_op_) {
      if (!Take(ops_[next_op_], batch)) return false;
    }
    if (moves_.empty()) return true;
    const BlockMove& move = moves_.front();
    const bool fits_whole = move.bytes == block_bytes_ && block_bytes_ <= limits_.bytes &&
                            layout_->parts.size() <= limits_.ops;
    if (fits_whole) {
      if (!FillWhole(move, batch)) return false;
      moves_ = moves_.subspan(1);
      continue;
    }
    moves_ = moves_.subspan(1);
    ops_.clear();
    next_op_ = 0;
    WriteMove(move);
  }
}

// What almost every move is, in a few instructions a copy: a whole block of which a batch has room
// for several.
bool CopyPlanner::FillWhole(const BlockMove& move, CopyBatch& batch) {
  if (move.bytes > limits_.bytes - batch.bytes ||
      layout_->parts.size() > limits_.ops - batch.ops.size()) {
    return false;
  }
  std::byte* host = host_ + move.host_offset;
  for (const BlockPart& part : layout_->parts) {
    std::byte* const gpu = part.base + move.block.value * part.block_stride;
    const std::byte* const src = store_ ? gpu : host;
    std::byte* const dst = store_ ? host : gpu;
    const size_t bytes = part.row_bytes * part.rows;
    host += bytes;
    if (part.rows > 1 && part.row_pitch != part.row_bytes) {
      const size_t src_pitch = store_ ? part.row_pitch : part.row_bytes;
      const size_t dst_pitch = store_ ? part.row_bytes : part.row_pitch;
      batch.ops.emplace_back(src, dst, part.row_bytes, src_pitch, dst_pitch, part.rows);
    } else if (!batch.ops.empty() && IsContinuedBy(batch.ops.back(), src, dst)) {
      batch.ops.back().row_bytes += bytes;
    } else {
      batch.ops.emplace_back(src, dst, bytes, size_t{0}, size_t{0}, 1u);
    }
  }
  batch.bytes += move.bytes;
  return true;
}

void CopyPlanner::WriteMove(const BlockMove& move) {
  std::byte* host = host_ + move.host_offset;
  size_t skip = move.offset;
  size_t left = move.bytes;
  for (const BlockPart& part : layout_->parts) {
    const size_t part_bytes = part.row_bytes * part.rows;
    if (skip >= part_bytes) {
      skip -= part_bytes;
      continue;
    }
    const size_t bytes = std::min(left, part_bytes - skip);
    if (bytes == 0) return;
    WritePart(part, move, skip, bytes, host);
    host += bytes;
    left -= bytes;
    skip = 0;
  }
}

// A stretch of a part begins and ends within rows.
void CopyPlanner::WritePart(const BlockPart& part, const BlockMove& move, size_t offset,
                            size_t bytes, std::byte* host) {
  std::byte* const block = part.base + move.block.value * part.block_stride;
  size_t row = offset / part.row_bytes;
  if (const size_t into_row = offset % part.row_bytes; into_row != 0) {
    const size_t rest = std::min(bytes, part.row_bytes - into_row);
    WriteRows(block + row * part.row_pitch + into_row, 0, host, rest, 1);
    host += rest;
    bytes -= rest;
    ++row;
  }
  const size_t rows = bytes / part.row_bytes;
  if (rows > 0) {
    WriteRows(block + row * part.row_pitch, part.row_pitch, host, part.row_bytes, rows);
  }
  if (const size_t rest = bytes - rows * part.row_bytes; rest > 0) {
    WriteRows(block + (row + rows) * part.row_pitch, 0, host + rows * part.row_bytes, rest, 1);
  }
}

// Rows have no gaps on the host's side.
void CopyPlanner::WriteRows(std::byte* gpu, size_t gpu_pitch, std::byte* host, size_t row_bytes,
                            size_t rows) {
  if (rows > 1 && gpu_pitch == row_bytes) {
    row_bytes *= rows;
    rows = 1;
  }
  if (rows > 1 && row_bytes > limits_.bytes) {
    for (size_t row = 0; row < rows; ++row) {
      WriteRows(gpu + row * gpu_pitch, 0, host + row * row_bytes, row_bytes, 1);
    }
    return;
  }
  CopyOp& op = ops_.emplace_back();
  op.src = store_ ? gpu : host;
  op.dst = store_ ? host : gpu;
  op.row_bytes = row_bytes;
  op.src_pitch = store_ ? gpu_pitch : row_bytes;
  op.dst_pitch = store_ ? row_bytes : gpu_pitch;
  op.rows = static_cast<uint32_t>(rows);
}

bool CopyPlanner::Take(CopyOp& op, CopyBatch& batch) {
  return op.rows == 1 ? TakeRun(op, batch) : TakeRows(op, batch);
}

bool CopyPlanner::TakeRun(CopyOp& op, CopyBatch& batch) {
  // A run is cut only where no batch could hold it.
  const size_t room = limits_.bytes - batch.bytes;
  if (op.row_bytes > room && !batch.ops.empty()) return false;
  const size_t bytes = std::min(op.row_bytes, room);
  if (!batch.ops.empty() && IsContinuedBy(batch.ops.back(), op.src, op.dst)) {
    batch.ops.back().row_bytes += bytes;
    batch.bytes += bytes;
    return true;
  }
  if (batch.ops.size() == limits_.ops) return false;
  batch.ops.push_back(op);
  batch.ops.back().row_bytes = bytes;
  batch.bytes += bytes;
  op.src += bytes;
  op.dst += bytes;
  op.row_bytes -= bytes;
  return op.row_bytes == 0;
}

bool CopyPlanner::TakeRows(CopyOp& op, CopyBatch& batch) {
  if (batch.ops.size() == limits_.ops) return false;
  const size_t room = limits_.bytes - batch.bytes;
  if (op.bytes() > room && !batch.ops.empty()) return false;
  CopyOp rows = op;
  rows.rows = static_cast<uint32_t>(std::min<size_t>(op.rows, room / op.row_bytes));
  batch.ops.push_back(rows);
  batch.bytes += rows.bytes();
  op.src += rows.rows * op.src_pitch;
  op.dst += rows.rows * op.dst_pitch;
  op.rows -= rows.rows;
  return op.rows == 0;
}

}  // namespace kvcast::transfer
