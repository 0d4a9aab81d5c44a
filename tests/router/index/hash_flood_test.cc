// Block hashes that a client chooses do not make the tables of the index slower. A client can
// choose hashes in a query, and an engine can choose them in its events.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/content_events.h"
#include "tests/support/flood.h"
#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

constexpr size_t kNumbers = 50'000;

std::vector<BlockHash> HashesOf(const std::vector<uint64_t>& numbers, size_t first, size_t count) {
  return {numbers.begin() + static_cast<std::ptrdiff_t>(first),
          numbers.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

// Each block is a run of its own, as after many evictions, and has a second copy.
TEST(HashFlood, StoresCopiesAndRemovesCostNoMore) {
  const double ratio = FloodCost(EqualEnds(FloodKeys(kNumbers)), [](const auto& numbers) {
    OneWorker worker(Registered({Full()}));
    for (size_t i = 0; i < numbers.size(); i += 2) {
      const auto hash = HashesOf(numbers, i, 1);
      worker.Apply(Batch(Store(hash), Store(hash)));
    }
    for (size_t i = 0; i < numbers.size(); i += 2) {
      worker.Apply(Batch(Remove(HashesOf(numbers, i, 1))));
    }
    EXPECT_EQ(worker.counters().residencies, numbers.size() / 2);
  });
  EXPECT_LT(ratio, 3);
}

// The index does not have the blocks of the query.
TEST(HashFlood, QueriesCostNoMore) {
  const double ratio = FloodCost(EqualEnds(FloodKeys(kNumbers)), [](const auto& numbers) {
    OneWorker worker(Registered({Full()}));
    for (size_t i = 0; i < numbers.size(); i += 2)
      worker.Apply(Batch(Store(HashesOf(numbers, i, 1))));
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(worker.Match(HashesOf(numbers, i, 1), 17), i % 2 == 0 ? 16 : 0);
    }
  });
  EXPECT_LT(ratio, 3);
}

// The stores wait for parents that the index does not know.
TEST(HashFlood, StoresThatWaitCostNoMore) {
  const double ratio = FloodCost(EqualEnds(FloodKeys(kNumbers)), [](const auto& numbers) {
    ContentWorker worker;
    for (size_t i = 0; i + 1 < numbers.size(); i += 2) {
      const auto parent = HashesOf(numbers, i + 1, 1).front();
      worker.Apply(StoreTokens(HashesOf(numbers, i, 1), Tokens(1, 4), parent));
    }
    EXPECT_EQ(worker.counters().residencies, numbers.size() / 2);
  });
  EXPECT_LT(ratio, 3);
}

}  // namespace
}  // namespace kvcast::testing
