// LocatorTable agrees with a multimap. The hashes collide: they have the same shard, the same
// bucket or the same fingerprint.
// SPDX-License-Identifier: Apache-2.0
#include "router/index/locator_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace kvcast::router {
namespace {

struct LocatorTableTest : ::testing::Test {
  // In these tests, the locator of a key is the key itself.
  Locator Find(uint64_t hash, Locator key) const {
    return table.Find(hash, [key](Locator locator) { return locator == key; });
  }
  SlabArena arena;
  ReclaimDomain reclaim;
  LocatorTable table{arena, reclaim};
};

bool TrimAll(LocatorTable& table) {
  bool again = false;
  for (size_t shard = 0; shard < LocatorTable::kShards; ++shard) again |= table.Trim(shard);
  return again;
}

TEST_F(LocatorTableTest, IsEmptyAtFirst) {
  EXPECT_EQ(Find(0, 1), 0u);
  table.PrefetchPath(0);
  table.Prefetch(0);
  EXPECT_EQ(table.size(), 0u);
}

TEST_F(LocatorTableTest, DistinguishesKeysOfEqualHash) {
  for (Locator key = 1; key <= 100; ++key) table.Insert(42, key);
  for (Locator key = 1; key <= 100; ++key) EXPECT_EQ(Find(42, key), key);
  EXPECT_EQ(Find(42, 101), 0u);
  for (Locator key = 1; key <= 100; key += 2) table.Erase(42, key);
  for (Locator key = 1; key <= 100; ++key) EXPECT_EQ(Find(42, key), key % 2 == 0 ? key : 0);
  EXPECT_EQ(table.size(), 50u);
}

// A lookup by content visits all runs with the same first content. If it visited an entry twice,
// one run would look like two runs.
TEST_F(LocatorTableTest, VisitsEachEntryOnce) {
  std::mt19937_64 random(5);
  constexpr size_t kEqual = 40;  // more entries than five buckets hold
  for (int i = 0; i < 100; ++i) {
    const uint64_t hash = random();
    for (Locator key = 1; key <= kEqual; ++key) table.Insert(hash, key);
    std::map<Locator, int> visits;
    table.Find(hash, [&visits](Locator locator) {
      ++visits[locator];
      return false;
    });
    EXPECT_EQ(visits.size(), kEqual);
    for (const auto& [locator, times] : visits) ASSERT_EQ(times, 1) << locator;
  }
}

TEST_F(LocatorTableTest, TheLargestLocatorAndEveryBitOfAHashAreKept) {
  constexpr Locator kLargest = (Locator{1} << 36) - 1;
  for (const uint64_t hash : {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 63}) {
    table.Insert(hash, kLargest);
    EXPECT_EQ(Find(hash, kLargest), kLargest);
    table.Replace(hash, kLargest, 5);
    EXPECT_EQ(Find(hash, kLargest), 0u);
    EXPECT_EQ(Find(hash, 5), 5u);
  }
}

TEST_F(LocatorTableTest, GivesMemoryBackWhenItEmpties) {
  std::mt19937_64 random(3);
  std::vector<uint64_t> hashes(2'000'000);
  for (uint64_t& hash : hashes) hash = random();
  for (size_t i = 0; i < hashes.size(); ++i) table.Insert(hashes[i], i + 1);
  reclaim.Collect();
  const size_t full = arena.slabs();
  for (size_t i = 0; i < hashes.size(); ++i) ASSERT_EQ(Find(hashes[i], i + 1), i + 1);
  for (size_t i = 0; i < hashes.size(); ++i) table.Erase(hashes[i], i + 1);
  reclaim.Collect();
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(arena.slabs(), full) << "an erasure rebuilds no shard";
  EXPECT_TRUE(TrimAll(table)) << "the shards grew since the last call";
  EXPECT_FALSE(TrimAll(table));
  reclaim.Collect();
  EXPECT_LT(arena.slabs(), full / 2);
}

// Growth by a half leaves free room. Trim reduces the room to the amount that growth by an eighth
// would leave.
TEST_F(LocatorTableTest, TrimTakesTheRoomThatGrowthLeft) {
  std::mt19937_64 random(5);
  constexpr size_t kHashes = 2'000'000;
  for (size_t i = 0; i < kHashes; ++i) table.Insert(random(), i + 1);
  EXPECT_TRUE(TrimAll(table));
  EXPECT_FALSE(TrimAll(table));
  reclaim.Collect();
  random.seed(5);
  for (size_t i = 0; i < kHashes; ++i) ASSERT_EQ(Find(random(), i + 1), i + 1);
  EXPECT_LT(arena.bytes(), kHashes * 16);
}

TEST_F(LocatorTableTest, AgreesWithAMultimap) {
  std::mt19937_64 random(4);
  std::multimap<uint64_t, Locator> held;
  // The hashes have few shards and few home buckets, and their fingerprints are often equal.
  const auto hash_of = [&random] {
    return random() % 4 << 60 | random() % 64 << 48 | random() % 3 << 26;
  };
  Locator next = 1;
  size_t target = 0;
  for (int step = 0; step < 60'000; ++step) {
    if (step % 6000 == 0) target = step % 12'000 == 0 ? 3000 : 20;
    const bool grow = held.size() < target ? random() % 4 != 0 : random() % 4 == 0;
    if (grow || held.empty()) {
      const uint64_t hash = hash_of();
      LocatorTable::Room room = nullptr;
      const auto is_key = [next](Locator locator) { return locator == next; };
      const Locator found = random() % 2 == 0 ? table.Find(hash, is_key, &room) : 0;
      EXPECT_EQ(found, 0u);
      table.Insert(hash, next, room);
      held.emplace(hash, next++);
    } else {
      auto it = held.lower_bound(hash_of());
      if (it == held.end()) it = held.begin();
      if (random() % 4 == 0) {
        table.Replace(it->first, it->second, next);
        EXPECT_EQ(Find(it->first, it->second), 0u);
        it->second = next++;
      } else {
        table.Erase(it->first, it->second);
        EXPECT_EQ(Find(it->first, it->second), 0u);
        held.erase(it);
      }
    }
    ASSERT_EQ(table.size(), held.size());
    if (step % 500 != 0) continue;
    if (step % 1500 == 0) TrimAll(table);
    for (const auto& [hash, locator] : held) ASSERT_EQ(Find(hash, locator), locator);
  }
}

// The filter never rejects a hash of the table, also after growth, after shrinking, or with full
// buckets. It rejects most other hashes.
TEST_F(LocatorTableTest, TheFilterAcceptsEveryHashOfTheTable) {
  LocatorTable filtered(arena, reclaim, LocatorTable::Filter::kKept);
  EXPECT_FALSE(filtered.MayHave(7));
  std::mt19937_64 random(11);
  std::vector<std::pair<uint64_t, Locator>> held;
  Locator next = 1;
  const auto insert = [&](uint64_t hash) {
    held.emplace_back(hash, next);
    LocatorTable::Room room = nullptr;
    filtered.Find(
        hash, [](Locator) { return false; }, &room);
    filtered.Insert(hash, next++, room);
  };
  const auto check = [&] {
    for (const auto& [hash, locator] : held) ASSERT_TRUE(filtered.MayHave(hash));
  };
  for (int round = 0; round < 6; ++round) {
    // In every 40th iteration, 20 hashes share a home bucket, which has room for seven.
    for (int i = 0; i < 2000; ++i) {
      const uint64_t home = random();
      for (uint64_t beside = 0; beside < (i % 40 == 0 ? 20 : 1); ++beside) {
        insert(home ^ beside << 27);
      }
    }
    check();
    std::shuffle(held.begin(), held.end(), random);
    for (size_t left = round % 2 == 0 ? 50 : held.size() * 2 / 3; held.size() > left;) {
      filtered.Erase(held.back().first, held.back().second);
      held.pop_back();
    }
    check();
    TrimAll(filtered);
    check();
  }
  for (int i = 0; i < 20'000; ++i) insert(random());
  int passed = 0;
  constexpr int kAsked = 20'000;
  for (int i = 0; i < kAsked; ++i) passed += filtered.MayHave(random());
  EXPECT_LT(passed, kAsked / 8);
  while (!held.empty()) {
    filtered.Erase(held.back().first, held.back().second);
    held.pop_back();
  }
  passed = 0;
  for (int i = 0; i < kAsked; ++i) passed += filtered.MayHave(random());
  // A filter bit may stay set if the bucket was full before.
  EXPECT_LT(passed, kAsked / 100);
}

}  // namespace
}  // namespace kvcast::router
