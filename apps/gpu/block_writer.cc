// SPDX-License-Identifier: Apache-2.0
#include "apps/gpu/block_writer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "apps/gpu/tool_kernels.h"
#include "cuda/internal_pool.h"
#include "cuda/table_ring.h"
#include "kvcast/cuda/cuda_memory.h"

namespace kvcast::cuda {
namespace {

constexpr size_t kBlocksAtOnce = 8192;
constexpr size_t kTableBytes = size_t{1} << 20;
constexpr size_t kEvents = 256;
constexpr unsigned kThreads = 64;

}  // namespace

class BlockWriter::Impl {
 public:
  Impl(const CudaDevice& device, std::byte* base, size_t block_bytes, PinnedPool tables,
       PinnedPool wrong, Stream stream, ToolKernels kernels)
      : device_(device),
        base_(base),
        block_bytes_(block_bytes),
        tables_(std::move(tables)),
        wrong_(std::move(wrong)),
        stream_(std::move(stream)),
        kernels_(std::move(kernels)) {}
  ~Impl() {
    (void)device_->MakeCurrent();
    (void)Synchronize();
  }

  Status AddEvents() {
    while (events_.size() < kEvents) {
      auto event = MakeEvent(device_);
      if (!event.ok()) return event.status();
      events_.push_back(std::move(event).value());
    }
    return {};
  }

  Status Fill(std::span<const BlockId> blocks, std::span<const uint64_t> words) {
    KVCAST_RETURN_IF_ERROR(device_->MakeCurrent());
    for (size_t at = 0; at < blocks.size(); at += kBlocksAtOnce) {
      const size_t n = std::min(kBlocksAtOnce, blocks.size() - at);
      const auto table = WriteTable(blocks.subspan(at, n), words.subspan(at, n));
      if (!table.ok()) return table.status();
      KVCAST_RETURN_IF_ERROR(LaunchTool(device_, kernels_.fill, static_cast<unsigned>(n), kThreads,
                                        stream_.get(), *table, *table + n * sizeof(uint64_t),
                                        uint64_t{block_bytes_}));
    }
    return {};
  }

  Result<int64_t> CountWrong(std::span<const BlockId> blocks, std::span<const uint64_t> words) {
    KVCAST_RETURN_IF_ERROR(device_->MakeCurrent());
    int64_t wrong = 0;
    for (size_t at = 0; at < blocks.size(); at += kBlocksAtOnce) {
      const size_t n = std::min(kBlocksAtOnce, blocks.size() - at);
      const auto table = WriteTable(blocks.subspan(at, n), words.subspan(at, n));
      if (!table.ok()) return table.status();
      std::memset(wrong_.base(), 0, n * sizeof(uint32_t));
      const auto flags = reinterpret_cast<uint64_t>(wrong_.DeviceAddress(wrong_.base()));
      KVCAST_RETURN_IF_ERROR(LaunchTool(device_, kernels_.check, static_cast<unsigned>(n), kThreads,
                                        stream_.get(), *table, *table + n * sizeof(uint64_t),
                                        uint64_t{block_bytes_}, flags));
      KVCAST_RETURN_IF_ERROR(Synchronize());
      const auto* const flag = reinterpret_cast<const uint32_t*>(wrong_.base());
      wrong += std::count(flag, flag + n, 1u);
    }
    return wrong;
  }

  void* Event() {
    if (!device_->MakeCurrent().ok()) return nullptr;
    const CUevent event = events_[next_event_++ % kEvents].get();
    return device_->api().EventRecord(event, stream_.get()) == CUDA_SUCCESS ? event : nullptr;
  }

 private:
  Status Synchronize() {
    return device_->Check(device_->api().StreamSynchronize(stream_.get()), "cuStreamSynchronize");
  }

  // Returns the address of a table for the kernels: the addresses of the blocks, then the words.
  Result<uint64_t> WriteTable(std::span<const BlockId> blocks, std::span<const uint64_t> words) {
    const size_t bytes = 2 * blocks.size() * sizeof(uint64_t);
    auto offset = ring_.Take(bytes);
    if (!offset) {
      KVCAST_RETURN_IF_ERROR(Synchronize());
      ring_.Release(ring_.position());
      offset = ring_.Take(bytes);
    }
    auto* const table = reinterpret_cast<uint64_t*>(tables_.base() + *offset);
    for (size_t i = 0; i < blocks.size(); ++i) {
      table[i] = reinterpret_cast<uint64_t>(base_ + blocks[i].value * block_bytes_);
      table[blocks.size() + i] = words[i];
    }
    return reinterpret_cast<uint64_t>(tables_.DeviceAddress(tables_.base() + *offset));
  }

  const CudaDevice device_;
  std::byte* const base_;
  const size_t block_bytes_;
  const PinnedPool tables_;
  const PinnedPool wrong_;
  const Stream stream_;
  const ToolKernels kernels_;
  TableRing ring_{kTableBytes};
  std::vector<cuda::Event> events_;
  size_t next_event_ = 0;
};

BlockWriter::BlockWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockWriter::~BlockWriter() = default;

Result<std::unique_ptr<BlockWriter>> BlockWriter::Create(const CudaDevice& device, std::byte* base,
                                                         size_t block_bytes) {
  KVCAST_RETURN_IF_ERROR(device->MakeCurrent());
  const auto pool = [&device](size_t bytes) {
    return MakeInternalPool(device, {.bytes = bytes, .pages = HostPages::kSmall, .threads = 1});
  };
  auto tables = pool(kTableBytes);
  if (!tables.ok()) return tables.status();
  auto wrong = pool(kBlocksAtOnce * sizeof(uint32_t));
  if (!wrong.ok()) return wrong.status();
  auto stream = MakeStream(device);
  if (!stream.ok()) return stream.status();
  auto kernels = ToolKernels::Load(device);
  if (!kernels.ok()) return kernels.status();
  auto impl = std::make_unique<Impl>(device, base, block_bytes, std::move(tables).value(),
                                     std::move(wrong).value(), std::move(stream).value(),
                                     std::move(kernels).value());
  KVCAST_RETURN_IF_ERROR(impl->AddEvents());
  return std::unique_ptr<BlockWriter>(new BlockWriter(std::move(impl)));
}

Status BlockWriter::Fill(std::span<const BlockId> blocks, std::span<const uint64_t> words) {
  return impl_->Fill(blocks, words);
}
Result<int64_t> BlockWriter::CountWrong(std::span<const BlockId> blocks,
                                        std::span<const uint64_t> words) {
  return impl_->CountWrong(blocks, words);
}
void* BlockWriter::Event() { return impl_->Event(); }

}  // namespace kvcast::cuda
