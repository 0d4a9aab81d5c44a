// Jobs of the schedulers become jobs of the TransferEngine.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/offload/offload_transfer.h"

#include "tests/offload/scheduler_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Maps every GPU block to its host memory, as "slot/position in the slot", by the contract of
// TransferGroup.
std::map<BlockId, std::string> PlacesOf(const TransferGroup& group, int64_t blocks_per_chunk) {
  std::map<BlockId, std::string> places;
  for (size_t i = 0; i < group.blocks.size(); ++i) {
    const auto place = static_cast<int64_t>(group.first_block + i);
    const SlotId slot = group.slots[static_cast<size_t>(place / blocks_per_chunk)];
    places[group.blocks[i]] =
        std::to_string(slot.value) + "/" + std::to_string(place % blocks_per_chunk);
  }
  return places;
}

TEST(TransferJobOf, AStoreHasItsGroupsBlocksAndSlots) {
  TestEngine engine(Config({Full(), Window(8)}, 3));
  TestRequest& request = engine.Add(36);
  engine.Match(request);
  const OffloadJob job = engine.Run(request, 36).stores.at(0);
  TransferLists lists;
  int event = 0;
  const TransferJob transfer = ToTransferJob(job, engine.scheduler(), lists, &event);
  EXPECT_EQ(OffloadIdOf(transfer.id), job.id);
  EXPECT_EQ(transfer.direction, CopyDirection::kStore);
  EXPECT_EQ(transfer.after, &event);
  ASSERT_THAT(transfer.groups, SizeIs(2));
  for (size_t g = 0; g < 2; ++g) {
    EXPECT_EQ(transfer.groups[g].group, GroupIdx(static_cast<uint32_t>(g)));
    EXPECT_EQ(PlacesOf(transfer.groups[g], 3), TestEngine::PlacesOf(job, g, 3)) << g;
  }
}

TEST(TransferJobOf, ALoadMayEnterAChunkInTheMiddleAndLeaveOutGroups) {
  TestEngine engine(Config({Full(), Window(4)}, 3));
  engine.Stored(engine.Add(36, 36));
  TestRequest& request = engine.Add(37, 36);
  ASSERT_EQ(engine.Match(request, 8), 28);
  ASSERT_TRUE(engine.Load(request, 28).ok());
  const OffloadJob job = engine.Step().loads.at(0);
  TransferLists lists;
  const TransferJob transfer = ToTransferJob(job, engine.scheduler(), lists);
  EXPECT_EQ(transfer.direction, CopyDirection::kLoad);
  EXPECT_EQ(transfer.after, nullptr);
  ASSERT_THAT(transfer.groups, SizeIs(2));
  EXPECT_EQ(transfer.groups[0].first_block, 2u);
  EXPECT_THAT(transfer.groups[0].blocks, SizeIs(7));
  EXPECT_THAT(transfer.groups[0].slots, SizeIs(3));
  EXPECT_EQ(transfer.groups[1].first_block, 2u) << "the window sees the last block of its chunk";
  EXPECT_THAT(transfer.groups[1].blocks, SizeIs(1));
  EXPECT_THAT(transfer.groups[1].slots, SizeIs(1));
}

TEST(TransferJobOf, AGroupWithoutBlocksIsLeftOut) {
  TestEngine engine(Config({Full(), Window(8)}));
  TestRequest& request = engine.Stored(engine.Add(16));
  engine.Sample(request, 1);
  TestRequest& other = engine.AddCopy(request);
  OffloadJob job;
  job.id = OffloadJobId(7);
  job.request = other.id;
  job.group_sizes = {0, 1};
  job.block_indices = {0, 3};
  job.gpu_blocks = {BlockId(9)};
  job.slots = {SlotId(4)};
  TransferLists lists;
  const TransferJob transfer = ToTransferJob(job, engine.scheduler(), lists);
  ASSERT_THAT(transfer.groups, SizeIs(1));
  EXPECT_EQ(transfer.groups[0].group, GroupIdx(1));
  EXPECT_THAT(transfer.groups[0].blocks, ElementsAre(BlockId(9)));
}

TEST(TransferJobOf, AChunkOfSeveralSlotsHasThemAll) {
  OffloadSchedulerConfig config = Config({Full(), Window(8)});
  config.memory.chunk_bytes = {3 * 4096, 2 * 4096};
  TestEngine engine(config);
  TestRequest& request = engine.Add(16);
  engine.Match(request);
  const OffloadJob job = engine.Run(request, 16).stores.at(0);
  TransferLists lists;
  const TransferJob transfer = ToTransferJob(job, engine.scheduler(), lists);
  EXPECT_THAT(transfer.groups[0].slots, SizeIs(4 * 3));
  EXPECT_THAT(transfer.groups[1].slots, SizeIs(4 * 2));
  EXPECT_EQ(transfer.groups[1].slots.data(), job.slots.data() + 12);
}

TEST(TransferJobOf, PairsAreOneGroupOfWholeBlocks) {
  const BlockPairs pairs{{BlockId(3), BlockId(5)}, {BlockId(8), BlockId(7)}};
  TransferLists lists;
  const TransferJob transfer = ToTransferJob(TransferJobId(4), CopyDirection::kLoad, pairs, lists);
  EXPECT_EQ(transfer.id, TransferJobId(4));
  EXPECT_EQ(transfer.direction, CopyDirection::kLoad);
  ASSERT_THAT(transfer.groups, SizeIs(1));
  EXPECT_EQ(transfer.groups[0].first_block, 0u);
  EXPECT_THAT(transfer.groups[0].blocks, ElementsAre(BlockId(3), BlockId(5)));
  EXPECT_THAT(transfer.groups[0].slots, ElementsAre(SlotId(8), SlotId(7)));
}

}  // namespace
}  // namespace kvcast::offload
