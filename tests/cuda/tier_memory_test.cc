// The simulated engine writes, copies and checks its blocks on a fake GPU.
// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/tier_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "apps/gpu/block_writer.h"
#include "kvcast/cuda/cuda_memory.h"
#include "kvcast/transfer/transfer_engine.h"
#include "tests/cuda/fake_driver.h"

namespace kvcast::cuda {
namespace {

using testing::FakeDriver;
using ::testing::IsEmpty;
using tools::MakeCudaTierMemory;

constexpr size_t kBlockBytes = 64;
constexpr uint32_t kBlocks = 50;

std::vector<BlockId> AllBlocks() {
  std::vector<BlockId> blocks;
  for (uint32_t i = 1; i < kBlocks; ++i) blocks.push_back(BlockId(i));
  return blocks;
}
std::vector<uint64_t> Words(uint64_t first) {
  std::vector<uint64_t> words(kBlocks - 1);
  std::iota(words.begin(), words.end(), first);
  return words;
}

TEST(BlockWriter, CountsBlocksThatDoNotHoldTheirWord) {
  FakeDriver driver;
  const CudaDevice device = driver.Open();
  const auto gpu = CudaMemory::Create(device, kBlocks * kBlockBytes).value();
  auto writer = BlockWriter::Create(device, gpu.base(), kBlockBytes).value();
  ASSERT_TRUE(writer->Fill(AllBlocks(), Words(7000)).ok());
  EXPECT_EQ(*writer->CountWrong(AllBlocks(), Words(7000)), 0);
  gpu.base()[3 * kBlockBytes + 63] ^= std::byte{1};
  gpu.base()[9 * kBlockBytes] ^= std::byte{1};
  EXPECT_EQ(*writer->CountWrong(AllBlocks(), Words(7000)), 2);
  EXPECT_EQ(*writer->CountWrong(AllBlocks(), Words(7001)), 49);
  EXPECT_THAT(driver.faults, IsEmpty());
}

TEST(BlockWriter, ListsAreNotOverwrittenBeforeTheirKernelHasRun) {
  FakeDriver driver;
  const CudaDevice device = driver.Open();
  constexpr uint32_t kMany = 30'000;
  const auto gpu = CudaMemory::Create(device, kMany * kBlockBytes).value();
  auto writer = BlockWriter::Create(device, gpu.base(), kBlockBytes).value();
  std::vector<BlockId> blocks;
  std::vector<uint64_t> words;
  for (uint32_t i = 0; i < kMany; ++i) {
    blocks.push_back(BlockId(i));
    words.push_back(i * 1000);
  }
  // Together, the lists exceed the ring of the writer. The fake driver runs a kernel, which reads
  // its list, only when the writer waits for the stream.
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(writer->Fill(blocks, words).ok());
  std::vector<BlockId> first(blocks.begin(), blocks.begin() + 5000);
  std::vector<uint64_t> other(5000, 1);
  ASSERT_TRUE(writer->Fill(first, other).ok());
  EXPECT_EQ(*writer->CountWrong(first, other), 0);
  EXPECT_EQ(*writer->CountWrong(std::span(blocks).subspan(5000), std::span(words).subspan(5000)),
            0);
  EXPECT_THAT(driver.faults, IsEmpty());
}

TEST(BlockWriter, WorksIfItsTablesCannotLieOnTheNodeNextToTheGpu) {
  FakeDriver driver({.numa_node = 900});  // no machine has this node
  const CudaDevice device = driver.Open();
  const auto gpu = CudaMemory::Create(device, kBlocks * kBlockBytes).value();
  const auto writer = BlockWriter::Create(device, gpu.base(), kBlockBytes);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  ASSERT_TRUE((*writer)->Fill(AllBlocks(), Words(7000)).ok());
  EXPECT_EQ(*(*writer)->CountWrong(AllBlocks(), Words(7000)), 0);
}

TEST(CudaTierMemory, WorksIfItsHostPoolCannotLieOnTheNodeNextToTheGpu) {
  FakeDriver driver({.numa_node = 900});  // no machine has this node
  const auto memory = MakeCudaTierMemory({kBlockBytes, kBlocks, kBlocks}, driver.Open());
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  EXPECT_EQ(memory->host_bytes, kBlocks * kBlockBytes);
}

TEST(CudaTierMemory, LoadedBlocksEqualTheComputedBlocks) {
  FakeDriver driver;
  const CudaDevice device = driver.Open();
  auto memory = MakeCudaTierMemory({kBlockBytes, kBlocks, kBlocks}, device);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  TransferConfig config;
  config.groups.push_back({{{{memory->gpu, kBlockBytes, kBlockBytes, 0, 1}}, kBlocks}, 1});
  config.host = {memory->host, memory->host_bytes, kBlockBytes};
  config.own_thread = false;
  auto engine = TransferEngine::Create(std::move(config), std::move(memory->backend)).value();
  std::vector<SlotId> slots;
  for (uint32_t i = 1; i < kBlocks; ++i) slots.push_back(SlotId(kBlocks - i));
  const auto blocks = AllBlocks();
  const TransferGroup group{GroupIdx(0), 0, blocks, slots};
  // The fake driver computes as late as possible. The computation runs before the store only
  // because the store waits for the computation.
  driver.runs_by_itself = false;
  memory->fill(blocks, Words(5));
  engine->Submit({TransferJobId(1), CopyDirection::kStore, {&group, 1}, memory->computed()});
  engine->WaitAll();
  memory->fill(blocks, Words(900));
  engine->Submit({TransferJobId(2), CopyDirection::kLoad, {&group, 1}, memory->computed()});
  engine->WaitAll();
  EXPECT_EQ(memory->count_wrong(blocks, Words(5)), 0);
  std::vector<TransferResult> results;
  engine->Poll(results);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(results[0].status.ok() && results[1].status.ok());
  EXPECT_THAT(driver.faults, IsEmpty());
}

}  // namespace
}  // namespace kvcast::cuda
