// BlockWriter: writes and checks the blocks of a pool on a GPU, in place of a model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/cuda/cuda_device.h"

namespace kvcast::cuda {

// A BlockWriter has its own stream, in place of the model's stream. Block b has `block_bytes` bytes
// (a multiple of 8) at base + b * block_bytes. A block holds the word w if the 8 bytes at each
// `offset` contain the value w + offset.
class BlockWriter {
 public:
  // `base` is memory of the GPU and must outlive the writer.
  static Result<std::unique_ptr<BlockWriter>> Create(const CudaDevice& device, std::byte* base,
                                                     size_t block_bytes);
  ~BlockWriter();

  // Writes word i to block i of the list. Fill returns before the write has ended. The blocks must
  // be different.
  Status Fill(std::span<const BlockId> blocks, std::span<const uint64_t> words);
  // Returns how many blocks do not hold their word after all earlier fills.
  Result<int64_t> CountWrong(std::span<const BlockId> blocks, std::span<const uint64_t> words);
  // Returns an event that follows all earlier fills, for CopyBackend::Submit. The 256th call after
  // this call records the same event again. nullptr: a driver call failed.
  void* Event();

 private:
  class Impl;
  explicit BlockWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::cuda
