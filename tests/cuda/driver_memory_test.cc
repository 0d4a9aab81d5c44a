// The driver allocates host memory with the right arguments and frees it again.
// SPDX-License-Identifier: Apache-2.0
#include "apps/gpu/driver_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/cuda/fake_driver.h"

namespace kvcast::cuda {
namespace {

using testing::FakeDriver;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr size_t kBytes = 3 << 20;  // not a multiple of the driver's page

void ExpectNothingKept(const FakeDriver& driver) {
  EXPECT_THAT(driver.registrations, IsEmpty());
  EXPECT_THAT(driver.host_memory, IsEmpty());
  EXPECT_THAT(driver.mappings, IsEmpty());
  EXPECT_THAT(driver.host_pages, IsEmpty());
  EXPECT_THAT(driver.reservations, IsEmpty());
  EXPECT_THAT(driver.faults, IsEmpty());
}

TEST(DriverMemory, CanBeUsedByTheCpuAndByCopies) {
  for (const auto& make : {DriverMemory::Allocate, DriverMemory::Map}) {
    FakeDriver driver({.numa_node = 1});
    const CudaDevice device = driver.Open();
    ASSERT_TRUE(device->MakeCurrent().ok());
    {
      const auto memory = make(device, kBytes);
      ASSERT_TRUE(memory.ok()) << memory.status().ToString();
      std::memset(memory->base(), 7, kBytes);
      EXPECT_TRUE(driver.IsCopyable(reinterpret_cast<uintptr_t>(memory->base()), kBytes));
      EXPECT_THAT(driver.registrations, SizeIs(1));
    }
    ExpectNothingKept(driver);
  }
}

TEST(DriverMemory, AMachineWithoutNumaHasNodeZero) {
  FakeDriver driver({.numa_node = -1});
  const CudaDevice device = driver.Open();
  ASSERT_TRUE(device->MakeCurrent().ok());
  EXPECT_TRUE(DriverMemory::Map(device, kBytes).ok());
}

TEST(DriverMemory, AFailedAllocationFreesEverything) {
  for (const char* const call :
       {"cuMemHostAlloc", "cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemCreate",
        "cuMemMap", "cuMemSetAccess"}) {
    FakeDriver driver;
    const CudaDevice device = driver.Open();
    ASSERT_TRUE(device->MakeCurrent().ok());
    driver.FailCall(call, CUDA_ERROR_OUT_OF_MEMORY);
    const bool allocate = std::strcmp(call, "cuMemHostAlloc") == 0;
    const auto memory =
        allocate ? DriverMemory::Allocate(device, kBytes) : DriverMemory::Map(device, kBytes);
    EXPECT_EQ(memory.status().code(), StatusCode::kExhausted);
    EXPECT_THAT(memory.status().message(), ::testing::StartsWith(call));
    ExpectNothingKept(driver);
  }
}

TEST(DriverMemory, AllocationFailsIfTheDriverLacksAFunction) {
  for (const char* const call :
       {"cuMemFreeHost", "cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemAddressFree",
        "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess"}) {
    FakeDriver driver({.missing = call});
    const CudaDevice device = driver.Open();
    ASSERT_TRUE(device->MakeCurrent().ok());
    const bool allocate = std::strcmp(call, "cuMemFreeHost") == 0;
    const auto memory =
        allocate ? DriverMemory::Allocate(device, kBytes) : DriverMemory::Map(device, kBytes);
    EXPECT_EQ(memory.status().code(), StatusCode::kFailedPrecondition) << call;
    EXPECT_EQ(memory.status().message(), "the driver does not support this kind of allocation");
    ExpectNothingKept(driver);
  }
}

}  // namespace
}  // namespace kvcast::cuda
