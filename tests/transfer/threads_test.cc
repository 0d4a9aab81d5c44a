// The engine has its own thread, and the host backend has 2 copy threads. The test thread submits
// the jobs and polls.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "kvcast/transfer/host_copy_backend.h"
#include "kvcast/transfer/transfer_engine.h"
#include "tests/support/pools.h"

namespace kvcast {
namespace {

TEST(TransferThreads, LoadedBlocksEqualTheStoredBlocks) {
  constexpr uint32_t kBlocks = 200;
  constexpr size_t kBytes = 40'000;
  std::vector<std::byte> gpu;
  TransferConfig config;
  config.groups.push_back({testing::LayerMajor(gpu, kBlocks, 4, kBytes / 4), 1});
  std::vector<std::byte> host(kBlocks * kBytes);
  config.host = {host.data(), host.size(), kBytes};
  config.max_batch_bytes = 200'000;
  testing::FillWith(gpu, 1);
  const auto before = gpu;
  auto engine = TransferEngine::Create(config, MakeHostCopyBackend({.threads = 2}).value());
  ASSERT_TRUE(engine.ok());

  std::mt19937 random(3);
  std::vector<uint32_t> slot_of(kBlocks);
  for (uint32_t i = 0; i < kBlocks; ++i) slot_of[i] = i;
  std::shuffle(slot_of.begin(), slot_of.end(), random);
  std::vector<TransferResult> results;
  std::set<uint64_t> ended;
  const auto copy_all = [&](CopyDirection direction, uint64_t first_id) {
    for (uint32_t begin = 1; begin < kBlocks; begin += 7) {
      std::vector<BlockId> blocks;
      std::vector<SlotId> slots;
      for (uint32_t i = begin; i < std::min(begin + 7, kBlocks); ++i) {
        blocks.push_back(BlockId(i));
        slots.push_back(SlotId(slot_of[i]));
      }
      const TransferGroup group{GroupIdx(0), 0, blocks, slots};
      (*engine)->Submit({TransferJobId(first_id + begin), direction, {&group, 1}, nullptr});
      (*engine)->Poll(results);
    }
    (*engine)->WaitAll();
    (*engine)->Poll(results);
  };
  copy_all(CopyDirection::kStore, 0);
  std::fill(gpu.begin(), gpu.end(), std::byte{0});
  copy_all(CopyDirection::kLoad, 1000);

  for (const TransferResult& result : results) {
    EXPECT_TRUE(result.status.ok());
    EXPECT_TRUE(ended.insert(result.id.value).second);
  }
  EXPECT_EQ(ended.size(), 2 * 29u);
  auto want = before;
  for (size_t layer = 0; layer < 4; ++layer) {  // the null block is never copied
    std::fill_n(want.begin() + static_cast<long>(layer * kBlocks * kBytes / 4), kBytes / 4,
                std::byte{0});
  }
  EXPECT_TRUE(gpu == want);
}

}  // namespace
}  // namespace kvcast
