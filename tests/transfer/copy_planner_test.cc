// The planner makes few large copies, and the copies move every byte to the correct address. Errors
// name the block, or the field of the layout.
// SPDX-License-Identifier: Apache-2.0
#include "src/transfer/copy_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/support/pools.h"

namespace kvcast::transfer {
namespace {

using kvcast::testing::AddressOf;
using kvcast::testing::BlockMajor;
using kvcast::testing::FillWith;
using kvcast::testing::LayerMajor;

// All batches of a plan.
struct CopyPlan {
  std::vector<CopyOp> ops;
  std::vector<CopyBatch> batches;
};

Status PlanAll(CopyDirection direction, const GroupLayout& layout, const HostLayout& host,
               const BatchLimits& limits, std::vector<BlockMove> moves, CopyPlan& plan) {
  MoveSorter sorter;
  if (Status status = sorter.Prepare(direction, layout, host, moves); !status.ok()) return status;
  CopyPlanner planner(limits);
  planner.Start(direction, layout, host.base, moves);
  for (bool more = true; more;) {
    CopyBatch batch;
    more = !planner.Fill(batch);
    if (batch.size() == 0) continue;
    plan.ops.insert(plan.ops.end(), batch.ops().begin(), batch.ops().end());
    plan.batches.push_back(std::move(batch));
  }
  return {};
}

class CopyPlannerTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 64;  // bytes of a block

  std::vector<BlockMove> Moves(const std::vector<std::pair<uint32_t, size_t>>& block_to_slot) {
    std::vector<BlockMove> moves;
    for (const auto& [block, slot] : block_to_slot) {
      moves.push_back({BlockId(block), 0, kBytes, slot * kBytes});
    }
    return moves;
  }
  Status Plan(CopyDirection direction, std::vector<BlockMove> moves) {
    return PlanAll(direction, layout_, {host_.data(), host_.size(), kBytes}, limits_,
                   std::move(moves), plan_);
  }

  std::vector<std::byte> gpu_;
  std::vector<std::byte> host_ = std::vector<std::byte>(64 * kBytes);
  GroupLayout layout_ = BlockMajor(gpu_, 64, kBytes);
  BatchLimits limits_;
  CopyPlan plan_;
};

TEST_F(CopyPlannerTest, NeighboursOnBothSidesAreOneCopy) {
  ASSERT_TRUE(Plan(CopyDirection::kStore, Moves({{4, 10}, {5, 11}, {6, 12}})).ok());
  ASSERT_EQ(plan_.ops.size(), 1u);
  EXPECT_EQ(plan_.ops[0].src, gpu_.data() + 4 * kBytes);
  EXPECT_EQ(plan_.ops[0].dst, host_.data() + 10 * kBytes);
  EXPECT_EQ(plan_.ops[0].bytes(), 3 * kBytes);
}

TEST_F(CopyPlannerTest, RunsThatDescendTogetherAreOneCopy) {
  ASSERT_TRUE(Plan(CopyDirection::kStore, Moves({{6, 12}, {5, 11}, {4, 10}})).ok());
  EXPECT_EQ(plan_.ops.size(), 1u);
  ASSERT_TRUE(Plan(CopyDirection::kLoad, Moves({{6, 12}, {5, 11}, {4, 10}})).ok());
  EXPECT_EQ(plan_.ops.size(), 2u);
}

TEST_F(CopyPlannerTest, NeighboursOnOneSideAloneStayApart) {
  ASSERT_TRUE(Plan(CopyDirection::kStore, Moves({{4, 10}, {6, 11}, {5, 12}})).ok());
  EXPECT_EQ(plan_.ops.size(), 3u);
}

TEST_F(CopyPlannerTest, LayersAtAConstantDistanceAreRowsOfOneCopy) {
  layout_ = LayerMajor(gpu_, 64, 4, kBytes / 4);
  ASSERT_TRUE(Plan(CopyDirection::kLoad, Moves({{7, 3}})).ok());
  ASSERT_EQ(plan_.ops.size(), 1u);
  EXPECT_EQ(plan_.ops[0].rows, 4u);
  EXPECT_EQ(plan_.ops[0].row_bytes, kBytes / 4);
  EXPECT_EQ(plan_.ops[0].src_pitch, kBytes / 4);
  EXPECT_EQ(plan_.ops[0].dst_pitch, 64 * kBytes / 4);
}

TEST_F(CopyPlannerTest, BatchesHaveBoundedBytesAndCopies) {
  limits_ = {.bytes = 3 * kBytes, .ops = 2};
  // A run of 7 blocks is cut into 3 + 3 + 1. Two single blocks follow. A batch may have two copies,
  // so the batch with the last block of the run has room for one single block.
  ASSERT_TRUE(
      Plan(CopyDirection::kStore,
           Moves({{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}, {20, 7}, {30, 8}}))
          .ok());
  std::vector<size_t> bytes;
  for (const CopyBatch& batch : plan_.batches) bytes.push_back(batch.bytes() / kBytes);
  EXPECT_EQ(bytes, (std::vector<size_t>{3, 3, 2, 1}));
}

TEST_F(CopyPlannerTest, MovesOutOfBoundsAreRefusedAndAddNothing) {
  const auto refused = [&](BlockMove move) {
    const Status status = Plan(CopyDirection::kStore, {{BlockId(1), 0, kBytes, 0}, move});
    EXPECT_TRUE(plan_.ops.empty());
    return status.message();
  };
  EXPECT_EQ(refused({BlockId(64), 0, kBytes, kBytes}), "block 64: is not in the pool");
  EXPECT_EQ(refused({BlockId(2), 1, kBytes, kBytes}), "block 2: is shorter than the move");
  EXPECT_EQ(refused({BlockId(2), SIZE_MAX, 2, kBytes}), "block 2: is shorter than the move");
  EXPECT_EQ(refused({BlockId(2), 0, kBytes, 63 * kBytes + 1}),
            "block 2: its slot is not in host memory");
  EXPECT_EQ(refused({BlockId(2), 0, kBytes, SIZE_MAX - 1}),
            "block 2: its slot is not in host memory");
}

TEST_F(CopyPlannerTest, SourcesMayBeReadTwice) {
  EXPECT_TRUE(Plan(CopyDirection::kStore, {{BlockId(1), 0, 8, 0}, {BlockId(1), 0, 8, 8}}).ok());
}

TEST_F(CopyPlannerTest, SourcesAreReadInOrder) {
  ASSERT_TRUE(Plan(CopyDirection::kStore, Moves({{9, 1}, {3, 20}, {6, 7}})).ok());
  ASSERT_TRUE(Plan(CopyDirection::kLoad, Moves({{9, 1}, {3, 20}, {6, 7}})).ok());
  std::vector<const std::byte*> sources;
  for (const CopyOp& op : plan_.ops) sources.push_back(op.src);
  const std::byte* const gpu = gpu_.data();
  const std::byte* const host = host_.data();
  EXPECT_EQ(sources,
            (std::vector<const std::byte*>{gpu + 3 * kBytes, gpu + 6 * kBytes, gpu + 9 * kBytes,
                                           host + kBytes, host + 7 * kBytes, host + 20 * kBytes}));
}

// Compares the copies of a plan with the definition of a layout, byte by byte.
class CopyPlannerRandomTest : public ::testing::TestWithParam<int> {
 protected:
  size_t RandomNumber(size_t from, size_t to) {
    return std::uniform_int_distribution<size_t>(from, to)(random_);
  }

  BlockPart RandomPart(std::vector<std::byte>& memory, size_t blocks) {
    BlockPart part;
    part.rows = static_cast<uint32_t>(RandomNumber(1, 4));
    part.row_bytes = RandomNumber(1, 40);
    const size_t gap = RandomNumber(0, 1) * RandomNumber(1, 9);
    if (RandomNumber(0, 1) == 0) {  // block by block
      part.row_pitch = part.row_bytes + gap;
      part.block_stride = part.rows * part.row_pitch + RandomNumber(0, 5);
    } else {  // row by row
      part.block_stride = part.row_bytes + gap;
      part.row_pitch = blocks * part.block_stride + RandomNumber(0, 5);
    }
    memory.resize(blocks * part.block_stride + part.rows * part.row_pitch);
    part.base = memory.data();
    return part;
  }

  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
};

TEST_P(CopyPlannerRandomTest, EveryByteArrivesAndNoOtherChanges) {
  const size_t blocks = RandomNumber(1, 20);
  std::vector<std::vector<std::byte>> memories(RandomNumber(1, 3));
  GroupLayout layout{{}, static_cast<int64_t>(blocks)};
  for (auto& memory : memories) layout.parts.push_back(RandomPart(memory, blocks));
  ASSERT_TRUE(ValidateLayout(layout).ok());
  for (size_t i = 0; i < memories.size(); ++i) FillWith(memories[i], i);
  const size_t block_bytes = layout.block_bytes();
  const size_t num_slots = blocks + RandomNumber(0, 5);
  std::vector<std::byte> host(num_slots * block_bytes);
  FillWith(host, 99);

  // The orders are random or ascending. Some blocks are moved whole, and some in two pieces.
  std::vector<uint32_t> ids(blocks);
  std::vector<size_t> slots(num_slots);
  std::iota(ids.begin(), ids.end(), uint32_t{0});
  std::iota(slots.begin(), slots.end(), size_t{0});
  if (RandomNumber(0, 2) > 0) std::shuffle(ids.begin(), ids.end(), random_);
  if (RandomNumber(0, 2) > 0) std::shuffle(slots.begin(), slots.end(), random_);
  std::vector<BlockMove> moves;
  for (size_t i = 0, count = RandomNumber(1, blocks); i < count; ++i) {
    const size_t cut = RandomNumber(0, 1) * RandomNumber(0, block_bytes);
    const size_t host_offset = slots[i] * block_bytes;
    if (cut > 0) moves.push_back({BlockId(ids[i]), 0, cut, host_offset});
    if (cut < block_bytes) {
      moves.push_back({BlockId(ids[i]), cut, block_bytes - cut, host_offset + cut});
    }
  }

  const auto direction = RandomNumber(0, 1) == 0 ? CopyDirection::kLoad : CopyDirection::kStore;
  const auto gpu_before = memories;
  auto want_host = host;
  const auto host_before = host;
  const BatchLimits limits{.bytes = RandomNumber(1, 200), .ops = RandomNumber(1, 8)};
  CopyPlan plan;
  ASSERT_TRUE(
      PlanAll(direction, layout, {host.data(), host.size(), block_bytes}, limits, moves, plan)
          .ok());
  for (const CopyBatch& batch : plan.batches) {
    size_t bytes = 0;
    for (const CopyOp& op : batch.ops()) {
      bytes += op.bytes();
      for (uint32_t row = 0; row < op.rows; ++row) {
        std::memcpy(op.dst + row * op.dst_pitch, op.src + row * op.src_pitch, op.row_bytes);
      }
    }
    EXPECT_EQ(bytes, batch.bytes());
    EXPECT_LE(bytes, limits.bytes);
    EXPECT_LE(batch.size(), limits.ops);
  }

  // The oracle moves single bytes, starting from the contents before the copies.
  const auto got = memories;
  const auto got_host = host;
  for (size_t i = 0; i < memories.size(); ++i) {
    std::copy(gpu_before[i].begin(), gpu_before[i].end(), memories[i].begin());
  }
  for (const BlockMove& move : moves) {
    for (size_t i = 0; i < move.bytes; ++i) {
      std::byte* const gpu = AddressOf(layout, move.block.value, move.offset + i);
      if (direction == CopyDirection::kStore) {
        want_host[move.host_offset + i] = *gpu;
      } else {
        *gpu = host_before[move.host_offset + i];
      }
    }
  }
  EXPECT_EQ(got, memories);
  EXPECT_EQ(got_host, want_host);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CopyPlannerRandomTest, ::testing::Range(0, 400));

TEST(BlockLayout, RefusesOverlapsAndNamesTheMember) {
  std::byte memory[1];
  const auto problem = [&](BlockPart part, int64_t blocks = 4) {
    part.base = memory;
    return ValidateLayout({{part}, blocks}).message();
  };
  EXPECT_EQ(problem({.block_stride = 8, .row_bytes = 8}), "");
  EXPECT_EQ(problem({.block_stride = 7, .row_bytes = 8}), "parts[0].block_stride: blocks overlap");
  EXPECT_EQ(problem({.block_stride = 0, .row_bytes = 8}, 1), "");
  EXPECT_EQ(problem({.block_stride = 8, .row_bytes = 0}), "parts[0].row_bytes: must be positive");
  EXPECT_EQ(problem({.block_stride = 16, .row_bytes = 8, .row_pitch = 7, .rows = 2}),
            "parts[0].row_pitch: rows overlap");
  EXPECT_EQ(problem({.block_stride = 16, .row_bytes = 8, .row_pitch = 8, .rows = 2}), "");
  EXPECT_EQ(problem({.block_stride = 15, .row_bytes = 8, .row_pitch = 8, .rows = 2}),
            "parts[0].block_stride: blocks overlap");
  EXPECT_EQ(problem({.block_stride = 8, .row_bytes = 8, .row_pitch = 32, .rows = 2}), "");
  EXPECT_EQ(problem({.block_stride = 8, .row_bytes = 8, .row_pitch = 31, .rows = 2}),
            "parts[0].block_stride: blocks overlap");
  EXPECT_EQ(problem({.block_stride = 8, .row_bytes = 8, .rows = 0}),
            "parts[0].rows: must be positive");
  EXPECT_EQ(ValidateLayout({}).message(), "parts: is empty");
  EXPECT_EQ(ValidateLayout({{BlockPart{}}, 0}).message(), "num_blocks: must be positive");
  EXPECT_EQ(ValidateLayout({{BlockPart{}}, 1}).message(), "parts[0].base: must not be null");
}

}  // namespace
}  // namespace kvcast::transfer
