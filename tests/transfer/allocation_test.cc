// Steady traffic of the transfer engine allocates no memory.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kvcast/transfer/host_copy_backend.h"
#include "kvcast/transfer/transfer_engine.h"
#include "tests/support/counting_new.h"
#include "tests/support/pools.h"

namespace kvcast {
namespace {

TEST(TransferAllocation, AfterTheFirstJobsNoJobAllocates) {
  constexpr uint32_t kBlocks = 1000;
  constexpr size_t kBytes = 4096;
  std::vector<std::byte> gpu;
  TransferConfig config;
  config.groups.push_back({testing::LayerMajor(gpu, kBlocks, 4, kBytes / 4), 1});
  std::vector<std::byte> host(kBlocks * kBytes);
  config.host = {host.data(), host.size(), kBytes};
  config.own_thread = false;  // the engine works and allocates on the test's thread
  auto engine = TransferEngine::Create(config, MakeHostCopyBackend({.threads = 1}).value());
  ASSERT_TRUE(engine.ok());

  std::vector<BlockId> blocks;
  std::vector<SlotId> slots;
  for (uint32_t i = 1; i < kBlocks; ++i) {
    blocks.push_back(BlockId(i));
    slots.push_back(SlotId(kBlocks - 1 - i * 7 % kBlocks));  // not sorted
  }
  std::vector<TransferResult> results;
  uint64_t next = 0;
  const auto round = [&] {
    for (int job = 0; job < 4; ++job) {
      const TransferGroup group{GroupIdx(0), 0, blocks, slots};
      const auto direction = job % 2 == 0 ? CopyDirection::kStore : CopyDirection::kLoad;
      (*engine)->Submit({TransferJobId(next++), direction, {&group, 1}, nullptr});
      (*engine)->WaitAll();
    }
    results.clear();
    (*engine)->Poll(results);
    for (const TransferResult& result : results) EXPECT_TRUE(result.status.ok());
    return results.size();
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(round(), 4u);
  const size_t before = wire::AllocatedBytes();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(round(), 4u);
  EXPECT_EQ(wire::AllocatedBytes(), before);
}

}  // namespace
}  // namespace kvcast
