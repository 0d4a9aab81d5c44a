// The residencies of all sources together are bounded. Only sources with more than an equal part of
// the bound are dropped.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/residency_budget.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace kvcast::router {
namespace {

using Share = ResidencyBudget::Share;

constexpr uint64_t kMi = 1 << 20;

TEST(MaxResidencies, GrowsWithTheGroupsUpToABound) {
  EXPECT_EQ(MaxResidencies(0, 0), 4 * kMi) << "before the first event";
  EXPECT_EQ(MaxResidencies(0, 1), 4 * kMi);
  EXPECT_EQ(MaxResidencies(0, 3), 12 * kMi);
  EXPECT_EQ(MaxResidencies(0, 16), 64 * kMi);
  EXPECT_EQ(MaxResidencies(0, 256), 64 * kMi) << "the engine chooses the numbers of its groups";
  EXPECT_EQ(MaxResidencies(7, 3), 7u) << "max_residencies is set";
}

TEST(ResidencyBudget, NoSourceIsDroppedBelowTheBound) {
  const auto budget = std::make_shared<ResidencyBudget>(100);
  Share a(budget);
  Share b(budget);
  EXPECT_FALSE(a.Note(90)) << "a source may use the part of another source";
  EXPECT_FALSE(b.Note(10));
  EXPECT_EQ(budget->total(), 100u);
}

TEST(ResidencyBudget, TheSourceWithMoreThanAnEqualPartIsDropped) {
  const auto budget = std::make_shared<ResidencyBudget>(100);
  Share large(budget);
  Share small(budget);
  EXPECT_FALSE(large.Note(80));
  EXPECT_FALSE(small.Note(50)) << "the sum is 130, but the equal part is 50";
  EXPECT_TRUE(large.Note(81));
  EXPECT_FALSE(large.Note(0));
  EXPECT_FALSE(small.Note(90));
  EXPECT_EQ(budget->total(), 90u);
}

TEST(ResidencyBudget, ARemovedSourceDoesNotCount) {
  const auto budget = std::make_shared<ResidencyBudget>(100);
  Share stays(budget);
  {
    Share removed(budget);
    removed.Note(70);
    EXPECT_TRUE(stays.Note(60));
  }
  EXPECT_EQ(budget->total(), 60u);
  EXPECT_FALSE(stays.Note(100)) << "the equal part is the whole bound";
  EXPECT_TRUE(stays.Note(101));
}

TEST(ResidencyBudget, WithoutABoundNoSourceIsDropped) {
  const auto unbounded = std::make_shared<ResidencyBudget>(0);
  Share a(unbounded);
  EXPECT_FALSE(a.Note(uint64_t{1} << 40));
  EXPECT_EQ(unbounded->total(), uint64_t{1} << 40);
  Share none(nullptr);
  EXPECT_FALSE(none.Note(5));
}

// Random sources grow and pause. A source is dropped when Note returns true.
TEST(ResidencyBudget, TheSumOfFixedSourcesStaysBelowTwiceTheBoundAndOneBatchOfEach) {
  constexpr uint64_t kBound = 1000;
  constexpr uint64_t kBatch = 10;
  constexpr size_t kSources = 20;
  std::mt19937 random(7);
  const auto budget = std::make_shared<ResidencyBudget>(kBound);
  std::vector<std::unique_ptr<Share>> shares;
  for (size_t i = 0; i < kSources; ++i) shares.push_back(std::make_unique<Share>(budget));
  std::array<uint64_t, kSources> held{};
  uint64_t most = 0;
  int dropped = 0;
  for (int step = 0; step < 200000; ++step) {
    // For a while, only some sources send.
    const size_t first = static_cast<size_t>(step / 2000) % kSources;
    const size_t i = (first + random() % 5) % kSources;
    held[i] += random() % (kBatch + 1);
    if (shares[i]->Note(held[i])) {
      EXPECT_GT(held[i], kBound / kSources) << "a small source is never dropped";
      held[i] = 0;
      shares[i]->Note(0);
      ++dropped;
    }
    most = std::max(most, budget->total());
  }
  EXPECT_GT(dropped, 100);
  EXPECT_GT(most, kBound);
  EXPECT_LE(most, 2 * kBound + kSources * kBatch);
}

}  // namespace
}  // namespace kvcast::router
