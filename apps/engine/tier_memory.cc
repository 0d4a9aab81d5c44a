// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/tier_memory.h"

#include <cstring>
#include <utility>

#include "apps/gpu/block_writer.h"
#include "cuda/internal_pool.h"
#include "kvcast/cuda/cuda_copy_backend.h"
#include "kvcast/cuda/cuda_memory.h"
#include "kvcast/transfer/host_pool.h"

namespace kvcast::tools {
namespace {

void Fill(std::byte* block, size_t bytes, uint64_t word) {
  for (size_t offset = 0; offset < bytes; offset += sizeof(word)) {
    const uint64_t value = word + offset;
    std::memcpy(block + offset, &value, sizeof(value));
  }
}

bool Holds(const std::byte* block, size_t bytes, uint64_t word) {
  for (size_t offset = 0; offset < bytes; offset += sizeof(word)) {
    const uint64_t value = word + offset;
    if (std::memcmp(block + offset, &value, sizeof(value)) != 0) return false;
  }
  return true;
}

struct PlainPools {
  HostPool gpu;
  HostPool host;
};

// The members are created in this order and destroyed in the reverse order.
struct CudaPools {
  CudaMemory gpu;
  PinnedPool host;
  std::unique_ptr<cuda::BlockWriter> writer;
};

size_t BytesOf(const TierMemoryConfig& config, int64_t blocks) {
  return static_cast<size_t>(blocks) * config.block_bytes;
}

}  // namespace

Result<TierMemory> MakePlainTierMemory(const TierMemoryConfig& config,
                                       std::unique_ptr<CopyBackend> backend) {
  auto gpu = HostPool::Create({.bytes = BytesOf(config, config.gpu_blocks), .threads = 1});
  if (!gpu.ok()) return gpu.status();
  auto host = HostPool::Create({.bytes = BytesOf(config, config.host_blocks), .threads = 1});
  if (!host.ok()) return host.status();
  const auto pools = std::make_shared<PlainPools>(std::move(gpu).value(), std::move(host).value());
  const size_t bytes = config.block_bytes;
  std::byte* const base = pools->gpu.base();
  TierMemory memory;
  memory.gpu = base;
  memory.host = pools->host.base();
  memory.host_bytes = pools->host.bytes();
  memory.backend = std::move(backend);
  memory.fill = [=](std::span<const BlockId> blocks, std::span<const uint64_t> words) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      Fill(base + blocks[i].value * bytes, bytes, words[i]);
    }
  };
  memory.count_wrong = [=](std::span<const BlockId> blocks, std::span<const uint64_t> words) {
    int64_t wrong = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (!Holds(base + blocks[i].value * bytes, bytes, words[i])) ++wrong;
    }
    return wrong;
  };
  memory.computed = [] { return nullptr; };
  memory.owner = pools;
  return memory;
}

Result<TierMemory> MakeCudaTierMemory(const TierMemoryConfig& config, const CudaDevice& device) {
  auto gpu = CudaMemory::Create(device, BytesOf(config, config.gpu_blocks));
  if (!gpu.ok()) return gpu.status();
  auto host =
      cuda::MakeInternalPool(device, {.bytes = BytesOf(config, config.host_blocks), .threads = 1});
  if (!host.ok()) return host.status();
  auto writer = cuda::BlockWriter::Create(device, gpu->base(), config.block_bytes);
  if (!writer.ok()) return writer.status();
  const auto pools = std::make_shared<CudaPools>(std::move(gpu).value(), std::move(host).value(),
                                                 std::move(writer).value());
  CudaCopyConfig copies;
  copies.host = &pools->host;
  auto backend = CudaCopyBackend::Create(device, copies);
  if (!backend.ok()) return backend.status();
  TierMemory memory;
  memory.gpu = pools->gpu.base();
  memory.host = pools->host.base();
  memory.host_bytes = pools->host.bytes();
  memory.backend = std::move(backend).value();
  // If the driver fails, blocks have wrong bytes, and the check counts them.
  cuda::BlockWriter* const blocks_writer = pools->writer.get();
  memory.fill = [=](std::span<const BlockId> blocks, std::span<const uint64_t> words) {
    (void)blocks_writer->Fill(blocks, words);
  };
  memory.count_wrong = [=](std::span<const BlockId> blocks, std::span<const uint64_t> words) {
    const auto wrong = blocks_writer->CountWrong(blocks, words);
    return wrong.ok() ? *wrong : static_cast<int64_t>(blocks.size());
  };
  memory.computed = [=] { return blocks_writer->Event(); };
  memory.owner = pools;
  return memory;
}

}  // namespace kvcast::tools
