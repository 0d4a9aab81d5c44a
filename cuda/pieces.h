// Pieces: the moves of a copy kernel. The size of a piece has a limit, so all thread blocks have
// about the same amount of work, regardless of the layout of the pool's blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvcast/transfer/copy_backend.h"

namespace kvcast::cuda {

// Kernels move 16 bytes at a time if the addresses and the size are multiples of 16.
inline constexpr size_t kPieceAlignment = 16;
inline constexpr size_t kMaxPieceBytes = size_t{16} << 10;

// Piece i is element i of all three lists. Neighbouring threads of a kernel read neighbouring
// elements of a list. The addresses are GPU addresses.
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

// Appends the rows of `op`, whose GPU addresses are `src` and `dst`, in pieces of at most
// kMaxPieceBytes. `aligned` gets the pieces whose addresses and size are multiples of
// kPieceAlignment. `unaligned` gets the bytes before and after these pieces. It also gets each row
// whose source and destination have different alignments.
void CutIntoPieces(const CopyOp& op, uint64_t src, uint64_t dst, Pieces& aligned,
                   Pieces& unaligned);

}  // namespace kvcast::cuda
