// The writer changes the map during the walk of a reader. Each test chooses the moment of the
// change.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <deque>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "router/index/holder_table.h"
#include "router/index/residency_map.h"
#include "src/base/reclaim_domain.h"
#include "src/base/slab_arena.h"

namespace kvcast::router {
namespace {

constexpr uint32_t kStride = 16;

class WalkBesideWriterTest : public ::testing::Test {
 protected:
  struct Source {
    uint32_t number;
    std::vector<HolderId> holders;
  };

  Source NewSource() {
    const auto slot = static_cast<WorkerSlot>(versions_.size());
    holder_table_.SetVersion(slot, &versions_.emplace_back(0));
    Source source{.number = slot + 1, .holders = {}};
    for (uint8_t group = 0; group < 2; ++group) {
      source.holders.push_back(
          holder_table_.Open({.slot = slot, .group = group, .tier = Tier::kGpu}));
    }
    return source;
  }
  static BlockHash HashOf(size_t block) { return BlockHash::FromUnsigned(block); }
  static ContentKey ContentOf(size_t block) { return 1'000'000'007 * (block + 1); }

  void Add(const Source& source, HolderId holder, size_t block, ContentKey content, bool follows,
           ResidencyMap::Cursor& cursor) {
    const Addition added = map_.Add(
        HashOf(block), BlockName{content, kStride},
        {.own = source.holders, .holder = holder, .source = source.number}, 1, follows, cursor);
    ASSERT_EQ(added, Addition::kFirst);
  }
  // Adds the blocks [first, last] of the chain that begins with block 1.
  void AddChain(const Source& source, HolderId holder, size_t first, size_t last) {
    ResidencyMap::Cursor cursor;
    for (size_t block = first; block <= last; ++block) {
      Add(source, holder, block, ContentOf(block), block > 1, cursor);
    }
  }
  void Remove(HolderId holder, size_t first, size_t last) {
    ResidencyMap::Cursor cursor;
    for (size_t block = first; block <= last; ++block) {
      ASSERT_EQ(map_.Remove(HashOf(block), holder, cursor), Removal::kLastCopy);
    }
  }
  void Commit() {
    map_.Publish();
    map_.Tidy();
    reclaim_.Collect();
  }

  // Walks over the chain, and returns the holders of its second hash. Calls `step` at each visit.
  std::set<HolderId> HoldersOfTheSecond(std::span<const BlockHash> chain,
                                        const std::function<void(size_t position)>& step) const {
    std::set<HolderId> found;
    map_.WalkHashes(chain, true, false,
                    [&](const HolderSet& set, uint32_t offset, size_t position, uint32_t length) {
                      step(position);
                      if (position > 1 || position + length < 2) return;
                      for (uint32_t i = 0; i < set.size(); ++i) {
                        if ((set.bits(i) >> (offset + 1 - position) & 1) != 0) {
                          found.insert(set.id(i));
                        }
                      }
                    });
    return found;
  }

  SlabArena arena_;
  ReclaimDomain reclaim_;
  HolderTable holder_table_{reclaim_};
  ResidencyMap map_{7, arena_, reclaim_, holder_table_};
  std::deque<std::atomic<uint64_t>> versions_;  // by slot
};

TEST_F(WalkBesideWriterTest, AMoveChangesTheVersionsOfTheHolders) {
  const Source stays = NewSource();
  const Source leaves = NewSource();
  AddChain(leaves, leaves.holders[0], 1, 64);
  for (const HolderId holder : stays.holders) {
    AddChain(stays, holder, 1, 4);
    AddChain(stays, holder, 57, 64);
  }
  Commit();
  ASSERT_EQ(versions_[0], 0u);

  std::vector<ContentKey> contents;
  for (size_t block = 1; block <= 64; ++block) contents.push_back(ContentOf(block));
  const ReclaimDomain::Pin pin(reclaim_);
  bool moved = false;
  int met = 0;  // number of times that the walk finds block 57 in the first group of `stays`
  map_.WalkContents(contents, kStride, false, [&](const ResidencyMap::Piece& piece) {
    if (!std::exchange(moved, true)) {
      Remove(leaves.holders[0], 1, 64);
      Commit();
    }
    for (uint32_t i = 0; i < piece.holders->size(); ++i) {
      const bool has = piece.position <= 56 && 56 < piece.position + piece.length &&
                       (piece.holders->bits(i) >> (56 - piece.position) & 1) != 0;
      met += has && piece.holders->id(i) == stays.holders[0];
    }
  });
  ASSERT_EQ(met, 2) << "the block must move during the walk";
  EXPECT_EQ(versions_[0], 2u) << "two holders have the block, but the block moved once";
  EXPECT_EQ(versions_[1], 0u) << "this source holds no moved block";
}

// A reader that has the bits of a holder reads the holder's word later. If another worker got the
// number of the closed holder, the reader would count the blocks for that worker.
TEST_F(WalkBesideWriterTest, NoWorkerGetsTheNumberOfAHolderThatAReaderHasSeen) {
  const Source source = NewSource();
  const HolderId holder = source.holders[0];
  AddChain(source, holder, 1, 8);
  Commit();
  const std::vector<BlockHash> chain = {HashOf(1), HashOf(2)};
  {
    const ReclaimDomain::Pin pin(reclaim_);
    const auto seen = HoldersOfTheSecond(chain, [](size_t) {});
    ASSERT_EQ(seen, std::set<HolderId>{holder});
    holder_table_.Close(holder);
    Commit();
    ASSERT_TRUE(holder_table_.BeginSweep());
    map_.BeginSweep();
    while (map_.Sweep(100)) {
    }
    map_.EndSweep();
    holder_table_.EndSweep();
    reclaim_.Collect();
    for (const HolderId other : NewSource().holders) EXPECT_NE(other, holder);
  }
  reclaim_.Collect();
  EXPECT_EQ(NewSource().holders[0], holder) << "no reader can have seen the number any more";
}

// Two sources hold hash 2 with different contents. The second source stores hash 2 during the walk,
// in the slot after hash 1. The walk reads this slot first.
class TwinBesideWalkTest : public WalkBesideWriterTest {
 protected:
  TwinBesideWalkTest() {
    ResidencyMap::Cursor cursor;
    Add(early_, early_.holders[0], 1, ContentOf(1), false, cursor);
    cursor = {};
    Add(early_, early_.holders[0], 2, ContentOf(100), false, cursor);
    Commit();
  }
  void StoreTwin() {
    AddChain(late_, late_.holders[0], 1, 2);
    Commit();
  }

  const Source early_ = NewSource();
  const Source late_ = NewSource();
  // No holder has hash 3, so the walk stops at hash 3.
  const std::vector<BlockHash> chain_ = {HashOf(1), HashOf(2), HashOf(3)};
};

TEST_F(TwinBesideWalkTest, BothSlotsAreFound) {
  const ReclaimDomain::Pin pin(reclaim_);
  const auto found = HoldersOfTheSecond(chain_, [&, steps = 0](size_t) mutable {
    if (steps++ == 0) StoreTwin();
  });
  EXPECT_EQ(found, (std::set<HolderId>{early_.holders[0], late_.holders[0]}));
}

TEST_F(TwinBesideWalkTest, TheFirstSlotIsFoundAlthoughTheSecondIsGone) {
  const ReclaimDomain::Pin pin(reclaim_);
  const auto found = HoldersOfTheSecond(chain_, [&, steps = 0](size_t position) mutable {
    if (steps == 0) StoreTwin();
    if (steps == 1) {
      ASSERT_EQ(position, 1u);
      Remove(late_.holders[0], 2, 2);
      Commit();
    }
    ++steps;
  });
  EXPECT_TRUE(found.contains(early_.holders[0]));
}

// The test reads while the writer inserts the second slot of a hash. An insertion that grows the
// hash table frees retired objects. The test retires an object whose free function does the read.
TEST_F(WalkBesideWriterTest, ASlotThatIsInsertedHidesNoOtherSlot) {
  const Source early = NewSource();
  const Source late = NewSource();
  int readings = 0;
  for (size_t block = 1; block < 20'000; block += 10) {
    ResidencyMap::Cursor cursor;
    Add(early, early.holders[0], block, ContentOf(block), false, cursor);
    cursor = {};
    Add(early, early.holders[0], block + 1, ContentOf(block + 5), false, cursor);
    Commit();
    const std::vector<BlockHash> chain = {HashOf(block), HashOf(block + 1)};
    bool inserting = true;
    std::function<void()> read = [&] {
      if (!inserting) return;
      ++readings;
      EXPECT_TRUE(HoldersOfTheSecond(chain, [](size_t) {}).contains(early.holders[0]));
    };
    cursor = {};
    Add(late, late.holders[0], block, ContentOf(block), false, cursor);
    reclaim_.Retire(
        [](void* function, uintptr_t) { (*static_cast<std::function<void()>*>(function))(); },
        &read, 0);
    Add(late, late.holders[0], block + 1, ContentOf(block + 1), true, cursor);
    inserting = false;
    Commit();
    Remove(late.holders[0], block, block + 1);
    Commit();
  }
  EXPECT_GT(readings, 10);
}

}  // namespace
}  // namespace kvcast::router
