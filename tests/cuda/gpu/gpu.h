// Shared parts of the tests on a GPU. Without a GPU each test is skipped with a reason.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "apps/gpu/tool_kernels.h"
#include "kvcast/cuda/cuda_copy_backend.h"
#include "tests/support/pools.h"

#define ASSERT_DRIVER_OK(call) ASSERT_EQ((call), CUDA_SUCCESS)

namespace kvcast::cuda::testing {

class GpuTest : public ::testing::Test {
 protected:
  static constexpr size_t kGuard = 64 << 10;  // before and after the pools
  static constexpr size_t kPool = 48 << 20;
  static constexpr std::byte kPoison{0xA5};

  void SetUp() override {
    auto device = OpenCudaDevice();
    if (!device.ok()) GTEST_SKIP() << "needs a GPU: " << device.status().message();
    device_ = std::move(device).value();
    const auto gpu = [&] { return CudaMemory::Create(device_, kPool + 2 * kGuard); };
    const auto host = [&] { return PinnedPool::Create(device_, {.bytes = kPool + 2 * kGuard}); };
    gpu_.emplace(gpu().value());
    host_.emplace(host().value());
    mirror_.emplace(host().value());
    compute_.emplace(MakeStream(device_).value());
    kernels_.emplace(ToolKernels::Load(device_).value());
  }

  const DriverApi& api() const { return device_->api(); }
  std::byte* gpu(size_t offset) const { return gpu_->base() + kGuard + offset; }
  std::byte* host(size_t offset) const { return host_->base() + kGuard + offset; }

  std::unique_ptr<CudaCopyBackend> Backend(CudaCopyConfig config = {}) {
    config.host = &*host_;
    auto backend = CudaCopyBackend::Create(device_, config);
    EXPECT_TRUE(backend.ok()) << backend.status().ToString();
    return std::move(backend).value();
  }

  // Writes all GPU memory of the test, guards included.
  void WriteGpu(const std::vector<std::byte>& bytes) {
    std::memcpy(mirror_->base(), bytes.data(), bytes.size());
    Copy(gpu_->base(), mirror_->base(), bytes.size());
  }
  std::vector<std::byte> ReadGpu() {
    Copy(mirror_->base(), gpu_->base(), gpu_->bytes());
    return {mirror_->base(), mirror_->base() + gpu_->bytes()};
  }
  std::vector<std::byte> ReadHost() const {
    return {host_->base(), host_->base() + host_->bytes()};
  }
  void WriteHost(const std::vector<std::byte>& bytes) {
    std::memcpy(host_->base(), bytes.data(), bytes.size());
  }

  void Copy(std::byte* dst, const std::byte* src, size_t bytes) {
    ASSERT_DRIVER_OK(device_->api().MemcpyAsync(reinterpret_cast<CUdeviceptr>(dst),
                                                reinterpret_cast<CUdeviceptr>(src), bytes,
                                                compute_->get()));
    ASSERT_DRIVER_OK(device_->api().StreamSynchronize(compute_->get()));
  }

  // Blocks the compute stream for longer than any copy of these tests takes.
  void StallCompute() {
    ASSERT_TRUE(
        LaunchTool(device_, kernels_->stall, 1, 1, compute_->get(), uint64_t{100'000'000}).ok());
  }
  void SetCompute(std::byte* dst, size_t bytes, uint8_t value) {
    ASSERT_DRIVER_OK(
        api().MemsetD8Async(reinterpret_cast<CUdeviceptr>(dst), value, bytes, compute_->get()));
  }

  CudaDevice device_;
  std::optional<CudaMemory> gpu_;
  std::optional<PinnedPool> host_;
  std::optional<PinnedPool> mirror_;
  std::optional<Stream> compute_;
  std::optional<ToolKernels> kernels_;
};

}  // namespace kvcast::cuda::testing
