// Churn, the workload of the index benchmarks, stores and evicts prompts in the documented order.
// Its operations and its event batches contain the same changes.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/churn.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <variant>

namespace kvcast::bench {
namespace {

class ChurnTest : public ::testing::TestWithParam<ChurnConfig> {};

INSTANTIATE_TEST_SUITE_P(
    Fleets, ChurnTest,
    ::testing::Values(
        ChurnConfig{.residencies = 20'000, .workers = 4, .holders = 1, .blocks = 10},
        ChurnConfig{.residencies = 20'000, .workers = 4, .holders = 4, .blocks = 10},
        ChurnConfig{.residencies = 20'000, .workers = 10, .holders = 4, .blocks = 10},
        ChurnConfig{.residencies = 100, .workers = 64, .holders = 3, .blocks = 10},
        ChurnConfig{
            .residencies = 60'000, .workers = 7, .groups = 3, .holders = 2, .blocks = 625}));

TEST_P(ChurnTest, EveryWorkerEvictsTheOldestPromptOfItsRank) {
  const Churn churn(GetParam());
  // The key is (worker, rank). A worker may be the first holder of some prompts and the third
  // holder of others.
  std::map<std::pair<uint32_t, uint64_t>, std::deque<uint64_t>> held;
  std::set<uint32_t> workers;
  const auto holders = static_cast<uint64_t>(GetParam().holders);
  size_t chains = 0;
  for (uint64_t turn = 0; turn < 2 * churn.steady_turn() + 100; ++turn) {
    const Churn::Turn now = churn.At(turn);
    std::deque<uint64_t>& of_worker = held[{now.worker.value, turn % holders}];
    workers.insert(now.worker.value);
    if (now.removed) {
      ASSERT_FALSE(of_worker.empty());
      ASSERT_EQ(of_worker.front(), *now.removed);
      of_worker.pop_front();
      --chains;
    }
    ASSERT_TRUE(of_worker.empty() || of_worker.back() < now.stored);
    of_worker.push_back(now.stored);
    ++chains;
    if (turn + 1 < churn.steady_turn()) continue;
    ASSERT_EQ(chains * static_cast<size_t>(GetParam().blocks), churn.residencies());
  }
  EXPECT_EQ(workers.size(), static_cast<size_t>(GetParam().workers));
}

TEST_P(ChurnTest, FullyHeldChainsHaveAllTheirHolders) {
  const Churn churn(GetParam());
  std::map<uint64_t, std::set<uint32_t>> holders;
  for (uint64_t turn = 0; turn < 2 * churn.steady_turn(); ++turn) {
    if (turn >= churn.steady_turn()) {
      const Churn::Range range = churn.FullyHeld(turn, 1);
      ASSERT_LE(range.first, range.last);
      for (uint64_t chain = range.first; chain <= range.last; ++chain) {
        ASSERT_EQ(holders[chain].size(), static_cast<size_t>(GetParam().holders));
        ASSERT_TRUE(holders[chain].contains(churn.WorkerOf(chain, 0).value));
      }
    }
    const Churn::Turn now = churn.At(turn);
    ASSERT_TRUE(holders[now.stored].insert(now.worker.value).second);
    if (now.removed) holders[*now.removed].erase(now.worker.value);
  }
}

TEST(Churn, HasAboutTheConfiguredNumberOfResidencies) {
  for (const int64_t holders : {1, 4, 64}) {
    const Churn churn({.residencies = 10'000'000, .holders = holders});
    EXPECT_NEAR(static_cast<double>(churn.residencies()), 1e7, 1e5) << holders;
  }
}

// (hash, group, erase) of the events of a turn, in order.
using Changes = std::vector<std::tuple<uint64_t, int64_t, bool>>;

Changes ChangesOf(const std::vector<EventBatch>& batches) {
  Changes changes;
  for (const EventBatch& batch : batches) {
    for (const Event& event : batch.events) {
      if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
        for (const BlockHash& hash : removed->block_hashes) {
          changes.emplace_back(hash.integer(), *removed->group_idx, true);
        }
        continue;
      }
      const auto& stored = std::get<BlockStored>(event);
      for (const BlockHash& hash : stored.block_hashes) {
        changes.emplace_back(hash.integer(), *stored.group_idx, false);
      }
    }
  }
  return changes;
}

TEST_P(ChurnTest, OperationsEqualTheChangesOfTheEvents) {
  const Churn churn(GetParam());
  for (const Removes removes : {Removes::kEach, Removes::kMerged}) {
    TurnBatches batches(churn, removes);
    for (const uint64_t turn : {uint64_t{0}, churn.steady_turn(), churn.steady_turn() + 7}) {
      const Churn::Turn now = churn.At(turn);
      std::vector<ResidencyOp> ops;
      batches.AppendOps(now, ops);
      Changes changes;
      for (const ResidencyOp& op : ops) {
        EXPECT_EQ(op.worker, now.worker.value);
        changes.emplace_back(op.hash, op.group, op.erase);
      }
      EXPECT_EQ(changes, ChangesOf(batches.Make(now)));
      EXPECT_EQ(batches.ops(now), std::ssize(changes));
    }
  }
}

TEST(TurnBatches, AreStepsOfAnEngine) {
  const Churn churn({.residencies = 5000, .workers = 1});
  TurnBatches batches(churn, Removes::kEach);
  const auto& made = batches.Make(churn.At(churn.steady_turn()));
  ASSERT_EQ(made.size(), 2u);  // 8,192 tokens, then 1,808 tokens
  ASSERT_EQ(made[0].events.size(), 513u);
  ASSERT_EQ(made[1].events.size(), 114u);
  // The last block of the evicted prompt is removed first.
  const auto& removed = std::get<BlockRemoved>(made[0].events[0]);
  EXPECT_EQ(removed.block_hashes[0], BlockHash(churn.HashOf(0, 624)));
  const auto& first = std::get<BlockStored>(made[0].events.back());
  const auto& second = std::get<BlockStored>(made[1].events.back());
  EXPECT_FALSE(first.parent_block_hash);
  EXPECT_EQ(second.parent_block_hash, first.block_hashes.back());
  EXPECT_EQ(second.token_ids->size(), 113u * 16);
}

}  // namespace
}  // namespace kvcast::bench
