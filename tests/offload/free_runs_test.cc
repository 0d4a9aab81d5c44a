// FreeRuns keeps free slots as runs of neighbours and allocates from the shortest run that is long
// enough. SlotPool allocates disjoint chains of slots.
// SPDX-License-Identifier: Apache-2.0
#include "src/offload/manager/free_runs.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "src/offload/manager/slot_pool.h"

namespace kvcast::offload {
namespace {

std::string Text(const FreeRuns& runs) {
  std::string text;
  runs.ForEach([&](uint32_t slot) { text += std::to_string(slot) + " "; });
  return text;
}

std::string Taken(FreeRuns& runs, uint32_t count) {
  const SlotRun run = runs.Take(count);
  return std::to_string(run.first) + "+" + std::to_string(run.count);
}

TEST(FreeRuns, NeighboursBecomeOneRun) {
  FreeRuns runs;
  runs.Add({4, 2});
  runs.Add({8, 2});
  runs.Add({6, 2});
  EXPECT_EQ(Text(runs), "4 5 6 7 8 9 ");
  EXPECT_EQ(Taken(runs, 6), "4+6");
  EXPECT_EQ(Taken(runs, 1), "0+0");
}

TEST(FreeRuns, TheShortestThatIsLongEnoughIsTaken) {
  FreeRuns runs;
  runs.Add({0, 8});
  runs.Add({20, 3});
  runs.Add({30, 4});
  EXPECT_EQ(Taken(runs, 4), "30+4");
  EXPECT_EQ(Taken(runs, 3), "20+3");
  EXPECT_EQ(Taken(runs, 2), "0+2");
  EXPECT_EQ(Taken(runs, 9), "2+6") << "the whole longest run";
}

// Compares random calls with a set of the slots in use.
TEST(SlotPool, ChainsAreDisjointAndOfAscendingRuns) {
  std::mt19937_64 random(3);
  const auto pick = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  SlotPool pool(200);
  std::set<uint32_t> used;
  std::vector<uint32_t> chains;
  for (int i = 0; i < 20000; ++i) {
    if (pick(0, 1) == 0 && !chains.empty()) {
      std::swap(chains[static_cast<size_t>(pick(0, std::ssize(chains) - 1))], chains.back());
      pool.ForEach(chains.back(), [&](uint32_t slot) { ASSERT_EQ(used.erase(slot), 1u); });
      pool.Release(chains.back());
      chains.pop_back();
    } else {
      int64_t left = std::min(pick(1, 30), pool.num_available());
      pool.Announce(left);
      while (left > 0) {
        const int64_t count = pick(1, left);
        left -= count;
        chains.push_back(pool.Take(count));
        int64_t length = 0;
        pool.ForEach(chains.back(), [&](uint32_t slot) {
          ASSERT_TRUE(used.insert(slot).second);
          ++length;
        });
        ASSERT_EQ(length, count);
      }
    }
    ASSERT_EQ(pool.num_available(), 200 - std::ssize(used));
    int64_t free = 0;
    pool.ForEachFree([&](uint32_t slot) {
      ASSERT_FALSE(used.contains(slot));
      ++free;
    });
    ASSERT_EQ(free, pool.num_free());
  }
  EXPECT_EQ(pool.num_used_once(), 200);
}

}  // namespace
}  // namespace kvcast::offload
