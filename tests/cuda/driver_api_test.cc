// The driver API finds its functions, and an error names a missing function.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "cuda/handles.h"
#include "tests/cuda/fake_driver.h"

namespace kvcast::cuda {
namespace {

using testing::FakeDriver;
using ::testing::HasSubstr;

TEST(DriverApi, ADriverOf13HasBothFormsOfBatches) {
  const FakeDriver driver({.version = 13000});
  EXPECT_NE(driver.api().MemcpyBatchAsync13000, nullptr);
  EXPECT_NE(driver.api().Memcpy3DBatchAsync13000, nullptr);
  EXPECT_NE(driver.api().MemcpyBatchAsync12080, nullptr);
}

TEST(DriverApi, ADriverOf128HasItsOwnFormOnly) {
  const FakeDriver driver({.version = 12080});
  EXPECT_EQ(driver.api().MemcpyBatchAsync13000, nullptr);
  EXPECT_EQ(driver.api().Memcpy3DBatchAsync13000, nullptr);
  EXPECT_NE(driver.api().MemcpyBatchAsync12080, nullptr);
  EXPECT_NE(driver.api().Memcpy3DBatchAsync12080, nullptr);
}

TEST(DriverApi, AnOlderDriverHasNoBatches) {
  FakeDriver driver({.version = 12040});
  EXPECT_EQ(driver.api().MemcpyBatchAsync13000, nullptr);
  EXPECT_EQ(driver.api().MemcpyBatchAsync12080, nullptr);
  EXPECT_EQ(InfoOf(driver.Open()).copy_call, "cuMemcpyAsync");
}

TEST(DriverApi, AMissingFunctionIsNamed) {
  const DriverLookup all_but_one = [](const char* name, int) -> void* {
    static int function = 0;
    return std::strcmp(name, "cuEventRecord") == 0 ? nullptr : &function;
  };
  DriverApi api;
  const Status status = FillDriverApi(all_but_one, api);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "the CUDA driver has no cuEventRecord");
}

TEST(DriverApi, ErrorsNameTheCallAndTheError) {
  const FakeDriver driver;
  const Status status = ToStatus(driver.api(), CUDA_ERROR_INVALID_VALUE, "cuMemFree");
  EXPECT_EQ(status.ToString(), "unavailable: cuMemFree: CUDA_ERROR_INVALID_VALUE (1)");
  EXPECT_EQ(ToStatus(driver.api(), CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc").code(),
            StatusCode::kExhausted);
  EXPECT_TRUE(ToStatus(driver.api(), CUDA_SUCCESS, "cuMemFree").ok());
}

TEST(Device, ReportsItsProperties) {
  FakeDriver driver({.version = 12080, .compute_capability = 80, .numa_node = 1});
  const CudaDeviceInfo info = InfoOf(driver.Open());
  EXPECT_EQ(info.name, "Fake GPU");
  EXPECT_EQ(info.driver_version, 12080);
  EXPECT_EQ(info.compute_capability, 80);
  EXPECT_EQ(info.numa_node, 1);
  EXPECT_EQ(info.multiprocessors, 100);
  EXPECT_EQ(info.copy_call, "cuMemcpyBatchAsync 12.8");
}

TEST(Device, AGpuNumberThatDoesNotExistIsAnError) {
  const FakeDriver driver;
  const auto device = Device::Open(driver.api(), 1);
  EXPECT_EQ(device.status().message(), "no GPU with number 1; number of GPUs: 1");
}

TEST(Device, TheContextIsReleasedWithTheLastUser) {
  FakeDriver driver;
  CudaDevice device = driver.Open();
  auto event = std::make_unique<Event>(MakeEvent(device).value());
  device.reset();
  EXPECT_EQ(driver.live_contexts, 1);
  event.reset();
  EXPECT_EQ(driver.live_contexts, 0);
  EXPECT_EQ(driver.live_events, 0);
}

// On any machine the result is a device or an error of one clear line.
TEST(Device, AMachineWithoutADriverGivesAClearError) {
  const auto device = OpenCudaDevice();
  if (device.ok()) GTEST_SKIP() << "this machine has " << InfoOf(*device).name;
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(device.status().message(),
              ::testing::AnyOf(HasSubstr("no CUDA driver"), HasSubstr("cuInit"),
                               HasSubstr("no GPU"), HasSubstr("the CUDA driver")));
}

}  // namespace
}  // namespace kvcast::cuda
