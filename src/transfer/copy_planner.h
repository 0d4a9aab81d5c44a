// CopyPlanner: turns moves of blocks into few, large copies, one batch at a time.
//
// A plan of a whole job would be larger than the CPU caches, and it would delay the first copy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/transfer/block_layout.h"
#include "kvcast/transfer/copy_backend.h"

namespace kvcast::transfer {

// Bytes [offset, offset + bytes) of a GPU block, and their position in host memory.
struct BlockMove {
  BlockId block;
  size_t offset = 0;
  size_t bytes = 0;
  size_t host_offset = 0;
};

// Sorts moves by their sources, so that moves from adjacent memory are adjacent in the list. The
// order makes reads faster, because a read waits for memory. The order of the writes does not
// matter. Reuse the object to keep its memory.
class MoveSorter {
 public:
  // Checks the moves, and sorts them. Not ok, kInvalidArgument: a move is out of bounds.
  Status Prepare(CopyDirection direction, const GroupLayout& layout, const HostLayout& host,
                 std::span<BlockMove> moves);

 private:
  struct Key {
    uint64_t source;
    uint32_t move;
  };
  void Sort(std::span<BlockMove> moves);

  std::vector<Key> keys_;
  std::vector<Key> other_keys_;
  std::vector<BlockMove> sorted_;
};

struct BatchLimits {
  size_t bytes = size_t{4} << 20;
  size_t ops = 512;
};

// The copies of one batch. Reuse the object to keep its memory.
class CopyBatch {
 public:
  std::span<const CopyOp> ops() const { return {ops_.get(), size_}; }
  size_t size() const { return size_; }
  size_t bytes() const { return bytes_; }

  void Clear() {
    size_ = 0;
    bytes_ = 0;
  }

 private:
  friend class CopyPlanner;

  // Makes room for `more` further copies.
  void Reserve(size_t more) {
    if (size_ + more > capacity_) Grow(more);
  }
  void Grow(size_t more);
  CopyOp* last() { return size_ == 0 ? nullptr : &ops_[size_ - 1]; }
  void Add(const CopyOp& op) {
    Reserve(1);
    ops_[size_++] = op;
    bytes_ += op.bytes();
  }

  std::unique_ptr<CopyOp[]> ops_;
  size_t capacity_ = 0;
  size_t size_ = 0;
  size_t bytes_ = 0;
};

// Writes the copies of one group's moves into batches. Moves that are adjacent in the source and in
// the destination become one copy.
class CopyPlanner {
 public:
  explicit CopyPlanner(const BatchLimits& limits) : limits_(limits) {}

  // REQUIRES: MoveSorter::Prepare has sorted `moves`, and the planning of the previous group has
  // ended. `layout` and `moves` must outlive the planning. If `region_bytes` is not 0, no copy
  // crosses a multiple of this size, counted from `host`. The moves must not cross such a multiple
  // either.
  void Start(CopyDirection direction, const GroupLayout& layout, std::byte* host,
             std::span<const BlockMove> moves, size_t region_bytes = 0);
  // Adds copies to the batch while there is room. True: all moves are written. False: the batch is
  // full.
  bool Fill(CopyBatch& batch);

 private:
  bool IsWhole(const BlockMove& move) const {
    return move.bytes == block_bytes_ && whole_blocks_fit_;
  }
  // Writes moves of whole blocks while there are such moves and there is room.
  template <bool kStore>
  void FillWhole(CopyBatch& batch);
  void WriteMove(const BlockMove& move);
  // True if a copy must end before this address in host memory.
  bool IsBorder(const std::byte* host) const {
    return region_bytes_ != 0 && static_cast<size_t>(host - host_) % region_bytes_ == 0;
  }
  void WritePart(const BlockPart& part, const BlockMove& move, size_t offset, size_t bytes,
                 std::byte* host);
  void WriteRows(std::byte* gpu, size_t gpu_pitch, std::byte* host, size_t row_bytes, size_t rows);
  // False: there is no room.
  bool Take(CopyOp& op, CopyBatch& batch);
  bool TakeRun(CopyOp& op, CopyBatch& batch);
  bool TakeRows(CopyOp& op, CopyBatch& batch);

  const BatchLimits limits_;
  bool store_ = false;
  const GroupLayout* layout_ = nullptr;
  size_t block_bytes_ = 0;
  bool whole_blocks_fit_ = false;  // one whole block fits into an empty batch
  std::byte* host_ = nullptr;
  size_t region_bytes_ = 0;
  std::span<const BlockMove> moves_;  // moves that are not written yet
  // Copies of the current move. The copies before next_op_ are in a batch.
  std::vector<CopyOp> ops_;
  size_t next_op_ = 0;
};

}  // namespace kvcast::transfer
