// The engine and the host backend copy the right rows. The sizes of Pages are those of vLLM's own
// tests: 64 GPU blocks, 256 host blocks, four tensors per block, chunks of one or three blocks, and
// three chunks per job.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "kvcast/transfer/host_copy_backend.h"
#include "kvcast/transfer/transfer_engine.h"
#include "tests/support/pools.h"

namespace kvcast {
namespace {

using testing::FillWith;
using testing::kLoad;
using testing::kStore;

std::unique_ptr<CopyBackend> HostBackend() { return MakeHostCopyBackend({.threads = 2}).value(); }

// `tensors` tensors of `blocks` pages each, one after another in `memory`.
GroupLayout Tensors(std::vector<std::byte>& memory, size_t tensors, int64_t blocks, size_t page) {
  const size_t bytes = static_cast<size_t>(blocks) * page;
  memory.resize(tensors * bytes);
  GroupLayout layout{{}, blocks};
  for (size_t t = 0; t < tensors; ++t) {
    layout.parts.push_back(
        {.base = memory.data() + t * bytes, .block_stride = page, .row_bytes = page});
  }
  return layout;
}

// Parameters: page bytes; blocks per chunk; true if the job begins with the last block of a chunk;
// direction.
class Pages : public ::testing::TestWithParam<std::tuple<size_t, uint32_t, bool, CopyDirection>> {
 protected:
  static constexpr size_t kTensors = 4;
  static constexpr size_t kGpuBlocks = 64;
  static constexpr size_t kHostBlocks = 256;
};
INSTANTIATE_TEST_SUITE_P(Rows, Pages,
                         ::testing::Combine(::testing::Values(512, 1024), ::testing::Values(1, 3),
                                            ::testing::Bool(), ::testing::Values(kLoad, kStore)));

TEST_P(Pages, ThreeChunksArriveAndNoOtherByteChanges) {
  const auto [page, blocks_per_chunk, starts_at_last_block, direction] = GetParam();
  const uint32_t first = starts_at_last_block ? blocks_per_chunk - 1 : 0;
  const size_t block_bytes = kTensors * page;
  std::vector<std::byte> gpu;
  std::vector<std::byte> host(kHostBlocks * block_bytes);
  TransferConfig config;
  config.groups.push_back({Tensors(gpu, kTensors, kGpuBlocks, page), blocks_per_chunk});
  config.host = {host.data(), host.size(), blocks_per_chunk * block_bytes};
  FillWith(gpu, 1);
  FillWith(host, 2);
  auto want_gpu = gpu;
  auto want_host = host;

  const std::vector<SlotId> slots = {SlotId(7), SlotId(40), SlotId(2)};
  std::vector<BlockId> blocks;
  for (uint32_t i = first; i < 3 * blocks_per_chunk; ++i) {
    const uint32_t block = 1 + (i * 23) % 63;
    blocks.push_back(BlockId(block));
    for (size_t t = 0; t < kTensors; ++t) {
      const size_t in_gpu = (t * kGpuBlocks + block) * page;
      const size_t in_host = slots[i / blocks_per_chunk].value * config.host.slot_bytes +
                             i % blocks_per_chunk * block_bytes + t * page;
      if (direction == kStore) {
        std::copy_n(gpu.begin() + long(in_gpu), page, want_host.begin() + long(in_host));
      } else {
        std::copy_n(host.begin() + long(in_host), page, want_gpu.begin() + long(in_gpu));
      }
    }
  }
  auto engine = TransferEngine::Create(config, HostBackend());
  ASSERT_TRUE(engine.ok());
  const TransferGroup group{GroupIdx(0), first, blocks, slots};
  (*engine)->Submit({TransferJobId(1), direction, {&group, 1}, nullptr});
  (*engine)->WaitAll();
  EXPECT_TRUE(gpu == want_gpu);
  EXPECT_TRUE(host == want_host);
  const TransferStats stats = (*engine)->stats();
  const TransferStats::Lane& lane = direction == kStore ? stats.stores : stats.loads;
  EXPECT_EQ(lane.blocks, blocks.size());
  EXPECT_EQ(lane.bytes, blocks.size() * block_bytes);
  EXPECT_EQ(lane.failed_jobs, 0u);
}

// Three groups of two tensors. The second group has nothing to copy, and the third begins inside a
// chunk.
TEST(Groups, OfOneJobMayBeEmptyOrEnterAChunkInTheMiddle) {
  std::vector<std::byte> gpu[3];
  std::vector<std::byte> host(64 * 2048);
  TransferConfig config;
  config.groups.push_back({Tensors(gpu[0], 2, 16, 512), 2});
  config.groups.push_back({Tensors(gpu[1], 2, 16, 512), 2});
  config.groups.push_back({Tensors(gpu[2], 2, 16, 256), 4});
  config.host = {host.data(), host.size(), 2048};
  for (uint64_t i = 0; i < 3; ++i) FillWith(gpu[i], i);
  FillWith(host, 9);
  auto want = host;
  const auto store = [&](size_t group, size_t block, size_t offset) {
    const size_t page = config.groups[group].layout.parts[0].row_bytes;
    for (size_t t = 0; t < 2; ++t) {
      std::copy_n(gpu[group].begin() + long((t * 16 + block) * page), page,
                  want.begin() + long(offset + t * page));
    }
  };
  const std::vector<BlockId> blocks[] = {
      {BlockId(3), BlockId(9)}, {}, {BlockId(5), BlockId(6), BlockId(2)}};
  const std::vector<SlotId> slots[] = {{SlotId(11)}, {}, {SlotId(30), SlotId(8)}};
  store(0, 3, 11 * 2048);
  store(0, 9, 11 * 2048 + 1024);
  store(2, 5, 30 * 2048 + 2 * 512);
  store(2, 6, 30 * 2048 + 3 * 512);
  store(2, 2, 8 * 2048);
  const std::vector<TransferGroup> groups = {{GroupIdx(0), 0, blocks[0], slots[0]},
                                             {GroupIdx(1), 0, blocks[1], slots[1]},
                                             {GroupIdx(2), 2, blocks[2], slots[2]}};
  auto engine = TransferEngine::Create(config, HostBackend());
  ASSERT_TRUE(engine.ok());
  (*engine)->Submit({TransferJobId(1), kStore, groups, nullptr});
  (*engine)->WaitAll();
  EXPECT_TRUE(host == want);
  EXPECT_EQ((*engine)->stats().stores.blocks, 5u);

  // Loads the bytes back into cleared blocks.
  std::vector<std::byte> before[3];
  for (size_t g = 0; g < 3; ++g) {
    before[g] = gpu[g];
    for (const BlockId block : blocks[g]) {
      const size_t page = config.groups[g].layout.parts[0].row_bytes;
      for (size_t t = 0; t < 2; ++t) {
        std::fill_n(gpu[g].begin() + long((t * 16 + block.value) * page), page, std::byte{0});
      }
    }
  }
  (*engine)->Submit({TransferJobId(2), kLoad, groups, nullptr});
  (*engine)->WaitAll();
  for (size_t g = 0; g < 3; ++g) EXPECT_TRUE(gpu[g] == before[g]) << g;
}

TEST(HostCopyBackend, RowsOfEverySizeThatIsTriedOnDevices) {
  for (const size_t bytes : {8u, 4088u, 4096u, 8192u, 8200u, 16384u}) {
    constexpr size_t kCopies = 8;
    std::vector<std::byte> source(kCopies * bytes);
    std::vector<std::byte> target(source.size());
    FillWith(source, bytes);
    std::vector<CopyOp> ops;
    for (size_t i = 0; i < kCopies; ++i) {
      ops.push_back({source.data() + (kCopies - 1 - i) * bytes, target.data() + i * bytes, bytes});
    }
    const auto backend = HostBackend();
    const auto ticket = backend->Submit(kStore, ops, nullptr);
    ASSERT_TRUE(ticket.ok());
    ASSERT_EQ(backend->Wait(*ticket), CopyState::kDone);
    for (size_t i = 0; i < kCopies; ++i) {
      EXPECT_TRUE(std::equal(target.begin() + long(i * bytes),
                             target.begin() + long((i + 1) * bytes),
                             source.begin() + long((kCopies - 1 - i) * bytes)))
          << bytes;
    }
  }
}

// Records the events that its batches had to wait for.
class EventBackend final : public CopyBackend {
 public:
  explicit EventBackend(std::vector<std::pair<CopyDirection, void*>>& seen) : seen_(seen) {}
  std::string_view name() const override { return "event"; }
  Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp>,
                            void* after) override {
    seen_.emplace_back(direction, after);
    return CopyTicket(seen_.size());
  }
  CopyState Poll(CopyTicket) override { return CopyState::kDone; }
  CopyState Wait(CopyTicket) override { return CopyState::kDone; }

 private:
  std::vector<std::pair<CopyDirection, void*>>& seen_;
};

TEST(TransferEngine, EveryBatchOfAJobWaitsForTheJobsEventInBothDirections) {
  std::vector<std::byte> gpu;
  std::vector<std::byte> host(16 * 64);
  TransferConfig config;
  config.groups.push_back({testing::BlockMajor(gpu, 16, 64), 1});
  config.host = {host.data(), host.size(), 64};
  config.max_batch_bytes = 64;
  config.own_thread = false;
  std::vector<std::pair<CopyDirection, void*>> seen;
  auto engine = TransferEngine::Create(config, std::make_unique<EventBackend>(seen));
  ASSERT_TRUE(engine.ok());
  int events[2];
  const std::vector<BlockId> blocks = {BlockId(1), BlockId(3), BlockId(5)};
  const std::vector<SlotId> slots = {SlotId(1), SlotId(2), SlotId(3)};
  const TransferGroup group{GroupIdx(0), 0, blocks, slots};
  (*engine)->Submit({TransferJobId(1), kStore, {&group, 1}, &events[0]});
  (*engine)->Submit({TransferJobId(2), kLoad, {&group, 1}, &events[1]});
  (*engine)->WaitAll();
  ASSERT_EQ(seen.size(), 6u);
  for (const auto& [direction, after] : seen) {
    EXPECT_EQ(after, &events[direction == kLoad ? 1 : 0]);
  }
}

}  // namespace
}  // namespace kvcast
