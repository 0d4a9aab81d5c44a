// Batches have the right bytes, order and errors on a fake GPU that runs each batch as late as
// possible.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/cuda/cuda_copy_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "kvcast/transfer/transfer_engine.h"
#include "tests/cuda/pools.h"

namespace kvcast::cuda {
namespace {

using kvcast::testing::kLoad;
using kvcast::testing::kStore;
using testing::FakeDriver;
using testing::FakeGpu;
using testing::FakeOptions;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kPoolBytes = 3 << 20;
constexpr size_t kBlock = 4096;

// A fake GPU with its pools, the backend under test, and a stream for the computation of the test.
class World {
 public:
  explicit World(CudaCopyConfig config = {}, const FakeOptions& options = {},
                 size_t registration_bytes = 0)
      : fake(kPoolBytes, kPoolBytes, options, registration_bytes) {
    config.host = fake.host.get();
    config.calibrate = false;
    auto created = CudaCopyBackend::Create(fake.device, config);
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    backend = std::move(created).value();
    compute = fake.driver.NewStream();
  }
  ~World() {
    backend.reset();
    fake.driver.RunAll();
    EXPECT_THAT(fake.driver.faults, IsEmpty());
  }

  std::byte* gpu(size_t offset) const { return fake.gpu->base() + offset; }
  std::byte* host(size_t offset) const { return fake.host->base() + offset; }
  CopyTicket Submit(CopyDirection direction, const std::vector<CopyOp>& ops,
                    CUevent after = nullptr) {
    const auto ticket = backend->Submit(direction, ops, after);
    EXPECT_TRUE(ticket.ok()) << ticket.status().ToString();
    return *ticket;
  }
  CopyOp Op(CopyDirection direction, size_t gpu_offset, size_t host_offset,
            size_t bytes = kBlock) const {
    return direction == kLoad ? CopyOp{host(host_offset), gpu(gpu_offset), bytes, 0, 0, 1}
                              : CopyOp{gpu(gpu_offset), host(host_offset), bytes, 0, 0, 1};
  }

  FakeGpu fake;
  std::unique_ptr<CudaCopyBackend> backend;
  CUstream compute;
};

CudaCopyConfig ForcePath(CudaCopyPath path, size_t staging_bytes = 1 << 20) {
  CudaCopyConfig config;
  config.load_path = path;
  config.store_path = path;
  config.staging_bytes = staging_bytes;
  return config;
}

// Copies of any shape. No two copies overlap: each copy has its own cells on both sides.
std::vector<CopyOp> RandomOps(const World& world, CopyDirection direction, std::mt19937& random,
                              size_t first_cell, size_t last_cell) {
  constexpr size_t kCell = 48 << 10;
  std::vector<size_t> cells;
  for (size_t cell = first_cell; cell < last_cell; ++cell) cells.push_back(cell);
  std::vector<size_t> host_cells = cells;
  std::shuffle(cells.begin(), cells.end(), random);
  std::shuffle(host_cells.begin(), host_cells.end(), random);
  std::vector<CopyOp> ops;
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto rows = static_cast<uint32_t>(1 + random() % 5);
    const size_t unit = random() % 3 == 0 ? 1 : 16;
    const size_t row_bytes = (1 + random() % (8000 / unit)) * unit;
    const size_t pitch = row_bytes + random() % 50 * unit;
    std::byte* const gpu = world.gpu(cells[i] * kCell + random() % 64 * unit);
    std::byte* const host = world.host(host_cells[i] * kCell + random() % 64 * unit);
    if (direction == kLoad) {
      ops.push_back({host, gpu, row_bytes, row_bytes, pitch, rows});
    } else {
      ops.push_back({gpu, host, row_bytes, pitch, row_bytes, rows});
    }
  }
  return ops;
}

struct Case {
  CudaCopyPath path;
  FakeOptions options;
  size_t registration_bytes;
};
class CudaCopyPathTest : public ::testing::TestWithParam<Case> {};

TEST_P(CudaCopyPathTest, CopiesEveryByteAndChangesNoOtherByte) {
  std::mt19937 random(11);
  for (int round = 0; round < 12; ++round) {
    World world(ForcePath(GetParam().path), GetParam().options, GetParam().registration_bytes);
    // Several batches are in flight before the first batch runs.
    world.fake.driver.runs_by_itself = false;
    auto gpu = world.fake.GpuBytes();
    auto host = world.fake.HostBytes();
    std::vector<CopyTicket> tickets;
    for (size_t batch = 0; batch < 4; ++batch) {
      const auto direction = batch % 2 == 0 ? kLoad : kStore;
      const auto ops = RandomOps(world, direction, random, batch * 15, batch * 15 + 15);
      for (CopyOp op : ops) {
        // Returns the same position in the test's copy of the GPU memory or of the host memory.
        const auto place = [&](const std::byte* p) {
          return world.fake.host->Contains(p) ? &host[static_cast<size_t>(p - world.host(0))]
                                              : &gpu[static_cast<size_t>(p - world.gpu(0))];
        };
        op.src = place(op.src);
        op.dst = place(op.dst);
        testing::RunOp(op);
      }
      tickets.push_back(world.Submit(direction, ops));
    }
    for (const CopyTicket ticket : tickets) {
      EXPECT_EQ(world.backend->Poll(ticket), CopyState::kRunning);
    }
    for (const CopyTicket ticket : tickets) {
      EXPECT_EQ(world.backend->Wait(ticket), CopyState::kDone);
    }
    ASSERT_TRUE(world.fake.GpuBytes() == gpu);
    ASSERT_TRUE(world.fake.HostBytes() == host);
    uint64_t by_path = 0;
    for (const auto& lane : {world.backend->stats().loads, world.backend->stats().stores}) {
      for (const auto& size_class : lane.classes) {
        by_path += size_class.copies[static_cast<size_t>(GetParam().path)];
      }
    }
    EXPECT_EQ(by_path, 60u);
  }
}

TEST_P(CudaCopyPathTest, AStoreReadsTheBytesComputedBeforeItsEvent) {
  for (const bool waits : {true, false}) {
    World world(ForcePath(GetParam().path), GetParam().options);
    world.fake.driver.Do(world.compute,
                         [&] { std::fill_n(world.gpu(kBlock), kBlock, std::byte{77}); });
    const CUevent computed = world.fake.driver.RecordNewEvent(world.compute);
    const CopyTicket ticket =
        world.Submit(kStore, {world.Op(kStore, kBlock, 0)}, waits ? computed : nullptr);
    world.fake.driver.RunAllBut(world.compute);
    EXPECT_EQ(world.backend->Wait(ticket), CopyState::kDone);
    // Without the event, the copy runs before the computation.
    EXPECT_EQ(*world.host(0) == std::byte{77} && *world.host(kBlock - 1) == std::byte{77}, waits);
  }
}

TEST_P(CudaCopyPathTest, ALoadWritesAfterTheReadsThatPrecedeItsEvent) {
  for (const bool waits : {true, false}) {
    World world(ForcePath(GetParam().path), GetParam().options);
    const std::byte old = *world.gpu(kBlock);
    ASSERT_NE(old, *world.host(0));
    std::byte seen{};
    world.fake.driver.Do(world.compute, [&] { seen = *world.gpu(kBlock); });
    const CUevent read = world.fake.driver.RecordNewEvent(world.compute);
    const CopyTicket ticket =
        world.Submit(kLoad, {world.Op(kLoad, kBlock, 0)}, waits ? read : nullptr);
    world.fake.driver.RunAllBut(world.compute);
    EXPECT_EQ(world.backend->Wait(ticket), CopyState::kDone);
    world.fake.driver.RunAll();
    EXPECT_EQ(seen == old, waits);
  }
}

TEST_P(CudaCopyPathTest, AHeldBackStreamSeesTheLoadedBytes) {
  for (const bool held_back : {true, false}) {
    World world(ForcePath(GetParam().path), GetParam().options);
    world.fake.driver.runs_by_itself = false;
    const CopyTicket ticket = world.Submit(kLoad, {world.Op(kLoad, kBlock, 0)});
    if (held_back) {
      ASSERT_TRUE(world.backend->HoldBack(world.compute, ticket).ok());
    }
    bool right = false;
    world.fake.driver.Do(world.compute, [&] {
      right = std::equal(world.host(0), world.host(kBlock), world.gpu(kBlock));
    });
    world.fake.driver.RunAlone(world.compute);
    EXPECT_EQ(world.fake.driver.IsIdle(world.compute), !held_back);
    // The result must not depend on the order of the streams, or on how far each stream has run.
    for (FakeDriver::Stream* stream : world.fake.driver.streams) {
      world.fake.driver.RunAlone(reinterpret_cast<CUstream>(stream));
      world.fake.driver.RunAlone(world.compute);
    }
    EXPECT_EQ(world.backend->Wait(ticket), CopyState::kDone);
    world.fake.driver.RunAlone(world.compute);
    EXPECT_EQ(right, held_back);
  }
}

TEST_P(CudaCopyPathTest, ABatchIsDoneWhenItsBytesHaveArrived) {
  World world(ForcePath(GetParam().path), GetParam().options);
  world.fake.driver.runs_by_itself = false;
  const CopyTicket ticket = world.Submit(kLoad, {world.Op(kLoad, kBlock, 0)});
  CopyState state = world.backend->Poll(ticket);
  EXPECT_EQ(state, CopyState::kRunning);
  while (state == CopyState::kRunning) {
    for (FakeDriver::Stream* stream : world.fake.driver.streams) {
      world.fake.driver.RunAlone(reinterpret_cast<CUstream>(stream));
      state = world.backend->Poll(ticket);
      if (state != CopyState::kRunning) break;
    }
  }
  EXPECT_EQ(state, CopyState::kDone);
  EXPECT_TRUE(std::equal(world.host(0), world.host(kBlock), world.gpu(kBlock)));
}

TEST_P(CudaCopyPathTest, ABatchLargerThanTheRingsIsCopiedWhole) {
  for (const auto direction : {kLoad, kStore}) {
    World world(ForcePath(GetParam().path, 512 << 10), GetParam().options);
    world.fake.driver.runs_by_itself = false;
    std::vector<CopyOp> ops;
    for (size_t offset = 0; offset + 150'000 <= kPoolBytes; offset += 150'000) {
      ops.push_back(world.Op(direction, offset, kPoolBytes - 150'000 - offset, 149'999));
    }
    const CopyTicket ticket = world.Submit(direction, ops);
    EXPECT_EQ(world.backend->Wait(ticket), CopyState::kDone);
    for (const CopyOp& op : ops) {
      ASSERT_TRUE(std::equal(op.src, op.src + op.row_bytes, op.dst));
    }
  }
}

TEST_P(CudaCopyPathTest, ABatchThatStartsOnlyInPartHasFailedAndLeavesNoWork) {
  World world(ForcePath(GetParam().path), GetParam().options);
  const bool kernel = GetParam().path == CudaCopyPath::kKernel;
  // The first call succeeds, so copies are in flight when the second call fails.
  const std::vector<CopyOp> ops = {world.Op(kStore, 0, 0, 100), world.Op(kStore, 8192, 8192, 5000)};
  const std::string call = kernel                                      ? "cuLaunchKernel"
                           : world.fake.driver.options.version < 12080 ? "cuMemcpyAsync"
                                                                       : "cuMemcpyBatchAsync";
  world.fake.driver.FailCall(call, CUDA_ERROR_INVALID_VALUE, 2);
  const auto ticket = world.backend->Submit(kStore, ops, nullptr);
  ASSERT_TRUE(ticket.ok());
  for (FakeDriver::Stream* stream : world.fake.driver.streams) EXPECT_TRUE(stream->items.empty());
  EXPECT_EQ(world.backend->Poll(*ticket), CopyState::kFailed);
  EXPECT_EQ(world.backend->stats().stores.failed_batches, 1u);
  EXPECT_EQ(world.backend->stats().poisoned, "");
  // The failure does not affect the next batch.
  const CopyTicket next = world.Submit(kStore, ops);
  EXPECT_EQ(world.backend->Wait(next), CopyState::kDone);
  EXPECT_TRUE(std::equal(world.gpu(8192), world.gpu(8192 + 5000), world.host(8192)));
}

constexpr FakeOptions kHopper{};
INSTANTIATE_TEST_SUITE_P(
    Paths, CudaCopyPathTest,
    ::testing::Values(Case{CudaCopyPath::kCopyEngine, kHopper, 0},
                      Case{CudaCopyPath::kCopyEngine, {.version = 12080}, 0},
                      Case{CudaCopyPath::kCopyEngine, {.version = 12040}, 0},
                      Case{CudaCopyPath::kCopyEngine, kHopper, 48 << 10},
                      Case{CudaCopyPath::kKernel, kHopper, 0},
                      Case{CudaCopyPath::kKernel, {.compute_capability = 80}, 0},
                      Case{CudaCopyPath::kKernel, kHopper, 48 << 10},
                      Case{CudaCopyPath::kStaged, kHopper, 0},
                      Case{CudaCopyPath::kStaged, {.version = 12080, .compute_capability = 80}, 0},
                      Case{CudaCopyPath::kStaged, kHopper, 48 << 10}),
    [](const auto& test) {
      std::string name(CudaCopyPathName(test.param.path));
      std::erase(name, '-');
      name += "_" + std::to_string(test.param.options.version) + "_sm" +
              std::to_string(test.param.options.compute_capability);
      return test.param.registration_bytes > 0 ? name + "_registered_in_parts" : name;
    });

TEST(CudaCopyBackend, UsesTheKernelWithBulkCopiesIfTheGpuHasBulkCopies) {
  for (const int capability : {80, 90}) {
    World world(ForcePath(CudaCopyPath::kKernel), {.compute_capability = capability});
    world.backend->Wait(world.Submit(kLoad, {world.Op(kLoad, 0, 0, 32768)}));
    ASSERT_EQ(world.fake.driver.launches.size(), 1u);
    const auto& launch = world.fake.driver.launches[0];
    EXPECT_EQ(launch.kernel, capability >= 90 ? "kvcast_copy_ring" : "kvcast_copy_warps");
    EXPECT_EQ(launch.count, 2u);
    EXPECT_EQ(launch.blocks, 2u);  // no more blocks than pieces
    if (capability >= 90) {
      EXPECT_EQ(launch.stage_bytes, 16384u);
      EXPECT_EQ(launch.stages, 12u);
    }
  }
}

TEST(CudaCopyBackend, ALargeBatchIsSplitIntoSeveralLaunches) {
  World world(ForcePath(CudaCopyPath::kKernel));
  // The ops copy the same megabyte many times. The test counts launches, not bytes.
  std::vector<CopyOp> ops(100, world.Op(kLoad, 0, 0, 1 << 20));
  world.backend->Wait(world.Submit(kLoad, ops));
  ASSERT_EQ(world.fake.driver.launches.size(), 4u);
  for (const auto& launch : world.fake.driver.launches) EXPECT_LE(launch.count, 2048u);
}

TEST(CudaCopyBackend, TablesOfRunningLaunchesAreNotOverwritten) {
  World world(ForcePath(CudaCopyPath::kKernel));
  world.fake.driver.runs_by_itself = false;
  // A table of 131,072 pieces takes more than half of the ring. Each batch has its own bytes.
  constexpr size_t kPieces = 131'072;
  constexpr size_t kBytes = 8;
  std::vector<CopyTicket> tickets;
  for (size_t batch = 0; batch < 3; ++batch) {
    std::vector<CopyOp> ops;
    for (size_t i = 0; i < kPieces; ++i) {
      const size_t offset = (batch * kPieces + i) * kBytes;
      ops.push_back(world.Op(kLoad, offset, kPoolBytes - kBytes - offset, kBytes));
    }
    tickets.push_back(world.Submit(kLoad, ops));
  }
  for (const CopyTicket ticket : tickets) EXPECT_EQ(world.backend->Wait(ticket), CopyState::kDone);
  for (size_t offset = 0; offset < 3 * kPieces * kBytes; offset += kBytes) {
    const std::byte* const from = world.host(kPoolBytes - kBytes - offset);
    ASSERT_TRUE(std::equal(from, from + kBytes, world.gpu(offset))) << offset;
  }
  EXPECT_GT(world.backend->stats().loads.table_waits, 0u);
}

TEST(CudaCopyBackend, TablesOfRunningLaunchesAreNotOverwrittenAfterABatchWithoutLaunches) {
  World world(ForcePath(CudaCopyPath::kStaged));
  world.fake.driver.runs_by_itself = false;
  const CopyTicket staged = world.Submit(kLoad, {world.Op(kLoad, 0, 0)});
  // The rows are apart in host memory, so the copy engine copies them.
  const CopyOp apart{world.host(64 << 10), world.gpu(64 << 10), kBlock, 2 * kBlock, kBlock, 2};
  EXPECT_EQ(world.backend->Wait(world.Submit(kLoad, {apart})), CopyState::kDone);
  EXPECT_EQ(world.backend->Poll(staged), CopyState::kRunning);
  const CopyTicket next = world.Submit(kLoad, {world.Op(kLoad, 128 << 10, 128 << 10)});
  EXPECT_EQ(world.backend->Wait(staged), CopyState::kDone);
  EXPECT_EQ(world.backend->Wait(next), CopyState::kDone);
  for (const size_t offset : {0, 128 << 10}) {
    EXPECT_TRUE(std::equal(world.host(offset), world.host(offset + kBlock), world.gpu(offset)))
        << offset;
  }
}

TEST(CudaCopyBackend, SourcesAreReadEarlyOnlyIfNoOtherWorkCanWriteThem) {
  CudaCopyConfig config = ForcePath(CudaCopyPath::kCopyEngine);
  config.unordered_loads = true;
  World world(config);
  const CUevent event = world.fake.driver.RecordNewEvent(world.compute);
  world.backend->Wait(world.Submit(kLoad, {world.Op(kLoad, 0, 0)}));
  world.backend->Wait(world.Submit(kLoad, {world.Op(kLoad, 0, 0)}, event));
  world.backend->Wait(world.Submit(kStore, {world.Op(kStore, 0, 0)}));
  std::vector<int> orders;
  for (const auto& batch : world.fake.driver.batches) orders.push_back(batch.order);
  EXPECT_EQ(orders,
            (std::vector<int>{CU_MEMCPY_SRC_ACCESS_ORDER_ANY, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                              CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}));
}

TEST(CudaCopyBackend, OverlapIsRequestedOnlyForSmallFragments) {
  CudaCopyConfig config = ForcePath(CudaCopyPath::kCopyEngine);
  config.prefer_overlap = true;
  World world(config);
  world.backend->Wait(world.Submit(kLoad, {world.Op(kLoad, 0, 0, 128 << 10)}));
  world.backend->Wait(world.Submit(kLoad, {world.Op(kLoad, 0, 0, (128 << 10) + 1)}));
  EXPECT_EQ(world.fake.driver.batches[0].flags, 1u);
  EXPECT_EQ(world.fake.driver.batches[1].flags, 0u);
}

TEST(CudaCopyBackend, TheSizeOfAFragmentDecidesItsPath) {
  World world;  // chooses by the rule of thumb
  std::vector<CopyOp> ops;
  for (size_t i = 0; i < 40; ++i) ops.push_back(world.Op(kStore, i * 8192, i * 8192, 4096));
  ops.push_back(world.Op(kStore, 1 << 20, 1 << 20, 256 << 10));
  EXPECT_EQ(world.backend->Wait(world.Submit(kStore, ops)), CopyState::kDone);
  EXPECT_EQ(world.fake.driver.launches.size(), 1u);
  EXPECT_EQ(world.fake.driver.launches[0].count, 40u);
  ASSERT_EQ(world.fake.driver.batches.size(), 1u);
  EXPECT_EQ(world.fake.driver.batches[0].count, 1u);
  const auto classes = world.backend->stats().stores.classes;
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[0].choice, CudaCopyPath::kKernel);
  EXPECT_EQ(classes[1].choice, CudaCopyPath::kCopyEngine);
}

TEST(CudaCopyBackend, StagedCopiesOfOneRunAreOneDescriptor) {
  World world(ForcePath(CudaCopyPath::kStaged));
  // 16 layers of 4 KiB, 20 KiB apart on the GPU.
  const CopyOp op{world.host(0), world.gpu(0), 4096, 4096, 20480, 16};
  EXPECT_EQ(world.backend->Wait(world.Submit(kLoad, {op})), CopyState::kDone);
  ASSERT_EQ(world.fake.driver.batches.size(), 1u);
  EXPECT_EQ(world.fake.driver.batches[0].count, 1u);
  ASSERT_EQ(world.fake.driver.launches.size(), 1u);
  EXPECT_EQ(world.fake.driver.launches[0].count, 16u);
}

TEST(CudaCopyBackend, AnEmptyBatchIsDone) {
  World world;
  EXPECT_EQ(world.backend->Wait(world.Submit(kLoad, {})), CopyState::kDone);
}

TEST(CudaCopyBackend, CopiesNothingIfTheWaitForTheEventFails) {
  World world;
  const auto before = world.fake.HostBytes();
  const CUevent event = world.fake.driver.RecordNewEvent(world.compute);
  world.fake.driver.FailCall("cuStreamWaitEvent", CUDA_ERROR_INVALID_VALUE);
  const CopyOp op = world.Op(kStore, 0, 0);
  EXPECT_EQ(world.backend->Submit(kStore, {&op, 1}, event).status().message(),
            "cuStreamWaitEvent: CUDA_ERROR_INVALID_VALUE (1)");
  world.fake.driver.RunAll();
  EXPECT_TRUE(world.fake.HostBytes() == before);
}

TEST(CudaCopyBackend, AfterAFailedStreamSynchronizeAllBatchesFail) {
  World world(ForcePath(CudaCopyPath::kCopyEngine));
  world.fake.driver.runs_by_itself = false;
  const CopyTicket before = world.Submit(kLoad, {world.Op(kLoad, 0, 0)});
  world.fake.driver.FailCall("cuMemcpyBatchAsync", CUDA_ERROR_INVALID_VALUE);
  world.fake.driver.FailCall("cuStreamSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS);
  const CopyTicket failed = world.Submit(kStore, {world.Op(kStore, 0, 0)});
  EXPECT_EQ(world.backend->stats().poisoned,
            "cuMemcpyBatchAsync: CUDA_ERROR_INVALID_VALUE (1); then cuStreamSynchronize: "
            "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  // The backend reports all batches as failed, even batches that started before the error.
  EXPECT_EQ(world.backend->Poll(failed), CopyState::kFailed);
  EXPECT_EQ(world.backend->Wait(before), CopyState::kFailed);
  const CopyOp op = world.Op(kLoad, 0, 0);
  const auto refused = world.backend->Submit(kLoad, {&op, 1}, nullptr);
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.status().message(), HasSubstr("after a fatal error"));
}

TEST(CudaCopyBackend, AfterACopyThatBreaksTheGpuAllBatchesFail) {
  World world;
  world.fake.driver.runs_by_itself = false;
  const CopyTicket first = world.Submit(kLoad, {world.Op(kLoad, 0, 0)});
  const CopyTicket second = world.Submit(kStore, {world.Op(kStore, 8192, 8192)});
  world.fake.driver.RunAll();
  world.fake.driver.BreakDown(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(world.backend->Poll(first), CopyState::kFailed);
  EXPECT_EQ(world.backend->Poll(second), CopyState::kFailed);
  EXPECT_THAT(world.backend->stats().poisoned, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST(CudaCopyBackend, AnyThreadMayUseTheBackend) {
  World world;
  CopyState state = CopyState::kRunning;
  std::thread([&] {
    state = world.backend->Wait(world.Submit(kLoad, {world.Op(kLoad, 0, 0)}));
  }).join();
  EXPECT_EQ(state, CopyState::kDone);
}

TEST(CudaCopyBackend, TheDestructorReleasesAllResources) {
  FakeDriver driver;
  {
    const CudaDevice device = driver.Open();
    const auto host = PinnedPool::Create(device, {.bytes = kPoolBytes, .threads = 1}).value();
    const auto gpu = CudaMemory::Create(device, kPoolBytes).value();
    CudaCopyConfig config = ForcePath(CudaCopyPath::kStaged);
    config.host = &host;
    auto backend = CudaCopyBackend::Create(device, config);
    ASSERT_TRUE(backend.ok());
    // The batch is in flight when the backend is destroyed.
    const CopyOp op{host.base(), gpu.base(), kPoolBytes, 0, 0, 1};
    ASSERT_TRUE((*backend)->Submit(kLoad, {&op, 1}, nullptr).ok());
  }
  EXPECT_THAT(driver.faults, IsEmpty());
  EXPECT_EQ(driver.live_streams, 0);
  EXPECT_EQ(driver.live_events, 0);
  EXPECT_EQ(driver.live_modules, 0);
  EXPECT_EQ(driver.live_contexts, 0);
  EXPECT_TRUE(driver.allocations.empty());
  EXPECT_TRUE(driver.registrations.empty());
}

TEST(CudaCopyBackend, CostsAreMeasuredAtTheStart) {
  FakeDriver driver;
  driver.costs.row = 1e-3;  // so slow that rows as one descriptor are never chosen
  const CudaDevice device = driver.Open();
  const auto host = PinnedPool::Create(device, {.bytes = kPoolBytes, .threads = 1}).value();
  const auto gpu = CudaMemory::Create(device, kPoolBytes).value();
  CudaCopyConfig config;
  config.host = &host;
  auto backend = CudaCopyBackend::Create(device, config).value();
  EXPECT_EQ(driver.allocations.size(), 3u);  // the pool and two rings, no probes
  const CudaCopyStats stats = backend->stats();
  EXPECT_TRUE(stats.loads.costs.measured && stats.stores.costs.measured);
  EXPECT_EQ(stats.loads.calibration_error, "");
  EXPECT_NEAR(stats.loads.costs.link_rate / driver.costs.link, 1, 0.05);
  EXPECT_EQ(stats.loads.costs.kernel_blocks, 6);  // 6 x 12 GB/s fill the link
}

TEST(CudaCopyBackend, WorksIfItsOwnMemoryCannotLieOnTheNodeNextToTheGpu) {
  FakeDriver driver({.numa_node = 900});  // no machine has this node
  const CudaDevice device = driver.Open();
  const auto host =
      PinnedPool::Create(device, {.bytes = kPoolBytes, .threads = 1, .near_device = false}).value();
  CudaCopyConfig config;
  config.host = &host;
  const auto backend = CudaCopyBackend::Create(device, config);
  ASSERT_TRUE(backend.ok()) << backend.status().ToString();
  EXPECT_EQ((*backend)->stats().loads.calibration_error, "");
  EXPECT_TRUE((*backend)->stats().loads.costs.measured);
}

TEST(CudaCopyBackend, WithoutCostsARuleOfThumbDecidesAndTheStatsNameTheReason) {
  FakeDriver driver;
  const CudaDevice device = driver.Open();
  const auto host = PinnedPool::Create(device, {.bytes = kPoolBytes, .threads = 1}).value();
  driver.gpu_bytes = 64 << 20;  // room for the rings, but not for the probes as well
  const auto gpu = CudaMemory::Create(device, kPoolBytes).value();
  CudaCopyConfig config;
  config.host = &host;
  config.staging_bytes = 1 << 20;
  auto backend = CudaCopyBackend::Create(device, config);
  ASSERT_TRUE(backend.ok()) << backend.status().ToString();
  EXPECT_FALSE((*backend)->stats().loads.costs.measured);
  EXPECT_THAT((*backend)->stats().loads.calibration_error, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_THAT((*backend)->stats().stores.calibration_error, HasSubstr("bytes of GPU memory"));
}

TEST(CudaCopyBackend, BadConfigurationsAreNamed) {
  FakeGpu fake(kPoolBytes, kPoolBytes);
  const auto error_of = [&](CudaCopyConfig config, bool host = true) {
    if (host) config.host = fake.host.get();
    config.calibrate = false;
    return CudaCopyBackend::Create(fake.device, config).status().message();
  };
  EXPECT_EQ(error_of({}, false), "host: is null");
  EXPECT_EQ(error_of({.kernel_margin = -1}), "kernel_margin: must not be negative");
  EXPECT_EQ(error_of({.kernel_blocks = 1025}), "kernel_blocks: must be in 0..1024");
  EXPECT_EQ(error_of(ForcePath(CudaCopyPath::kStaged, 0)), "staging_bytes: is 0");
  EXPECT_EQ(error_of(ForcePath(CudaCopyPath::kKernel, 1000)),
            "staging_bytes: must be 0 or at least 512 KiB");
}

// A transfer engine uses the backend: blocks of two groups are stored and loaded again.
TEST(CudaCopyBackend, RunsTheJobsOfTheTransferEngine) {
  constexpr int64_t kBlocks = 40;
  FakeGpu fake(2 << 20, 2 << 20);
  CudaCopyConfig config;
  config.host = fake.host.get();
  auto backend = CudaCopyBackend::Create(fake.device, config);
  ASSERT_TRUE(backend.ok());
  TransferConfig transfer;
  // Group 0 has four layers at a constant distance. Group 1 follows: each block is one piece.
  transfer.groups.push_back({{{{fake.gpu->base(), 4096, 4096, 4096 * kBlocks, 4}}, kBlocks}, 1});
  transfer.groups.push_back(
      {{{{fake.gpu->base() + 16384 * kBlocks, 16384, 16384, 0, 1}}, kBlocks}, 1});
  transfer.host = {fake.host->base(), fake.host->bytes(), 16384};
  transfer.max_batch_bytes = kCudaBatchBytes;
  transfer.max_batch_ops = kCudaBatchOps;
  transfer.own_thread = false;
  auto engine = TransferEngine::Create(std::move(transfer), std::move(backend).value()).value();
  const auto before = fake.GpuBytes();
  std::vector<BlockId> blocks;
  std::vector<SlotId> slots[2];
  for (uint32_t i = 1; i < kBlocks; ++i) {
    blocks.push_back(BlockId(i));
    slots[0].push_back(SlotId(2 * i));
    slots[1].push_back(SlotId(2 * (kBlocks - i) + 1));
  }
  const TransferGroup groups[] = {{GroupIdx(0), 0, blocks, slots[0]},
                                  {GroupIdx(1), 0, blocks, slots[1]}};
  std::vector<TransferResult> results;
  for (const auto direction : {kStore, kLoad}) {
    engine->Submit({TransferJobId(1), direction, groups, nullptr});
    engine->WaitAll();
    results.clear();
    engine->Poll(results);
    ASSERT_EQ(results.size(), 1u);
    ASSERT_TRUE(results[0].status.ok()) << results[0].status.ToString();
    if (direction == kStore) std::fill_n(fake.gpu->base(), fake.gpu->bytes(), std::byte{0xA5});
  }
  ASSERT_EQ(engine->stats().loads.jobs, 1u);
  const auto after = fake.GpuBytes();
  for (const int group : {0, 1}) {
    for (size_t block = 1; block < kBlocks; ++block) {
      for (size_t row = 0; row < 4; ++row) {
        const size_t offset = group == 0 ? row * 4096 * kBlocks + block * 4096
                                         : 16384 * kBlocks + block * 16384 + row * 4096;
        ASSERT_TRUE(std::equal(&before[offset], &before[offset] + 4096, &after[offset])) << block;
      }
    }
  }
  EXPECT_THAT(fake.driver.faults, IsEmpty());
}

}  // namespace
}  // namespace kvcast::cuda
