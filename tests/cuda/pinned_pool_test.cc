// The GPU can use all bytes of a pinned pool. If it cannot, the creation of the pool fails.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvcast/cuda/cuda_memory.h"
#include "tests/cuda/fake_driver.h"

namespace kvcast::cuda {
namespace {

using testing::FakeDriver;

constexpr size_t kPageBytes = 4096;

PinnedPoolConfig Small(size_t bytes) {
  return {.bytes = bytes, .pages = HostPages::kSmall, .threads = 1};
}

TEST(PinnedPool, IsOneRegistrationOfExactlyItsBytes) {
  FakeDriver driver;
  {
    const auto pool = PinnedPool::Create(driver.Open(), Small(10 * kPageBytes + 24));
    ASSERT_TRUE(pool.ok()) << pool.status().ToString();
    ASSERT_EQ(driver.registrations.size(), 1u);
    EXPECT_EQ(driver.registrations.begin()->first, reinterpret_cast<uintptr_t>(pool->base()));
    EXPECT_EQ(driver.registrations.begin()->second, 10 * kPageBytes + 24);
    EXPECT_EQ(pool->registrations(), 1u);
  }
  EXPECT_TRUE(driver.registrations.empty());
  EXPECT_EQ(driver.live_contexts, 0);
}

TEST(PinnedPool, TheGpuHasAnAddressOfItsOwn) {
  FakeDriver driver;
  const auto pool = PinnedPool::Create(driver.Open(), Small(8 * kPageBytes));
  ASSERT_TRUE(pool.ok());
  const std::byte* const address = pool->base() + 5 * kPageBytes + 7;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pool->DeviceAddress(address)),
            reinterpret_cast<uintptr_t>(address) + FakeDriver::kAlias);
  EXPECT_TRUE(pool->Contains(address));
  EXPECT_FALSE(pool->Contains(pool->base() + 8 * kPageBytes));
}

TEST(PinnedPool, PartsAreRegisteredOneByOne) {
  FakeDriver driver;
  PinnedPoolConfig config = Small(10 * kPageBytes);
  config.registration_bytes = 4 * kPageBytes;
  {
    const auto pool = PinnedPool::Create(driver.Open(), config);
    ASSERT_TRUE(pool.ok());
    ASSERT_EQ(driver.registrations.size(), 3u);
    EXPECT_EQ(driver.registrations.rbegin()->second, 2 * kPageBytes);
    for (const size_t offset :
         {size_t{0}, 4 * kPageBytes - 1, 4 * kPageBytes, 10 * kPageBytes - 1}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(pool->DeviceAddress(pool->base() + offset)),
                reinterpret_cast<uintptr_t>(pool->base() + offset) + FakeDriver::kAlias);
    }
  }
  EXPECT_TRUE(driver.registrations.empty());
}

TEST(PinnedPool, FailedPinningIsAnErrorAndLeavesNothingPinned) {
  FakeDriver driver;
  driver.pinnable_bytes = 6 * kPageBytes;
  PinnedPoolConfig config = Small(10 * kPageBytes);
  auto pool = PinnedPool::Create(driver.Open(), config);
  EXPECT_EQ(pool.status().code(), StatusCode::kExhausted);
  EXPECT_EQ(pool.status().message(),
            "pinning 40960 of 40960 bytes: cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY (2)");
  // The pool unregisters the parts before the failed part.
  config.registration_bytes = 4 * kPageBytes;
  EXPECT_FALSE(PinnedPool::Create(driver.Open(), config).ok());
  EXPECT_TRUE(driver.registrations.empty());
}

TEST(PinnedPool, LiesOnTheNodeNextToTheGpu) {
  FakeDriver driver({.numa_node = 900});  // no machine has this node
  PinnedPoolConfig config = Small(kPageBytes);
  EXPECT_THAT(PinnedPool::Create(driver.Open(), config).status().message(),
              ::testing::HasSubstr("NUMA node 900"));
  config.near_device = false;
  EXPECT_TRUE(PinnedPool::Create(driver.Open(), config).ok());
}

TEST(PinnedPool, AFailureToGetTheGpuAddressIsAnError) {
  FakeDriver driver;
  driver.FailCall("cuMemHostGetDevicePointer", CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(PinnedPool::Create(driver.Open(), Small(kPageBytes)).ok());
  EXPECT_TRUE(driver.registrations.empty());
}

TEST(PinnedPool, BadConfigurationsAreNamed) {
  FakeDriver driver;
  const CudaDevice device = driver.Open();
  EXPECT_EQ(PinnedPool::Create(device, Small(0)).status().message(), "bytes: must be positive");
  PinnedPoolConfig config = Small(kPageBytes);
  config.registration_bytes = 100;
  EXPECT_EQ(PinnedPool::Create(device, config).status().message(),
            "registration_bytes: must be a multiple of the page size");
}

TEST(PinnedPool, MovesWithItsRegistration) {
  FakeDriver driver;
  auto first = PinnedPool::Create(driver.Open(), Small(2 * kPageBytes)).value();
  std::byte* const base = first.base();
  {
    PinnedPool second = std::move(first);
    EXPECT_EQ(second.base(), base);
    first = std::move(second);
  }
  EXPECT_EQ(first.base(), base);
  EXPECT_EQ(driver.registrations.size(), 1u);
}

TEST(CudaMemory, IsReleased) {
  FakeDriver driver;
  driver.gpu_bytes = 1 << 20;
  {
    auto memory = CudaMemory::Create(driver.Open(), 1 << 20).value();
    const CudaMemory moved = std::move(memory);
    EXPECT_EQ(moved.bytes(), size_t{1} << 20);
    EXPECT_EQ(driver.allocations.size(), 1u);
    const auto more = CudaMemory::Create(driver.Open(), 1);
    EXPECT_EQ(more.status().ToString(),
              "exhausted: cannot allocate 1 bytes of GPU memory: cuMemAlloc: "
              "CUDA_ERROR_OUT_OF_MEMORY (2)");
  }
  EXPECT_TRUE(driver.allocations.empty());
}

}  // namespace
}  // namespace kvcast::cuda
