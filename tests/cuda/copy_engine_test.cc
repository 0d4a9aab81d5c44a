// The copy engine passes the right arguments to each form of the driver's copy calls.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/copy_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/cuda/pools.h"

namespace kvcast::cuda {
namespace {

using kvcast::testing::kLoad;
using kvcast::testing::kStore;
using testing::FakeDriver;
using testing::FakeGpu;
using testing::RunOp;

constexpr size_t kPage = 4096;
constexpr size_t kPool = 64 * kPage;

struct Form {
  CopyCall call;
  int version;
  const char* runs;  // the call that copies contiguous bytes
  const char* rows;  // the call that copies the rows of one descriptor
};
constexpr Form kForms[] = {
    {CopyCall::kBatch13000, 13000, "cuMemcpyBatchAsync 13.0", "cuMemcpy3DBatchAsync 13.0"},
    {CopyCall::kBatch12080, 12080, "cuMemcpyBatchAsync 12.8", "cuMemcpy3DBatchAsync 12.8"},
    {CopyCall::kLoop, 12040, "cuMemcpyAsync", "cuMemcpyAsync"},
};

class CopyEngineTest : public ::testing::TestWithParam<Form> {
 protected:
  CopyEngineTest() : stream_(fake_.driver.NewStream()) {}
  ~CopyEngineTest() override {
    fake_.driver.RunAll();
    EXPECT_THAT(fake_.driver.faults, ::testing::IsEmpty());
  }

  Status Copy(CopyDirection direction, const std::vector<CopyOp>& ops,
              CopyEngineOptions options = {}) {
    options.call = GetParam().call;
    const CopyEngine engine(fake_.device, fake_.host.get());
    counts_ = {};
    return engine.Enqueue(direction, ops, options, descriptors_, stream_, counts_);
  }
  std::byte* gpu(size_t offset) const { return fake_.gpu->base() + offset; }
  std::byte* host(size_t offset) const { return fake_.host->base() + offset; }

  FakeGpu fake_{kPool, kPool, {.version = GetParam().version}};
  CUstream stream_;
  CopyDescriptors descriptors_;
  CopyEngineCounts counts_;
};

TEST_P(CopyEngineTest, TheNewestCallOfTheDriverIsTaken) {
  EXPECT_EQ(CopyEngine::NewestCall(fake_.driver.api()), GetParam().call);
}

TEST_P(CopyEngineTest, RunsAreOneCall) {
  std::vector<CopyOp> ops;
  for (size_t i = 0; i < 8; ++i) {
    ops.push_back({host(i * 2 * kPage), gpu((7 - i) * kPage), kPage - i, 0, 0, 1});
  }
  auto want = fake_.GpuBytes();
  for (const CopyOp& op : ops) {
    std::memcpy(&want[static_cast<size_t>(op.dst - gpu(0))], op.src, op.row_bytes);
  }
  ASSERT_TRUE(Copy(kLoad, ops).ok());
  fake_.driver.RunAll();
  EXPECT_TRUE(fake_.GpuBytes() == want);
  const bool loop = GetParam().call == CopyCall::kLoop;
  ASSERT_EQ(fake_.driver.batches.size(), loop ? 8u : 1u);
  EXPECT_EQ(fake_.driver.batches[0].call, GetParam().runs);
  EXPECT_EQ(fake_.driver.batches[0].count, loop ? 1u : 8u);
  EXPECT_EQ(counts_.calls, loop ? 8u : 1u);
  EXPECT_EQ(counts_.descriptors, 8u);
}

TEST_P(CopyEngineTest, SourcesAreReadInStreamOrderUnlessTheCopyIsUnordered) {
  const CopyOp op{host(0), gpu(0), kPage, 0, 0, 1};
  ASSERT_TRUE(Copy(kLoad, {op}).ok());
  EXPECT_EQ(fake_.driver.batches[0].order, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
  EXPECT_EQ(fake_.driver.batches[0].flags, 0u);
  ASSERT_TRUE(Copy(kLoad, {op}, {.unordered = true, .prefer_overlap = true}).ok());
  if (GetParam().call == CopyCall::kLoop) return;  // this call has no attributes
  EXPECT_EQ(fake_.driver.batches[1].order, CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
  EXPECT_EQ(fake_.driver.batches[1].flags,
            static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE));
}

TEST_P(CopyEngineTest, RowsAreOneDescriptorIfRequested) {
  const CopyOp op{gpu(0), host(kPage), 512, 3 * 512, 512, 6};
  auto want = fake_.HostBytes();
  for (size_t row = 0; row < 6; ++row) {
    std::memcpy(&want[kPage + row * 512], gpu(row * 3 * 512), 512);
  }
  for (const bool as_one : {true, false}) {
    FakeGpu::Fill(fake_.host->base(), kPool, 2);
    fake_.driver.batches.clear();
    ASSERT_TRUE(Copy(kStore, {op}, {.rows_as_one = as_one}).ok());
    fake_.driver.RunAll();
    EXPECT_TRUE(fake_.HostBytes() == want);
    const bool one = as_one && GetParam().call != CopyCall::kLoop;
    EXPECT_EQ(counts_.descriptors, one ? 1u : 6u);
    EXPECT_EQ(fake_.driver.batches[0].call, one ? GetParam().rows : GetParam().runs);
    EXPECT_EQ(fake_.driver.batches[0].order, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
  }
}

TEST_P(CopyEngineTest, RunsAndRowsOfOneBatchAreTwoCalls) {
  const CopyOp run{gpu(0), host(0), 100, 0, 0, 1};
  const CopyOp rows{gpu(kPage), host(kPage), 100, 200, 100, 4};
  ASSERT_TRUE(Copy(kStore, {run, rows}, {.rows_as_one = true}).ok());
  const bool loop = GetParam().call == CopyCall::kLoop;
  EXPECT_EQ(counts_.calls, loop ? 5u : 2u);
  fake_.driver.RunAll();
  EXPECT_EQ(std::memcmp(host(kPage + 300), gpu(kPage + 600), 100), 0);
}

TEST_P(CopyEngineTest, EmptyCopiesAreNotPassedToTheDriver) {
  ASSERT_TRUE(Copy(kLoad, {{host(0), gpu(0), 0, 0, 0, 1}}).ok());
  ASSERT_TRUE(Copy(kLoad, {{host(0), gpu(0), 0, 64, 64, 4}}, {.rows_as_one = true}).ok());
  EXPECT_TRUE(fake_.driver.batches.empty());
}

TEST_P(CopyEngineTest, AnErrorNamesTheCallAndTheCopyIfItIsKnown) {
  std::vector<std::byte> pageable(kPage);
  const CopyOp good{host(0), gpu(0), kPage, 0, 0, 1};
  const CopyOp bad{pageable.data(), gpu(kPage), kPage, 0, 0, 1};
  const CopyEngine engine(fake_.device, nullptr);
  const Status status = engine.Enqueue(kLoad, std::vector{good, bad}, {.call = GetParam().call},
                                       descriptors_, stream_, counts_);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  const std::string invalid = ": CUDA_ERROR_INVALID_VALUE (1)";
  switch (GetParam().call) {
    case CopyCall::kBatch13000:
      EXPECT_EQ(status.message(), "cuMemcpyBatchAsync" + invalid);
      break;
    case CopyCall::kBatch12080:
      EXPECT_EQ(status.message(), "cuMemcpyBatchAsync" + invalid + ", copy 1");
      break;
    case CopyCall::kLoop:
      EXPECT_EQ(status.message(), "cuMemcpyAsync" + invalid + ", copy 1");
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, CopyEngineTest, ::testing::ValuesIn(kForms),
                         [](const auto& test) { return std::to_string(test.param.version); });

TEST(CopyEngineRegistrations, CopiesAreSplitAtTheEndsOfRegistrations) {
  FakeGpu fake(kPool, kPool, {}, 4 * kPage);
  const CUstream stream = fake.driver.NewStream();
  const CopyEngine engine(fake.device, fake.host.get());
  CopyDescriptors descriptors;
  CopyEngineCounts counts;
  // `run` lies in three registrations. One row of `crossing` crosses the border of two
  // registrations. No row of `inside` crosses a border.
  const CopyOp run{fake.gpu->base(), fake.host->base() + kPage, 9 * kPage, 0, 0, 1};
  const CopyOp crossing{
      fake.gpu->base() + 20 * kPage, fake.host->base() + 15 * kPage + 3000, 512, 1024, 512, 4};
  const CopyOp inside{
      fake.gpu->base() + 30 * kPage, fake.host->base() + 24 * kPage, 512, 1024, 512, 4};
  for (const CopyOp& op : {run, crossing, inside}) {
    auto want = fake.HostBytes();
    for (uint32_t row = 0; row < op.rows; ++row) {
      std::memcpy(&want[static_cast<size_t>(op.dst - fake.host->base()) + row * op.dst_pitch],
                  op.src + row * op.src_pitch, op.row_bytes);
    }
    const Status status =
        engine.Enqueue(kStore, {&op, 1}, {.call = CopyCall::kBatch13000, .rows_as_one = true},
                       descriptors, stream, counts);
    ASSERT_TRUE(status.ok()) << status.ToString();
    fake.driver.RunAll();
    EXPECT_TRUE(fake.HostBytes() == want);
  }
  ASSERT_EQ(fake.driver.batches.size(), 3u);
  EXPECT_EQ(fake.driver.batches[0].count, 3u);
  EXPECT_EQ(fake.driver.batches[1].call, "cuMemcpyBatchAsync 13.0");
  EXPECT_EQ(fake.driver.batches[1].count, 5u);
  EXPECT_EQ(fake.driver.batches[2].call, "cuMemcpy3DBatchAsync 13.0");
  EXPECT_THAT(fake.driver.faults, ::testing::IsEmpty());
}

}  // namespace
}  // namespace kvcast::cuda
