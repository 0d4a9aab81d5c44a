// SPDX-License-Identifier: Apache-2.0
#include "src/transfer/copy_planner.h"

#include <algorithm>
#include <utility>

namespace kvcast::transfer {
namespace {

bool IsContinuedBy(const CopyOp& op, const std::byte* src, const std::byte* dst) {
  return op.rows == 1 && op.src + op.row_bytes == src && op.dst + op.row_bytes == dst;
}

}  // namespace

void CopyBatch::Grow(size_t more) {
  const size_t capacity = std::max(size_ + more, 2 * capacity_);
  auto ops = std::make_unique<CopyOp[]>(capacity);
  std::copy_n(ops_.get(), size_, ops.get());
  ops_ = std::move(ops);
  capacity_ = capacity;
}

void CopyPlanner::Start(CopyDirection direction, const GroupLayout& layout, std::byte* host,
                        std::span<const BlockMove> moves, size_t region_bytes) {
  store_ = direction == CopyDirection::kStore;
  layout_ = &layout;
  block_bytes_ = layout.block_bytes();
  whole_blocks_fit_ = block_bytes_ <= limits_.bytes && layout.parts.size() <= limits_.ops;
  host_ = host;
  region_bytes_ = region_bytes;
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
    if (IsWhole(moves_.front())) {
      store_ ? FillWhole<true>(batch) : FillWhole<false>(batch);
      if (!moves_.empty() && IsWhole(moves_.front())) return false;
      continue;
    }
    const BlockMove& move = moves_.front();
    moves_ = moves_.subspan(1);
    ops_.clear();
    next_op_ = 0;
    WriteMove(move);
  }
}

// Fast path for almost every move: a few instructions per copy.
template <bool kStore>
void CopyPlanner::FillWhole(CopyBatch& batch) {
  const std::span<const BlockPart> parts = layout_->parts;
  while (!moves_.empty() && IsWhole(moves_.front())) {
    const BlockMove& move = moves_.front();
    if (move.bytes > limits_.bytes - batch.bytes_ || parts.size() > limits_.ops - batch.size_) {
      return;
    }
    batch.Reserve(parts.size());
    CopyOp* last = batch.last();
    CopyOp* next = batch.ops_.get() + batch.size_;
    std::byte* host = host_ + move.host_offset;
    for (const BlockPart& part : parts) {
      std::byte* const gpu = part.base + move.block.value * part.block_stride;
      const std::byte* const src = kStore ? gpu : host;
      std::byte* const dst = kStore ? host : gpu;
      const size_t bytes = part.row_bytes * part.rows;
      host += bytes;
      if (part.rows > 1 && part.row_pitch != part.row_bytes) {
        const size_t src_pitch = kStore ? part.row_pitch : part.row_bytes;
        const size_t dst_pitch = kStore ? part.row_bytes : part.row_pitch;
        *next = {src, dst, part.row_bytes, src_pitch, dst_pitch, part.rows};
      } else if (last != nullptr && IsContinuedBy(*last, src, dst) &&
                 !IsBorder(kStore ? dst : src)) {
        last->row_bytes += bytes;
        continue;
      } else {
        *next = {src, dst, bytes, 0, 0, 1};
      }
      last = next++;
    }
    batch.size_ = static_cast<size_t>(next - batch.ops_.get());
    batch.bytes_ += move.bytes;
    moves_ = moves_.subspan(1);
  }
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

// The range may begin and end inside a row of the part.
void CopyPlanner::WritePart(const BlockPart& part, const BlockMove& move, size_t offset,
                            size_t bytes, std::byte* host) {
  std::byte* const block = part.base + move.block.value * part.block_stride;
  size_t row = offset / part.row_bytes;
  if (const size_t into_row = offset % part.row_bytes; into_row != 0) {
    const size_t head = std::min(bytes, part.row_bytes - into_row);
    WriteRows(block + row * part.row_pitch + into_row, 0, host, head, 1);
    host += head;
    bytes -= head;
    ++row;
  }
  const size_t rows = bytes / part.row_bytes;
  if (rows > 0) {
    WriteRows(block + row * part.row_pitch, part.row_pitch, host, part.row_bytes, rows);
  }
  if (const size_t tail = bytes - rows * part.row_bytes; tail > 0) {
    WriteRows(block + (row + rows) * part.row_pitch, 0, host + rows * part.row_bytes, tail, 1);
  }
}

// On the host's side the rows have no gaps.
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
  // A run is cut only if it does not fit into any batch.
  const size_t room = limits_.bytes - batch.bytes_;
  CopyOp* const last = batch.last();
  if (op.row_bytes > room && last != nullptr) return false;
  const size_t bytes = std::min(op.row_bytes, room);
  if (last != nullptr && IsContinuedBy(*last, op.src, op.dst) &&
      !IsBorder(store_ ? op.dst : op.src)) {
    last->row_bytes += bytes;
    batch.bytes_ += bytes;
    return true;
  }
  if (batch.size_ == limits_.ops) return false;
  CopyOp run = op;
  run.row_bytes = bytes;
  batch.Add(run);
  op.src += bytes;
  op.dst += bytes;
  op.row_bytes -= bytes;
  return op.row_bytes == 0;
}

bool CopyPlanner::TakeRows(CopyOp& op, CopyBatch& batch) {
  if (batch.size_ == limits_.ops) return false;
  const size_t room = limits_.bytes - batch.bytes_;
  if (op.bytes() > room && batch.size_ > 0) return false;
  CopyOp rows = op;
  rows.rows = static_cast<uint32_t>(std::min<size_t>(op.rows, room / op.row_bytes));
  batch.Add(rows);
  op.src += rows.rows * op.src_pitch;
  op.dst += rows.rows * op.dst_pitch;
  op.rows -= rows.rows;
  return op.rows == 0;
}

}  // namespace kvcast::transfer
