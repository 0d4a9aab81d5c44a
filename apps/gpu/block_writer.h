// BlockWriter: writes and checks the blocks of a pool on a GPU, in the place of a model.
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

// One stream of its own, the "computation". Block b is `block_bytes` bytes, whole words of 8, at
// base + b * block_bytes; a block that holds word w has w + at in the 8 bytes at offset `at`.
class BlockWriter {
 public:
  // `base`, memory of the GPU, outlives the writer.
  static Result<std::unique_ptr<BlockWriter>> Create(const CudaDevice& device, std::byte* base,
                                                     size_t block_bytes);
  ~BlockWriter();

  // Block i of the list gets word i. Returns before it has happened. Blocks are apart.
  Status Fill(std::span<const BlockId> blocks, std::span<const uint64_t> words);
  // How many blocks do not hold their word, once all fills so far have happened.
  Result<int64_t> CountWrong(std::span<const BlockId> blocks, std::span<const uint64_t> words);
  // An event behind all fills so far, for CopyBackend::Submit. May be recorded anew, later, once
  // 256 others were. nullptr: the driver refused.
  void* Event();

 private:
  class Impl;
  explicit BlockWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::cuda
