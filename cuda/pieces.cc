// SPDX-License-Identifier: Apache-2.0
#include "cuda/pieces.h"

#include <algorithm>

namespace kvcast::cuda {
namespace {

void Cut(uint64_t src, uint64_t dst, size_t bytes, Pieces& pieces) {
  for (size_t offset = 0; offset < bytes; offset += kMaxPieceBytes) {
    pieces.Add(src + offset, dst + offset, std::min(kMaxPieceBytes, bytes - offset));
  }
}

}  // namespace

void CutIntoPieces(const CopyOp& op, uint64_t src, uint64_t dst, Pieces& aligned,
                   Pieces& unaligned) {
  for (uint32_t row = 0; row < op.rows; ++row) {
    const uint64_t from = src + row * op.src_pitch;
    const uint64_t to = dst + row * op.dst_pitch;
    if ((from ^ to) % kPieceAlignment != 0) {
      Cut(from, to, op.row_bytes, unaligned);
      continue;
    }
    const size_t head =
        std::min(op.row_bytes, (kPieceAlignment - from % kPieceAlignment) % kPieceAlignment);
    const size_t body = (op.row_bytes - head) / kPieceAlignment * kPieceAlignment;
    Cut(from, to, head, unaligned);
    Cut(from + head, to + head, body, aligned);
    Cut(from + head + body, to + head + body, op.row_bytes - head - body, unaligned);
  }
}

}  // namespace kvcast::cuda
