// Steady traffic over CUDA allocates no memory.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/cuda/cuda_copy_backend.h"
#include "kvcast/cuda/cuda_memory.h"
#include "tests/cuda/fake_driver.h"
#include "tests/support/counting_new.h"

namespace kvcast::cuda {
namespace {

using testing::FakeDriver;

const DriverApi* g_fake = nullptr;
size_t g_bytes_of_the_fake = 0;

// Excludes the allocations of the fake driver's functions from the count of the backend.
template <auto kMember, typename... Arguments>
CUresult CallUncounted(Arguments... arguments) {
  const size_t before = wire::AllocatedBytes();
  const CUresult result = (g_fake->*kMember)(arguments...);
  g_bytes_of_the_fake += wire::AllocatedBytes() - before;
  return result;
}
template <auto kMember, typename... Arguments>
void SetUncounted(DriverApi& api, CUresult (*DriverApi::*)(Arguments...)) {
  if (api.*kMember != nullptr) api.*kMember = &CallUncounted<kMember, Arguments...>;
}

DriverApi WithUncountedCalls(const DriverApi& fake) {
  g_fake = &fake;
  DriverApi api = fake;
#define SET_UNCOUNTED(member, function) SetUncounted<&DriverApi::member>(api, &DriverApi::member);
  KVCAST_DRIVER_FUNCTIONS(SET_UNCOUNTED)
#undef SET_UNCOUNTED
  SetUncounted<&DriverApi::MemcpyBatchAsync13000>(api, &DriverApi::MemcpyBatchAsync13000);
  SetUncounted<&DriverApi::MemcpyBatchAsync12080>(api, &DriverApi::MemcpyBatchAsync12080);
  SetUncounted<&DriverApi::Memcpy3DBatchAsync13000>(api, &DriverApi::Memcpy3DBatchAsync13000);
  SetUncounted<&DriverApi::Memcpy3DBatchAsync12080>(api, &DriverApi::Memcpy3DBatchAsync12080);
  return api;
}

size_t BackendBytes() { return wire::AllocatedBytes() - g_bytes_of_the_fake; }

struct Case {
  const char* name;
  std::optional<CudaCopyPath> path;  // none: the calibration chooses
  int version = 13000;
};
class CudaAllocationTest : public ::testing::TestWithParam<Case> {};

// The copies have several sizes and numbers of rows. One size is not a multiple of 16. Every part
// of the backend therefore fills its scratch memory.
std::vector<CopyOp> Ops(CopyDirection direction, std::byte* gpu, std::byte* host) {
  const bool load = direction == CopyDirection::kLoad;
  std::vector<CopyOp> ops;
  for (const size_t bytes : {4096, 1000, 65536, 256}) {
    for (uint32_t i = 0; i < 12; ++i) {
      const uint32_t rows = 1 + i % 3;
      const size_t pitch = 2 * bytes;
      CopyOp op{load ? host : gpu, load ? gpu : host, bytes, bytes, pitch, rows};
      if (!load) std::swap(op.src_pitch, op.dst_pitch);
      ops.push_back(op);
      gpu += rows * pitch;
      host += rows * bytes + 16;
    }
  }
  return ops;
}

TEST_P(CudaAllocationTest, AfterBatchesOfAllSizesNoBatchAllocates) {
  constexpr size_t kPool = size_t{16} << 20;
  FakeDriver driver({.version = GetParam().version});
  const DriverApi api = WithUncountedCalls(driver.api());
  CudaDevice device = Device::Open(api, 0).value();
  const CudaMemory gpu = CudaMemory::Create(device, kPool).value();
  const PinnedPool host = PinnedPool::Create(device, {.bytes = kPool, .threads = 1}).value();
  CudaCopyConfig config;
  config.host = &host;
  config.load_path = config.store_path = GetParam().path;
  config.calibrate = !GetParam().path;
  auto backend = CudaCopyBackend::Create(device, config).value();

  const auto loads = Ops(CopyDirection::kLoad, gpu.base(), host.base());
  const auto stores = Ops(CopyDirection::kStore, gpu.base() + kPool / 2, host.base() + kPool / 2);
  // Several batches are in flight at the same time. The batches end in Poll and in Wait.
  const auto round = [&] {
    CopyTicket tickets[6];
    for (size_t i = 0; i < std::size(tickets); ++i) {
      const bool load = i % 2 == 0;
      tickets[i] = backend
                       ->Submit(load ? CopyDirection::kLoad : CopyDirection::kStore,
                                load ? loads : stores, nullptr)
                       .value();
    }
    for (size_t i = 0; i < std::size(tickets); ++i) {
      EXPECT_EQ(i % 3 == 0 ? backend->Wait(tickets[i]) : backend->Poll(tickets[i]),
                CopyState::kDone);
    }
  };
  for (int i = 0; i < 3; ++i) round();
  const size_t before = BackendBytes();
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(BackendBytes(), before);
  EXPECT_TRUE(driver.faults.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Paths, CudaAllocationTest,
    ::testing::Values(Case{"engine", CudaCopyPath::kCopyEngine},
                      Case{"engine_12_8", CudaCopyPath::kCopyEngine, 12080},
                      Case{"engine_one_by_one", CudaCopyPath::kCopyEngine, 12040},
                      Case{"kernel", CudaCopyPath::kKernel}, Case{"staged", CudaCopyPath::kStaged},
                      Case{"calibrated", std::nullopt}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace kvcast::cuda
