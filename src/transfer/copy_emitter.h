// CopyEmitter: writes copies to a plan; merges neighbours, cuts what is too large, forms batches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/transfer/copy_planner.h"

namespace kvcast::transfer {

class CopyEmitter {
 public:
  CopyEmitter(CopyDirection direction, const BatchLimits& limits, CopyPlan& plan)
      : store_(direction == CopyDirection::kStore), limits_(limits), plan_(plan) {}
  ~CopyEmitter() { Flush(); }
  CopyEmitter(const CopyEmitter&) = delete;
  CopyEmitter& operator=(const CopyEmitter&) = delete;

  // Rows that are `gpu_pitch` apart on the GPU side and have no gaps on the host's.
  void Rows(std::byte* gpu, size_t gpu_pitch, std::byte* host, size_t row_bytes, uint32_t rows) {
    if (rows == 1 || gpu_pitch == row_bytes) return Run(gpu, host, row_bytes * rows);
    Flush();
    pending_ = store_ ? CopyOp{gpu, host, row_bytes, gpu_pitch, row_bytes, rows}
                      : CopyOp{host, gpu, row_bytes, row_bytes, gpu_pitch, rows};
  }

  // Bytes that have no gaps on both sides.
  void Run(std::byte* gpu, std::byte* host, size_t bytes) {
    const std::byte* const src = store_ ? gpu : host;
    std::byte* const dst = store_ ? host : gpu;
    if (pending_.rows == 1 && pending_.src + pending_.row_bytes == src &&
        pending_.dst + pending_.row_bytes == dst) {
      pending_.row_bytes += bytes;
      return;
    }
    Flush();
    pending_ = CopyOp{src, dst, bytes, 0, 0, 1};
  }

 private:
  void Flush() {
    if (pending_.row_bytes == 0) return;
    if (pending_.bytes() > limits_.bytes) {
      Cut(pending_);
    } else {
      Add(pending_);
    }
    pending_.row_bytes = 0;
  }

  void Cut(CopyOp op) {
    if (op.row_bytes > limits_.bytes) {
      for (uint32_t row = 0; row < op.rows; ++row) {
        CutRun(op.src + row * op.src_pitch, op.dst + row * op.dst_pitch, op.row_bytes);
      }
      return;
    }
    const auto rows_of_batch = static_cast<uint32_t>(limits_.bytes / op.row_bytes);
    for (uint32_t row = 0; row < op.rows; row += rows_of_batch) {
      CopyOp piece = op;
      piece.src += row * op.src_pitch;
      piece.dst += row * op.dst_pitch;
      piece.rows = std::min(rows_of_batch, op.rows - row);
      Add(piece);
    }
  }

  void CutRun(const std::byte* src, std::byte* dst, size_t bytes) {
    for (size_t at = 0; at < bytes; at += limits_.bytes) {
      Add(CopyOp{src + at, dst + at, std::min(limits_.bytes, bytes - at), 0, 0, 1});
    }
  }

  void Add(const CopyOp& op) {
    const size_t bytes = op.bytes();
    if (plan_.batches.empty() || plan_.batches.back().num_ops == limits_.ops ||
        plan_.batches.back().bytes + bytes > limits_.bytes) {
      plan_.batches.push_back({.first_op = plan_.ops.size()});
    }
    plan_.ops.push_back(op);
    ++plan_.batches.back().num_ops;
    plan_.batches.back().bytes += bytes;
  }

  const bool store_;
  const BatchLimits limits_;
  CopyPlan& plan_;
  CopyOp pending_;  // no row_bytes: none
};

}  // namespace kvcast::transfer
