// Pieces: what a copy kernel is told to move, so that every thread block has the same to do
// whatever the blocks of the pool look like.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvcast/transfer/copy_backend.h"

namespace kvcast::cuda {

// Kernels move 16 bytes at a time where addresses and sizes are multiples of it.
inline constexpr size_t kPieceAlignment = 16;
inline constexpr size_t kMaxPieceBytes = size_t{16} << 10;

// Lists of one length: a kernel reads neighbours of each at once. Addresses are the GPU's.
struct Pieces {
  std::vector<uint64_t> src;
  std::vector<uint64_t> dst;
  std::vector<uint32_t> bytes;

  size_t size() const { return src.size(); }
  void Add(uint64_t from, uint64_t to, size_t n) {
    src.push_back(from);
    dst.push_back(to);
    bytes.push_back(static_cast<uint32_t>(n));
  }
  void Clear() {
    src.clear();
    dst.clear();
    bytes.clear();
  }
};

// Appends the rows of `op`, whose addresses are `src` and `dst` for the GPU, in pieces of at most
// kMaxPieceBytes: `aligned` gets those of which both addresses and the size are multiples of
// kPieceAlignment, `odd` the bytes before and behind them, and rows that are never aligned on both
// sides at once.
void CutIntoPieces(const CopyOp& op, uint64_t src, uint64_t dst, Pieces& aligned, Pieces& odd);

}  // namespace kvcast::cuda
