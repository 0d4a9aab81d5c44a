// The table ring places tables one after another, reuses released tables, and never overlaps two
// tables.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/table_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace kvcast::cuda {
namespace {

TEST(TableRing, TablesFollowEachOther) {
  TableRing ring(100);
  EXPECT_EQ(ring.Take(40), 0u);
  EXPECT_EQ(ring.Take(40), 40u);
  EXPECT_EQ(ring.Take(40), std::nullopt);
}

TEST(TableRing, ReusesReleasedSpace) {
  TableRing ring(100);
  ring.Take(60);
  const uint64_t first = ring.position();
  EXPECT_EQ(ring.Take(30), 60u);
  ring.Release(first);
  EXPECT_EQ(ring.Take(60), 0u);
  EXPECT_EQ(ring.Take(1), std::nullopt);
}

TEST(TableRing, AnEmptyRingHasRoomForATableOfItsFullSize) {
  TableRing ring(100);
  ring.Take(70);
  ring.Release(ring.position());
  EXPECT_EQ(ring.Take(100), 0u);
  EXPECT_EQ(ring.Take(101), std::nullopt);
}

TEST(TableRing, NoTwoTablesOverlap) {
  constexpr size_t kBytes = 1000;
  std::mt19937 random(3);
  TableRing ring(kBytes);
  struct Table {
    size_t begin, end;
    uint64_t position;
  };
  std::deque<Table> taken;
  int refused = 0;
  for (int step = 0; step < 100'000; ++step) {
    const size_t bytes = 1 + random() % 300;
    if (const auto offset = ring.Take(bytes)) {
      ASSERT_LE(*offset + bytes, kBytes);
      for (const Table& table : taken) {
        ASSERT_TRUE(*offset + bytes <= table.begin || *offset >= table.end);
      }
      taken.push_back({*offset, *offset + bytes, ring.position()});
    } else {
      ++refused;
      ASSERT_FALSE(taken.empty());
    }
    if (!taken.empty() && random() % 2 == 0) {
      ring.Release(taken.front().position);
      taken.pop_front();
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace kvcast::cuda
