// The slab arena returns disjoint, aligned objects, reuses freed objects, and frees empty slabs.
// SPDX-License-Identifier: Apache-2.0
#include "src/base/slab_arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace kvcast {
namespace {

constexpr size_t kSlab = size_t{2} << 20;

TEST(SlabArenaTest, ObjectsOfAllSizesKeepTheirBytes) {
  SlabArena arena;
  std::mt19937 random(7);
  std::map<uint8_t*, std::pair<size_t, uint8_t>> objects;
  for (int step = 0; step < 20000; ++step) {
    if (objects.size() > 300 || (!objects.empty() && random() % 3 == 0)) {
      auto it = objects.begin();
      std::advance(it, static_cast<ptrdiff_t>(random() % objects.size()));
      const auto [bytes, fill] = it->second;
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(it->first[i], fill);
      arena.Free(it->first);
      objects.erase(it);
      continue;
    }
    size_t bytes = 8 + random() % (size_t{1} << (random() % 13));
    if (random() % 2 == 0) bytes = (bytes + 63) / 64 * 64;
    auto* const object = static_cast<uint8_t*>(arena.Allocate(bytes));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(object) % (bytes % 64 == 0 ? 64 : 16), 0u);
    const auto fill = static_cast<uint8_t>(step);
    std::memset(object, fill, bytes);
    ASSERT_TRUE(objects.emplace(object, std::pair(bytes, fill)).second);
  }
  for (const auto& [object, bytes_and_fill] : objects) arena.Free(object);
}

TEST(SlabArenaTest, EmptySlabsAreFreed) {
  SlabArena arena;
  std::vector<void*> objects(3 * kSlab / 1000);
  for (void*& object : objects) object = arena.Allocate(512);
  EXPECT_EQ(arena.slabs(), (objects.size() * 512 + kSlab - 1) / kSlab);
  EXPECT_EQ(arena.bytes(), objects.size() * 512);
  for (void* object : objects) arena.Free(object);
  EXPECT_EQ(arena.slabs(), 0u);
}

TEST(SlabArenaTest, ReusesFreedMemoryFirst) {
  SlabArena arena;
  void* const first = arena.Allocate(100);
  void* const second = arena.Allocate(100);
  arena.Free(first);
  EXPECT_EQ(arena.Allocate(100), first);
  arena.Free(first);
  arena.Free(second);
}

TEST(SlabArenaTest, AllocatesObjectsLargerThanASlab) {
  SlabArena arena;
  for (const size_t bytes : {kSlab / 2, kSlab, 5 * kSlab + 1}) {
    void* const object = arena.Allocate(bytes);
    std::memset(object, 1, bytes);
    arena.Free(object);
  }
  EXPECT_EQ(arena.slabs(), 0u);
}

}  // namespace
}  // namespace kvcast
