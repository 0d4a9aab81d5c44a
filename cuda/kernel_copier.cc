// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernel_copier.h"

#include <algorithm>
#include <cstring>

#include "cuda/copy_kernels.h"
#include "cuda/internal_pool.h"

namespace kvcast::cuda {
namespace {

constexpr int kFirstWithBulkCopies = 90;
constexpr size_t kEntryBytes = 2 * sizeof(uint64_t) + sizeof(uint32_t);
constexpr size_t kTableAlignment = 128;
constexpr uint32_t kMinStageBytes = 1024;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Returns the end of the launch that begins with piece `begin`.
size_t LaunchEnd(const Pieces& pieces, size_t begin) {
  size_t end = begin;
  for (size_t bytes = 0; end < pieces.size() && end - begin < KernelCopier::kLaunchPieces; ++end) {
    bytes += pieces.bytes[end];
    if (bytes > KernelCopier::kLaunchBytes && end > begin) break;
  }
  return end;
}

}  // namespace

Result<CopyKernels> CopyKernels::Load(const CudaDevice& device) {
  const DriverApi& api = device->api();
  CUmodule module = nullptr;
  KVCAST_RETURN_IF_ERROR(device->Check(api.ModuleLoadData(&module, kCopyKernels),
                                       "cuModuleLoadData of the copy kernels"));
  CopyKernels kernels{.module = Module(device, module)};
  KVCAST_RETURN_IF_ERROR(device->Check(api.ModuleGetFunction(&kernels.warps, module, kWarpKernel),
                                       "cuModuleGetFunction"));
  if (device->info().compute_capability < kFirstWithBulkCopies) return kernels;
  KVCAST_RETURN_IF_ERROR(device->Check(api.ModuleGetFunction(&kernels.ring, module, kRingKernel),
                                       "cuModuleGetFunction"));
  KVCAST_RETURN_IF_ERROR(device->Check(
      api.FuncSetAttribute(kernels.ring, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                           static_cast<int>(kRingBytes)),
      "cuFuncSetAttribute of the ring kernel"));
  return kernels;
}

Result<KernelCopier> KernelCopier::Create(const CudaDevice& device, const CopyKernels& kernels) {
  auto memory =
      MakeInternalPool(device, {.bytes = kTableBytes, .pages = HostPages::kSmall, .threads = 1});
  if (!memory.ok()) return memory.status();
  return KernelCopier(device, kernels, std::move(memory).value());
}

Status KernelCopier::Enqueue(const Pieces& aligned, const Pieces& unaligned, int blocks,
                             CUstream stream, KernelCounts& counts) {
  const bool has_ring = kernels_->ring != nullptr;
  for (const Pieces* pieces : {&aligned, &unaligned}) {
    for (size_t begin = 0; begin < pieces->size();) {
      const size_t end = LaunchEnd(*pieces, begin);
      KVCAST_RETURN_IF_ERROR(
          Launch(*pieces, begin, end, has_ring && pieces == &aligned, blocks, stream, counts));
      begin = end;
    }
  }
  return {};
}

Result<size_t> KernelCopier::TakeTable(size_t bytes, CUstream stream, KernelCounts& counts) {
  auto offset = tables_.Take(bytes);
  if (offset) return *offset;
  ++counts.table_waits;
  KVCAST_RETURN_IF_ERROR(
      device_->Check(device_->api().StreamSynchronize(stream), "cuStreamSynchronize"));
  tables_.Release(tables_.position());
  return *tables_.Take(bytes);
}

Status KernelCopier::Launch(const Pieces& pieces, size_t begin, size_t end, bool ring, int blocks,
                            CUstream stream, KernelCounts& counts) {
  auto count = static_cast<uint32_t>(end - begin);
  const auto offset = TakeTable(RoundUp(count * kEntryBytes, kTableAlignment), stream, counts);
  if (!offset.ok()) return offset.status();
  std::byte* const table = memory_.base() + *offset;
  std::byte* const dsts = table + count * sizeof(uint64_t);
  std::byte* const sizes = dsts + count * sizeof(uint64_t);
  std::memcpy(table, &pieces.src[begin], count * sizeof(uint64_t));
  std::memcpy(dsts, &pieces.dst[begin], count * sizeof(uint64_t));
  std::memcpy(sizes, &pieces.bytes[begin], count * sizeof(uint32_t));
  const uint32_t largest = *std::max_element(&pieces.bytes[begin], &pieces.bytes[begin] + count);
  auto stage_bytes =
      static_cast<uint32_t>(RoundUp(std::max(largest, kMinStageBytes), kTableAlignment));
  uint32_t stages =
      std::clamp(static_cast<uint32_t>(kRingBytes / stage_bytes), kRingMinStages, kRingStages);
  auto src_address = reinterpret_cast<CUdeviceptr>(memory_.DeviceAddress(table));
  auto dst_address = reinterpret_cast<CUdeviceptr>(memory_.DeviceAddress(dsts));
  auto size_address = reinterpret_cast<CUdeviceptr>(memory_.DeviceAddress(sizes));
  void* arguments[] = {&src_address, &dst_address, &size_address, &count, &stage_bytes, &stages};
  const auto grid =
      static_cast<unsigned>(std::min<size_t>(static_cast<size_t>(std::max(blocks, 1)), count));
  counts.pieces += count;
  ++counts.launches;
  return device_->Check(
      device_->api().LaunchKernel(ring ? kernels_->ring : kernels_->warps, grid, 1, 1,
                                  ring ? kRingThreads : kWarpThreads, 1, 1,
                                  ring ? stage_bytes * stages : 0, stream, arguments, nullptr),
      "cuLaunchKernel of a copy kernel");
}

}  // namespace kvcast::cuda
