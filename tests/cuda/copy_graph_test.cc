// A launched graph of copies moves the right bytes; a driver without graphs gives an error.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/copy/copy_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/pools.h"

namespace kvcast::cuda {
namespace {

using testing::FakeGpu;
using ::testing::IsEmpty;
using testing::RunOp;

constexpr size_t kPool = 1 << 20;
constexpr size_t kBlock = 4096;
constexpr size_t kCopies = 20;

// Copies between kCopies adjacent GPU blocks and every third host block. Both sequences of blocks
// begin at block `first`.
std::vector<CopyOp> Copies(const FakeGpu& fake, CopyDirection direction, size_t first) {
  std::vector<CopyOp> ops;
  for (size_t i = 0; i < kCopies; ++i) {
    std::byte* const gpu = fake.gpu->base() + (first + i) * kBlock;
    std::byte* const host = fake.host->base() + (first + 3 * i) * kBlock;
    const bool load = direction == CopyDirection::kLoad;
    ops.push_back({load ? host : gpu, load ? gpu : host, kBlock, 0, 0, 1});
  }
  return ops;
}

class CopyGraphTest : public ::testing::TestWithParam<CopyDirection> {};

TEST_P(CopyGraphTest, ALaunchRunsTheCopiesThatItsNodesHaveAtTheLaunch) {
  FakeGpu fake(kPool, kPool);
  fake.driver.runs_by_itself = false;
  auto graph = CopyGraph::Create(fake.device, GetParam(), Copies(fake, GetParam(), 1));
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const auto stream = MakeStream(fake.device);
  ASSERT_TRUE(stream.ok());

  auto gpu = fake.GpuBytes();
  auto host = fake.HostBytes();
  const auto expect = [&](const std::vector<CopyOp>& ops) {
    const auto expected_address = [&](const std::byte* address) {
      return fake.host->Contains(address) ? host.data() + (address - fake.host->base())
                                          : gpu.data() + (address - fake.gpu->base());
    };
    for (CopyOp op : ops) {
      op.src = expected_address(op.src);
      op.dst = expected_address(op.dst);
      RunOp(op);
    }
  };
  ASSERT_TRUE(graph->Launch(stream->get()).ok());
  expect(Copies(fake, GetParam(), 1));
  const std::vector<CopyOp> others = Copies(fake, GetParam(), 100);
  ASSERT_TRUE(graph->Rebind(others).ok());
  ASSERT_TRUE(graph->Launch(stream->get()).ok());
  expect(others);
  fake.driver.RunAll();
  EXPECT_EQ(fake.GpuBytes(), gpu);
  EXPECT_EQ(fake.HostBytes(), host);
  ASSERT_EQ(fake.driver.batches.size(), 2u);
  EXPECT_EQ(fake.driver.batches[1].call, "cuGraphLaunch");
  EXPECT_EQ(fake.driver.batches[1].count, kCopies);
  EXPECT_THAT(fake.driver.faults, IsEmpty());
}

TEST_P(CopyGraphTest, AFailedCreateLeavesNoGraph) {
  for (const char* const call :
       {"cuGraphCreate", "cuGraphAddMemcpyNode", "cuGraphInstantiateWithFlags"}) {
    FakeGpu fake(kPool, kPool);
    fake.driver.FailCall(call, CUDA_ERROR_OUT_OF_MEMORY);
    const auto graph = CopyGraph::Create(fake.device, GetParam(), Copies(fake, GetParam(), 1));
    EXPECT_EQ(graph.status().code(), StatusCode::kExhausted);
    EXPECT_THAT(graph.status().message(), ::testing::StartsWith(call));
    EXPECT_EQ(fake.driver.live_graphs, 0);
  }
}

TEST_P(CopyGraphTest, ErrorsOfARebindAndOfALaunchAreReturned) {
  FakeGpu fake(kPool, kPool);
  const std::vector<CopyOp> ops = Copies(fake, GetParam(), 1);
  {
    auto graph = CopyGraph::Create(fake.device, GetParam(), ops);
    ASSERT_TRUE(graph.ok());
    fake.driver.FailCall("cuGraphExecMemcpyNodeSetParams", CUDA_ERROR_INVALID_VALUE, 3);
    EXPECT_EQ(graph->Rebind(ops).message(),
              "cuGraphExecMemcpyNodeSetParams: CUDA_ERROR_INVALID_VALUE (1)");
    fake.driver.FailCall("cuGraphLaunch", CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(graph->Launch(nullptr).code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(fake.driver.live_graphs, 0);
}

TEST_P(CopyGraphTest, ADriverThatLacksOneFunctionDoesNotOfferGraphs) {
  for (const char* const call :
       {"cuGraphCreate", "cuGraphDestroy", "cuGraphAddMemcpyNode", "cuGraphInstantiateWithFlags",
        "cuGraphExecMemcpyNodeSetParams", "cuGraphExecDestroy", "cuGraphLaunch"}) {
    FakeGpu fake(kPool, kPool, {.missing = call});
    const auto graph = CopyGraph::Create(fake.device, GetParam(), Copies(fake, GetParam(), 1));
    EXPECT_EQ(graph.status().code(), StatusCode::kFailedPrecondition) << call;
    EXPECT_EQ(graph.status().message(), "the CUDA driver does not support graphs of copies");
  }
}

INSTANTIATE_TEST_SUITE_P(Directions, CopyGraphTest,
                         ::testing::Values(CopyDirection::kLoad, CopyDirection::kStore),
                         [](const auto& param) {
                           return param.param == CopyDirection::kLoad ? "load" : "store";
                         });

}  // namespace
}  // namespace kvcast::cuda
