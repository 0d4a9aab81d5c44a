// A source adds blocks and loses them again. These blocks do not lengthen a search for their hash,
// for their content, or for the holders of their run. This holds before and after a sweep removes
// the blocks.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "router/index/residency_map.h"

namespace kvcast::router {
namespace {

constexpr int kRounds = 500;
constexpr uint64_t kHash = 7;
constexpr ContentKey kContent = 1'000'003;
constexpr size_t kMost = 4;

// How a source loses its blocks before it adds the next blocks.
enum class Loss {
  kRemoved,         // removes in the same batch as the stores
  kCleared,         // clears in the same batch as the stores
  kClearedByBatch,  // a clear in each batch
};

class VoidBlocks : public ::testing::TestWithParam<Loss> {
 protected:
  VoidBlocks() { holder_table_.SetVersion(0, &version_); }

  // Adds the block and loses it.
  void AddAndLose(uint64_t hash, ContentKey content) {
    if (holder_ == kNoHolderId) {
      holder_ = holder_table_.Open({.slot = 0, .group = 0, .tier = Tier::kGpu});
    }
    ResidencyMap::Cursor cursor;
    const Holding holding = {.own = {&holder_, 1}, .holder = holder_, .source = 1};
    EXPECT_EQ(map_.Add(BlockHash(hash), {content, 4}, holding, 0, false, cursor), Addition::kFirst);
    if (GetParam() == Loss::kRemoved) {
      ResidencyMap::Cursor at;
      EXPECT_EQ(map_.Remove(BlockHash(hash), holder_, at), Removal::kLastCopy);
      return;
    }
    holder_table_.Condemn(holder_);
    closing_.push_back(holder_);
    holder_ = kNoHolderId;
    if (GetParam() == Loss::kClearedByBatch) Commit();
  }
  void Commit() {
    for (const HolderId holder : closing_) holder_table_.Close(holder);
    closing_.clear();
    map_.Publish();
    map_.Tidy();
  }
  // Returns the number of slots that a search for the hash visits, and the number of holders of
  // these slots.
  std::pair<size_t, size_t> Visited(uint64_t hash) const {
    size_t slots = 0;
    size_t holders = 0;
    const std::vector<BlockHash> chain = {BlockHash(hash)};
    map_.WalkHashes(chain, false, false, [&](const HolderSet& set, uint32_t, size_t, uint32_t) {
      ++slots;
      holders += set.size();
    });
    return {slots, holders};
  }
  size_t RunsFrom(ContentKey content) const {
    size_t runs = 0;
    const std::vector<ContentKey> contents = {content};
    map_.WalkContents(contents, 4, false, [&](const ResidencyMap::Piece&) { ++runs; });
    return runs;
  }

  std::atomic<uint64_t> version_{0};
  SlabArena arena_;
  ReclaimDomain reclaim_;
  HolderTable holder_table_{reclaim_};
  ResidencyMap map_{1, arena_, reclaim_, holder_table_};
  HolderId holder_ = kNoHolderId;
  std::vector<HolderId> closing_;
};

INSTANTIATE_TEST_SUITE_P(Losses, VoidBlocks,
                         ::testing::Values(Loss::kRemoved, Loss::kCleared, Loss::kClearedByBatch));

TEST_P(VoidBlocks, HoldersOfARunAreForgotten) {
  for (int i = 0; i < kRounds; ++i) {
    AddAndLose(kHash, kContent);
    EXPECT_LE(Visited(kHash).second, kMost);
  }
  Commit();
  EXPECT_LE(Visited(kHash).second, kMost);
}

TEST_P(VoidBlocks, SlotsOfAHashAreForgotten) {
  for (int i = 0; i < kRounds; ++i) {
    AddAndLose(kHash, kContent + static_cast<ContentKey>(i));
    EXPECT_LE(Visited(kHash).first, kMost);
  }
  Commit();
  EXPECT_LE(Visited(kHash).first, kMost);
  EXPECT_FALSE(map_.has_twins()) << "a walk by hash is slower if a hash has two slots";
}

// The destructor of the arena ends the process if an object of the map is left.
TEST_P(VoidBlocks, TheDestructorFreesRunsThatAreNotTidied) {
  AddAndLose(kHash, kContent);
  AddAndLose(kHash, kContent + 1);      // removes the slot of the first block
  AddAndLose(kHash + 1, kContent + 1);  // retires the run of the second block
  for (const HolderId holder : closing_) holder_table_.Close(holder);
  map_.Publish();
}

TEST_P(VoidBlocks, RunsThatBeginWithAContentAreForgotten) {
  for (uint64_t i = 0; i < kRounds; ++i) {
    AddAndLose(kHash + i, kContent);
    EXPECT_LE(RunsFrom(kContent), kMost);
  }
  Commit();
  EXPECT_LE(RunsFrom(kContent), kMost);
}

// The block of another source stays when the first source adds and loses blocks with the same hash
// and content.
TEST_P(VoidBlocks, BlocksOfOthersStay) {
  std::atomic<uint64_t> version{0};
  holder_table_.SetVersion(1, &version);
  const HolderId other = holder_table_.Open({.slot = 1, .group = 0, .tier = Tier::kGpu});
  ResidencyMap::Cursor cursor;
  const Holding holding = {.own = {&other, 1}, .holder = other, .source = 2};
  map_.Add(BlockHash(kHash), {kContent, 4}, holding, 0, false, cursor);
  Commit();
  for (uint64_t i = 0; i < kRounds; ++i) {
    AddAndLose(kHash, kContent + static_cast<ContentKey>(i % 7));
    AddAndLose(kHash + i, kContent);
  }
  Commit();
  EXPECT_TRUE(map_.Holds(BlockHash(kHash), other));
  size_t found = 0;
  const std::vector<ContentKey> contents = {kContent};
  map_.WalkContents(contents, 4, false, [&](const ResidencyMap::Piece& piece) {
    for (uint32_t i = 0; i < piece.holders->size(); ++i) {
      found += piece.holders->id(i) == other && (piece.holders->bits(i) & 1) != 0;
    }
  });
  EXPECT_EQ(found, 1u);
}

}  // namespace
}  // namespace kvcast::router
