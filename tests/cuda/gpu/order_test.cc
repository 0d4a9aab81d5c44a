// Copies keep their order with computation on a GPU. Each test has a control run in which no stream
// waits. If the control run finds no wrong bytes, the test proves nothing and fails.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/gpu/gpu.h"

namespace kvcast::cuda {
namespace {

constexpr size_t kBytes = 1 << 20;

class GpuOrder : public testing::GpuTest, public ::testing::WithParamInterface<CudaCopyPath> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    CudaCopyConfig config;
    config.calibrate = false;
    config.load_path = config.store_path = GetParam();
    backend_ = Backend(config);
    // At the first copies, the driver loads the kernels. While it loads them, the driver may wait
    // for all streams.
    Store(nullptr);
    Load(nullptr);
  }

  std::vector<CopyOp> Ops(bool load) const {
    std::vector<CopyOp> ops;
    for (size_t offset = 0; offset < kBytes; offset += 8192) {
      const CopyOp op{
          load ? host(offset) : gpu(offset), load ? gpu(offset) : host(offset), 8192, 0, 0, 1};
      ops.push_back(op);
    }
    return ops;
  }
  CopyTicket Start(bool load, CUevent after) {
    return backend_->Submit(load ? CopyDirection::kLoad : CopyDirection::kStore, Ops(load), after)
        .value();
  }
  void Store(CUevent after) { EXPECT_EQ(backend_->Wait(Start(false, after)), CopyState::kDone); }
  void Load(CUevent after) { EXPECT_EQ(backend_->Wait(Start(true, after)), CopyState::kDone); }
  void SyncCompute() { ASSERT_DRIVER_OK(api().StreamSynchronize(compute_->get())); }

  std::unique_ptr<CudaCopyBackend> backend_;
};

TEST_P(GpuOrder, AStoreReadsTheBytesComputedBeforeItsEvent) {
  const Event computed = MakeEvent(device_).value();
  for (const bool waits : {true, false}) {
    SetCompute(gpu(0), kBytes, 1);
    SyncCompute();
    StallCompute();
    SetCompute(gpu(0), kBytes, 2);
    ASSERT_DRIVER_OK(api().EventRecord(computed.get(), compute_->get()));
    Store(waits ? computed.get() : nullptr);
    size_t stale = 0;
    for (size_t i = 0; i < kBytes; ++i) stale += *host(i) != std::byte{2};
    EXPECT_EQ(stale, waits ? 0 : kBytes) << (waits ? "with" : "without") << " the event";
    SyncCompute();
  }
}

TEST_P(GpuOrder, ALoadWritesAfterTheReadsThatPrecedeItsEvent) {
  const Event read = MakeEvent(device_).value();
  for (const bool waits : {true, false}) {
    std::memset(host(0), 3, kBytes);
    SetCompute(gpu(0), kBytes, 1);
    SyncCompute();
    StallCompute();
    ASSERT_DRIVER_OK(api().MemcpyAsync(reinterpret_cast<CUdeviceptr>(mirror_->base()),
                                       reinterpret_cast<CUdeviceptr>(gpu(0)), kBytes,
                                       compute_->get()));
    ASSERT_DRIVER_OK(api().EventRecord(read.get(), compute_->get()));
    Load(waits ? read.get() : nullptr);
    SyncCompute();
    size_t overwritten = 0;
    for (size_t i = 0; i < kBytes; ++i) overwritten += mirror_->base()[i] != std::byte{1};
    EXPECT_EQ(overwritten, waits ? 0 : kBytes) << (waits ? "with" : "without") << " the event";
  }
}

TEST_P(GpuOrder, AHeldBackStreamSeesTheLoadedBytes) {
  const Event gate = MakeEvent(device_).value();
  const Stream stalled = MakeStream(device_).value();
  for (const bool held_back : {true, false}) {
    std::memset(host(0), 3, kBytes);
    SetCompute(gpu(0), kBytes, 1);
    SyncCompute();
    // The stall delays the load itself.
    ASSERT_TRUE(
        LaunchTool(device_, kernels_->stall, 1, 1, stalled.get(), uint64_t{100'000'000}).ok());
    ASSERT_DRIVER_OK(api().EventRecord(gate.get(), stalled.get()));
    const CopyTicket ticket = Start(true, gate.get());
    if (held_back) {
      ASSERT_TRUE(backend_->HoldBack(compute_->get(), ticket).ok());
    }
    Copy(mirror_->base(), gpu(0), kBytes);
    size_t stale = 0;
    for (size_t i = 0; i < kBytes; ++i) stale += mirror_->base()[i] != std::byte{3};
    EXPECT_EQ(stale, held_back ? 0 : kBytes) << (held_back ? "held back" : "not held back");
    EXPECT_EQ(backend_->Wait(ticket), CopyState::kDone);
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, GpuOrder,
                         ::testing::Values(CudaCopyPath::kCopyEngine, CudaCopyPath::kKernel,
                                           CudaCopyPath::kStaged),
                         [](const auto& test) {
                           std::string name(CudaCopyPathName(test.param));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace kvcast::cuda
