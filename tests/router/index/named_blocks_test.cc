// ResidencyMap with blocks that are named by content agrees with a simple model. The model has the
// held hashes of each holder, and the content of each hash. Correct sources share a hash scheme or
// have their own scheme. A hostile source invents names.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "router/index/holder_table.h"
#include "router/index/residency_map.h"
#include "src/base/reclaim_domain.h"
#include "src/base/sanitizers.h"
#include "src/base/slab_arena.h"

namespace kvcast::router {
namespace {

constexpr uint32_t kStride = 16;
constexpr int64_t kHashBlockSize = 16;

using Seen = std::set<std::pair<HolderId, size_t>>;  // holder, position in the prompt

// A tree of prompts. Node 0 is the empty prefix. Every other node adds a block to its parent.
struct Prompts {
  explicit Prompts(size_t nodes, std::mt19937_64& random) {
    for (size_t i = 1; i < nodes; ++i) {
      // Most nodes continue the previous node, so there are long chains with branches.
      const size_t back = random() % 8 == 0 ? random() % i : i - 1;
      parent.push_back(back);
    }
  }
  size_t ParentOf(size_t node) const { return parent[node - 1]; }
  std::vector<size_t> PathTo(size_t node) const {
    std::vector<size_t> path;
    for (; node != 0; node = ParentOf(node)) path.insert(path.begin(), node);
    return path;
  }
  static ContentKey ContentOf(size_t node) { return 1'000'000'007 * (node + 1); }
  static BlockHash HashOf(uint64_t scheme, size_t node) {
    return BlockHash::FromUnsigned(scheme * 1'000'000 + node);
  }

  std::vector<size_t> parent;
};

struct Source {
  uint64_t scheme = 0;
  uint32_t number = 0;
  std::vector<HolderId> holders;
  // By holder: the held hashes and their copies. Each held hash has an entry in `content`.
  std::map<HolderId, std::map<uint64_t, uint32_t>> held;
  std::map<uint64_t, ContentKey> content;

  Holding HoldingAt(HolderId holder) const {
    return {.own = holders, .holder = holder, .source = number};
  }
  bool HoldsAnywhere(uint64_t hash) const {
    for (const auto& [holder, hashes] : held) {
      if (hashes.contains(hash)) return true;
    }
    return false;
  }
};

class NamedBlocksTest : public ::testing::Test {
 protected:
  Source NewSource(uint64_t scheme) {
    Source source{
        .scheme = scheme, .number = next_slot + 1, .holders = {}, .held = {}, .content = {}};
    holder_table.SetVersion(next_slot, &versions.emplace_back(0));
    for (uint8_t group = 0; group < 2; ++group) {
      source.holders.push_back(
          holder_table.Open({.slot = next_slot, .group = group, .tier = Tier::kGpu}));
    }
    ++next_slot;
    return source;
  }
  Addition Add(Source& source, HolderId holder, const BlockHash& hash, ContentKey content,
               bool follows, ResidencyMap::Cursor& cursor) {
    const BlockName name = content == kUnnamed ? BlockName() : BlockName{content, kStride};
    const Addition added = map.Add(hash, name, source.HoldingAt(holder), 1, follows, cursor);
    const bool other_name =
        source.HoldsAnywhere(hash.integer()) && source.content.at(hash.integer()) != content;
    EXPECT_EQ(added == Addition::kOtherName, other_name) << "a source gives a hash only one name";
    if (added == Addition::kFirst || added == Addition::kCopy) {
      ++source.held[holder][hash.integer()];
      source.content[hash.integer()] = content;
    }
    return added;
  }
  // Adds the nodes of the path with AddNew. Returns the number of added blocks.
  size_t AddNew(Source& source, HolderId holder, std::span<const size_t> path,
                ResidencyMap::Cursor& cursor) {
    std::vector<uint64_t> hashes;
    for (const size_t node : path) {
      hashes.push_back(Prompts::HashOf(source.scheme, node).integer());
    }
    const std::vector<ContentKey> contents = ContentsOf({path.begin(), path.end()});
    const size_t added = map.AddNew(BlockHash::Form::kUnsigned, {hashes, contents, kStride},
                                    source.HoldingAt(holder), cursor);
    for (size_t i = 0; i < added; ++i) {
      EXPECT_FALSE(source.HoldsAnywhere(hashes[i])) << "AddNew takes only new hashes";
      source.held[holder][hashes[i]] = 1;
      source.content[hashes[i]] = contents[i];
    }
    return added;
  }
  void Remove(Source& source, HolderId holder, const BlockHash& hash,
              ResidencyMap::Cursor& cursor) {
    auto& held = source.held[holder];
    const auto it = held.find(hash.integer());
    BlockName name;
    const Removal removal = map.Remove(hash, holder, cursor, &name);
    if (it == held.end()) {
      ASSERT_EQ(removal, Removal::kNotHeld);
      return;
    }
    ASSERT_EQ(name.content(), source.content.at(hash.integer()));
    ASSERT_EQ(removal, it->second == 1 ? Removal::kLastCopy : Removal::kCopiesLeft);
    if (--it->second == 0) held.erase(it);
    if (!source.HoldsAnywhere(hash.integer())) source.content.erase(hash.integer());
  }
  void Commit() {
    map.Publish();
    map.Tidy();
    reclaim.Collect();
  }

  static std::vector<ContentKey> ContentsOf(const std::vector<size_t>& path) {
    std::vector<ContentKey> contents;
    for (const size_t node : path) contents.push_back(Prompts::ContentOf(node));
    return contents;
  }
  Seen WalkedByContent(const std::vector<size_t>& path, bool until_gap = false) const {
    Seen seen;
    const auto contents = ContentsOf(path);
    map.WalkContents(contents, kHashBlockSize, until_gap, [&](const ResidencyMap::Piece& piece) {
      for (uint32_t i = 0; i < piece.holders->size(); ++i) {
        for (uint32_t bit = 0; bit < piece.length; ++bit) {
          if ((piece.holders->bits(i) >> bit & 1) == 0) continue;
          seen.emplace(piece.holders->id(i), piece.position + bit * size_t{piece.step});
        }
      }
    });
    return seen;
  }
  Seen WalkedByHash(const std::vector<size_t>& path, uint64_t scheme, bool unnamed_only) const {
    Seen seen;
    std::vector<BlockHash> chain;
    for (const size_t node : path) chain.push_back(Prompts::HashOf(scheme, node));
    map.WalkHashes(chain, false, unnamed_only,
                   [&](const HolderSet& set, uint32_t offset, size_t position, uint32_t length) {
                     for (uint32_t i = 0; i < set.size(); ++i) {
                       for (uint32_t bit = 0; bit < length; ++bit) {
                         if ((set.bits(i) >> (offset + bit) & 1) != 0) {
                           seen.emplace(set.id(i), position + bit);
                         }
                       }
                     }
                   });
    return seen;
  }
  template <typename Counts>
  static Seen Expected(const std::vector<Source>& sources, const std::vector<size_t>& path,
                       Counts&& counts) {
    Seen seen;
    for (const Source& source : sources) {
      for (const auto& [holder, hashes] : source.held) {
        for (const auto& [hash, copies] : hashes) {
          for (size_t i = 0; i < path.size(); ++i) {
            if (counts(hash, source.content.at(hash), path[i])) seen.emplace(holder, i);
          }
        }
      }
    }
    return seen;
  }

  // Returns the blocks before the first position at which no holder has a block.
  static Seen BeforeTheGap(const Seen& seen, size_t positions) {
    std::vector<bool> held(positions);
    for (const auto& [holder, position] : seen) held[position] = true;
    const auto gap = static_cast<size_t>(std::find(held.begin(), held.end(), false) - held.begin());
    Seen before;
    for (const auto& [holder, position] : seen) {
      if (position < gap) before.emplace(holder, position);
    }
    return before;
  }

  void CompareWalks(const std::vector<Source>& sources, const std::vector<size_t>& asked,
                    int step) {
    ASSERT_EQ(WalkedByContent(asked), Expected(sources, asked,
                                               [](uint64_t, ContentKey content, size_t node) {
                                                 return content == Prompts::ContentOf(node);
                                               }))
        << "by content, step " << step;
    ASSERT_EQ(BeforeTheGap(WalkedByContent(asked, true), asked.size()),
              BeforeTheGap(WalkedByContent(asked), asked.size()))
        << "to the first gap, step " << step;
    for (const uint64_t scheme : {1, 2}) {
      ASSERT_EQ(WalkedByHash(asked, scheme, false),
                Expected(sources, asked,
                         [&](uint64_t hash, ContentKey, size_t node) {
                           return hash == Prompts::HashOf(scheme, node).integer();
                         }))
          << "by hash, step " << step;
      ASSERT_EQ(WalkedByHash(asked, scheme, true),
                Expected(sources, asked,
                         [&](uint64_t hash, ContentKey content, size_t node) {
                           return content == kUnnamed &&
                                  hash == Prompts::HashOf(scheme, node).integer();
                         }))
          << "unnamed, step " << step;
    }
  }

  SlabArena arena;
  ReclaimDomain reclaim;
  HolderTable holder_table{reclaim};
  ResidencyMap map{7, arena, reclaim, holder_table};
  WorkerSlot next_slot = 0;
  std::deque<std::atomic<uint64_t>> versions;  // by slot
};

TEST_F(NamedBlocksTest, AgreesWithASimpleModel) {
  std::mt19937_64 random(11);
  const auto pick = [&random](size_t below) { return static_cast<size_t>(random() % below); };
  constexpr size_t kNodes = 400;
  const Prompts prompts(kNodes, random);
  std::vector<Source> sources;
  for (const uint64_t scheme : {1, 1, 1, 2, 3}) sources.push_back(NewSource(scheme));
  const size_t hostile = sources.size();  // index of the hostile source
  sources.push_back(NewSource(1));
  uint64_t refused = 0;
  uint64_t new_blocks = 0;
  for (int step = 0; step < (kSanitized ? 1500 : 4000); ++step) {
    const bool is_hostile = pick(6) == 0;
    Source& source = is_hostile ? sources[hostile] : sources[pick(hostile)];
    const HolderId holder = source.holders[pick(2)];
    const std::vector<size_t> path = prompts.PathTo(1 + pick(kNodes - 1));
    const size_t begin = pick(path.size());
    const size_t length = std::min(path.size() - begin, 1 + pick(40));
    ResidencyMap::Cursor cursor;
    if (pick(10) < 5) {
      bool follows = false;
      if (begin > 0) {
        const BlockHash parent = Prompts::HashOf(source.scheme, path[begin - 1]);
        follows = map.NameOf(parent, source.holders, cursor).has_value();
        follows =
            follows && source.content.at(parent.integer()) == Prompts::ContentOf(path[begin - 1]);
      }
      size_t first = begin;
      if (!follows && pick(2) == 0) {
        first += AddNew(source, holder, std::span(path).subspan(begin, length), cursor);
        new_blocks += first - begin;
        follows = first > begin;
      }
      for (size_t i = first; i < begin + length; ++i) {
        BlockHash hash = Prompts::HashOf(source.scheme, path[i]);
        ContentKey content = Prompts::ContentOf(path[i]);
        if (is_hostile && pick(2) == 0) hash = Prompts::HashOf(pick(5), 1 + pick(kNodes - 1));
        if (is_hostile && pick(4) == 0) content = Prompts::ContentOf(1 + pick(kNodes - 1));
        if (is_hostile && pick(8) == 0) content = kUnnamed;
        const bool is_true_content = content == Prompts::ContentOf(path[i]);
        const Addition added =
            Add(source, holder, hash, content, follows && is_true_content, cursor);
        const bool taken = added == Addition::kFirst || added == Addition::kCopy;
        if (!is_hostile) {
          ASSERT_TRUE(taken) << "step " << step;
        }
        refused += !taken;
        follows = taken && is_true_content;
      }
    } else if (pick(3) == 0) {
      for (size_t i = begin; i < begin + length; ++i) {
        Remove(source, holder, Prompts::HashOf(source.scheme, path[i]), cursor);
      }
    } else {
      for (size_t i = path.size(); i > begin; --i) {
        Remove(source, holder, Prompts::HashOf(source.scheme, path[i - 1]), cursor);
      }
    }
    Commit();
    if (HasFatalFailure()) return;
    if (step % 4 != 0) continue;
    CompareWalks(sources, prompts.PathTo(1 + pick(kNodes - 1)), step);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(refused, 100u) << "the hostile source must contradict its own names";
  EXPECT_GT(new_blocks, 100u);
}

TEST_F(NamedBlocksTest, AddNewTakesAWholeRun) {
  Source source = NewSource(1);
  std::vector<size_t> path(kRunKeys);
  std::iota(path.begin(), path.end(), size_t{1});
  ResidencyMap::Cursor cursor;
  EXPECT_EQ(AddNew(source, source.holders[0], path, cursor), path.size());
  // The cursor is on the last block.
  const size_t next = path.size() + 1;
  Add(source, source.holders[0], Prompts::HashOf(1, next), Prompts::ContentOf(next), true, cursor);
  Commit();
  path.push_back(next);
  CompareWalks({source}, path, 0);
  size_t runs = 0;
  map.WalkContents(ContentsOf(path), kHashBlockSize, false,
                   [&runs](const ResidencyMap::Piece&) { ++runs; });
  EXPECT_EQ(runs, 2u) << "the 64 blocks are one run";
}

TEST_F(NamedBlocksTest, AddNewStopsAtAHashThatTheStoreHas) {
  Source first = NewSource(1);
  Source second = NewSource(1);
  ResidencyMap::Cursor cursor;
  Add(first, first.holders[0], Prompts::HashOf(1, 3), Prompts::ContentOf(3), false, cursor);
  Commit();
  cursor = {};
  EXPECT_EQ(AddNew(second, second.holders[0], std::vector<size_t>{1, 2, 3, 4}, cursor), 2u);
  Commit();
  CompareWalks({first, second}, {1, 2, 3, 4}, 0);
  cursor = {};
  EXPECT_EQ(AddNew(second, second.holders[1], std::vector<size_t>{1, 2}, cursor), 0u);
}

TEST_F(NamedBlocksTest, AddNewRefusesASecondHashOfAContent) {
  Source source = NewSource(1);
  ResidencyMap::Cursor cursor;
  Add(source, source.holders[0], BlockHash::FromUnsigned(77), Prompts::ContentOf(1), false, cursor);
  Commit();
  cursor = {};
  EXPECT_EQ(AddNew(source, source.holders[0], std::vector<size_t>{1, 2}, cursor), 0u);
}

// The run of the removed blocks still exists, because a block behind them is held.
TEST_F(NamedBlocksTest, AddNewMakesNoSecondRunForARunThatLostItsBeginning) {
  Source source = NewSource(1);
  const HolderId holder = source.holders[0];
  ResidencyMap::Cursor cursor;
  ASSERT_EQ(AddNew(source, holder, std::vector<size_t>{1, 2, 3, 4}, cursor), 4u);
  Commit();
  cursor = {};
  Remove(source, holder, Prompts::HashOf(1, 1), cursor);
  Commit();
  cursor = {};
  EXPECT_EQ(AddNew(source, holder, std::vector<size_t>{1, 2}, cursor), 0u);
}

// The source `other` stores blocks along the run of the source `owner`. The run contains hash 20,
// to which `other` gave another name before. The map refuses the second name that `other` gives
// hash 20, even after the run has moved.
TEST_F(NamedBlocksTest, ASecondNameIsRefusedInARunThatHasMoved) {
  Source owner = NewSource(1);
  Source other = NewSource(1);
  const auto content = [](size_t node) { return Prompts::ContentOf(node); };
  constexpr size_t kLast = 64;
  ResidencyMap::Cursor cursor;
  for (size_t node = 1; node <= kLast; ++node) {
    Add(owner, owner.holders[0], Prompts::HashOf(1, node), content(node), node > 1, cursor);
  }
  cursor = {};
  Add(other, other.holders[0], Prompts::HashOf(1, 20), content(1000), false, cursor);
  Commit();
  cursor = {};
  for (size_t node = kLast; node >= 1; --node) {
    if (node >= 15 && node <= 25) continue;
    Remove(owner, owner.holders[0], Prompts::HashOf(1, node), cursor);
  }
  Commit();
  cursor = {};
  for (size_t node = 15; node < 20; ++node) {
    const Addition added =
        Add(other, other.holders[0], Prompts::HashOf(1, node), content(node), node > 15, cursor);
    ASSERT_EQ(added, Addition::kFirst);
  }
  EXPECT_EQ(Add(other, other.holders[0], Prompts::HashOf(1, 20), content(20), true, cursor),
            Addition::kOtherName);
}

// A source gives many hashes the same first content. The map accepts only one of these hashes.
// Otherwise each hash would add a run to the lookups of this content.
TEST_F(NamedBlocksTest, ASourceHasOneRunForEachBeginning) {
  Source hostile = NewSource(1);
  size_t taken = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    ResidencyMap::Cursor cursor;
    const Addition added = Add(hostile, hostile.holders[0], BlockHash::FromUnsigned(100 + i),
                               Prompts::ContentOf(1), false, cursor);
    taken += added == Addition::kFirst;
  }
  Commit();
  EXPECT_EQ(taken, 1u);
  size_t pieces = 0;
  map.WalkContents(ContentsOf({1}), kHashBlockSize, false,
                   [&](const ResidencyMap::Piece&) { ++pieces; });
  EXPECT_EQ(pieces, 1u);
}

TEST_F(NamedBlocksTest, OneContentMayHaveAHashOfEverySource) {
  std::vector<Source> sources;
  for (uint64_t i = 0; i < 64; ++i) {
    sources.push_back(NewSource(i));
    ResidencyMap::Cursor cursor;
    for (size_t node = 1; node <= 100; ++node) {
      ASSERT_EQ(Add(sources.back(), sources.back().holders[0], Prompts::HashOf(i, node),
                    Prompts::ContentOf(node), node > 1, cursor),
                Addition::kFirst);
    }
  }
  Commit();
  std::vector<size_t> path;
  for (size_t node = 1; node <= 100; ++node) path.push_back(node);
  EXPECT_EQ(WalkedByContent(path).size(), 6400u);
}

TEST_F(NamedBlocksTest, BlocksOfSeveralUnitsAreFoundAtTheirLastUnit) {
  Source source = NewSource(1);
  ResidencyMap::Cursor cursor;
  // Blocks of 48 tokens end with units 2, 5, 8.
  for (size_t block = 0; block < 3; ++block) {
    const BlockName name = {Prompts::ContentOf(3 * block + 3), 48};
    map.Add(Prompts::HashOf(1, block + 1), name, source.HoldingAt(source.holders[0]), 1, block > 0,
            cursor);
  }
  Commit();
  const Seen expected = {{source.holders[0], 2}, {source.holders[0], 5}, {source.holders[0], 8}};
  EXPECT_EQ(WalkedByContent({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), expected);
}

}  // namespace
}  // namespace kvcast::router
