// ResidencyMap agrees with a simple model: a std::map from (holder, hash) to copies.
// SPDX-License-Identifier: Apache-2.0
#include "router/index/residency_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "router/index/holder_table.h"
#include "src/base/reclaim_domain.h"
#include "src/base/slab_arena.h"

namespace kvcast::router {
namespace {

// (holder, Name of the hash) -> copies
using Held = std::map<std::pair<HolderId, std::string>, uint32_t>;
using Seen = std::set<std::pair<HolderId, size_t>>;  // holder, position in the chain

std::string Name(const BlockHash& hash) {
  if (!hash.is_bytes()) {
    return (hash.form() == BlockHash::Form::kNegative ? "n" : "u") + std::to_string(hash.integer());
  }
  return {hash.bytes().begin(), hash.bytes().end()};
}

// Returns the hashes of one chain in the given form.
std::vector<BlockHash> ChainOf(BlockHash::Form form, uint64_t chain, size_t length) {
  std::vector<BlockHash> hashes;
  for (size_t i = 0; i < length; ++i) {
    const uint64_t number = chain * 1000 + i;
    switch (form) {
      case BlockHash::Form::kUnsigned:
        hashes.push_back(BlockHash::FromUnsigned(number));
        break;
      case BlockHash::Form::kNegative:
        hashes.push_back(BlockHash::FromSigned(-1 - static_cast<int64_t>(number)));
        break;
      case BlockHash::Form::kBytes: {
        const std::string text = "block " + std::to_string(number);
        hashes.push_back(
            BlockHash::FromBytes({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
        break;
      }
    }
  }
  return hashes;
}

struct ResidencyMapTest : ::testing::Test {
  HolderId Open() {
    holder_table.SetVersion(next_slot, &versions.emplace_back(0));
    return holder_table.Open({.slot = next_slot++, .group = 0, .tier = Tier::kGpu});
  }

  void Add(HolderId holder, std::span<const BlockHash> hashes, const BlockHash* parent = nullptr) {
    ResidencyMap::Cursor cursor;
    if (parent != nullptr) map.Seek(*parent, kUnnamed, cursor);
    size_t more = hashes.size();
    for (const BlockHash& hash : hashes) {
      const bool first = held[{holder, Name(hash)}]++ == 0;
      EXPECT_EQ(map.Add(hash, {}, {.own = {&holder, 1}, .holder = holder}, --more, true, cursor),
                first ? Addition::kFirst : Addition::kCopy);
    }
  }
  void Remove(HolderId holder, std::span<const BlockHash> hashes) {
    ResidencyMap::Cursor cursor;
    for (const BlockHash& hash : hashes) {
      Removal expected = Removal::kNotHeld;
      if (const auto it = held.find({holder, Name(hash)}); it != held.end()) {
        expected = --it->second == 0 ? Removal::kLastCopy : Removal::kCopiesLeft;
        if (it->second == 0) {
          visits.erase(it->first);
          held.erase(it);
        }
      }
      EXPECT_EQ(map.Remove(hash, holder, cursor), expected);
    }
  }
  void Close(HolderId holder) {
    closing.push_back(holder);
    const auto is_of_holder = [holder](const auto& entry) { return entry.first.first == holder; };
    std::erase_if(held, is_of_holder);
    std::erase_if(visits, is_of_holder);
  }
  void Commit() {
    for (const HolderId holder : closing) holder_table.Close(holder);
    closing.clear();
    map.Publish();
    map.Tidy();
  }
  // REQUIRES: all changes are committed.
  void Sweep(size_t work) {
    if (!holder_table.sweeping()) {
      if (!holder_table.BeginSweep()) return;
      map.BeginSweep();
    }
    if (map.Sweep(work)) return;
    map.EndSweep();
    holder_table.EndSweep();
  }

  // A step of a pass. At the end of a pass, each block that was held during the whole pass has been
  // visited once, and the next pass begins. REQUIRES: all changes are committed.
  void StepPass(size_t work) {
    if (!pass) {
      for (const auto& [block, copies] : held) visits[block] = 0;
      map.BeginPass(pass.emplace());
    }
    const bool more = map.Step(
        *pass, work, [&](HolderId holder) { return holder_table.Read(holder).has_value(); },
        [&](HolderId holder, const BlockHash& hash, uint32_t) {
          const auto it = visits.find({holder, Name(hash)});
          if (it != visits.end()) ++it->second;
        });
    if (more) return;
    map.EndPass(*pass);
    pass.reset();
    ++passes;
    steady += visits.size();
    for (const auto& [block, n] : visits) {
      ASSERT_EQ(n, 1) << "pass " << passes << ", holder " << block.first << ", block "
                      << block.second;
    }
    visits.clear();
  }

  // REQUIRES: all changes are committed.
  Held Contents() const {
    Held contents;
    ResidencyMap::Pass whole;
    map.BeginPass(whole);
    while (map.Step(
        whole, 1000, [&](HolderId holder) { return holder_table.Read(holder).has_value(); },
        [&](HolderId holder, const BlockHash& hash, uint32_t copies) {
          contents[{holder, Name(hash)}] = copies;
        })) {
    }
    map.EndPass(whole);
    return contents;
  }
  Seen Walked(std::span<const BlockHash> chain, bool until_gap = false) const {
    Seen seen;
    map.WalkHashes(chain, until_gap, false,
                   [&](const HolderSet& set, uint32_t offset, size_t position, uint32_t length) {
                     for (uint32_t i = 0; i < set.size(); ++i) {
                       if (!holder_table.Read(set.id(i))) continue;
                       for (uint32_t bit = 0; bit < length; ++bit) {
                         if ((set.bits(i) >> (offset + bit) & 1) != 0)
                           seen.emplace(set.id(i), position + bit);
                       }
                     }
                   });
    return seen;
  }
  // Returns the blocks that a walk must find according to `held`.
  Seen Expected(std::span<const BlockHash> chain) const {
    Seen seen;
    for (HolderId holder = 0; holder < holder_table.size(); ++holder) {
      for (size_t i = 0; i < chain.size(); ++i) {
        if (held.contains({holder, Name(chain[i])})) seen.emplace(holder, i);
      }
    }
    return seen;
  }

  SlabArena arena;
  ReclaimDomain reclaim;
  HolderTable holder_table{reclaim};
  ResidencyMap map{7, arena, reclaim, holder_table};
  WorkerSlot next_slot = 0;
  std::deque<std::atomic<uint64_t>> versions;  // by slot
  std::vector<HolderId> closing;
  Held held;
  std::optional<ResidencyMap::Pass> pass;
  std::map<std::pair<HolderId, std::string>, int> visits;  // of blocks held since the pass began
  int passes = 0;
  size_t steady = 0;  // blocks that were held during a whole pass, of all passes
};

TEST_F(ResidencyMapTest, ReadersSeeABatchWhenItIsPublished) {
  const HolderId holder = Open();
  const auto chain = ChainOf(BlockHash::Form::kUnsigned, 1, 100);
  Add(holder, std::span(chain).first(70));
  EXPECT_TRUE(map.Holds(chain[69], holder));
  EXPECT_TRUE(Walked(chain).empty());
  Commit();
  EXPECT_EQ(Walked(chain).size(), 70u);
  Remove(holder, std::span(chain).subspan(60, 5));
  EXPECT_EQ(Walked(chain).size(), 70u);
  Commit();
  EXPECT_EQ(Walked(chain).size(), 65u);
  EXPECT_EQ(Walked(chain, true).size(), 60u);
}

// The versions of the workers may be freed before the map.
TEST(ResidencyMap, TheDestructorMovesNoBlocks) {
  SlabArena arena;
  ReclaimDomain reclaim;
  HolderTable holder_table(reclaim);
  std::atomic<uint64_t> version{0};
  holder_table.SetVersion(0, &version);
  const HolderId holder = holder_table.Open({.slot = 0, .group = 0, .tier = Tier::kGpu});
  std::optional<ResidencyMap> map;
  map.emplace(7, arena, reclaim, holder_table);
  const auto chain = ChainOf(BlockHash::Form::kUnsigned, 1, 64);
  ResidencyMap::Cursor cursor;
  for (size_t i = 0; i < chain.size(); ++i) {
    const Holding holding = {.own = {&holder, 1}, .holder = holder, .source = 1};
    const BlockName name(1'000'000'007 * (i + 1), 16);
    EXPECT_EQ(map->Add(chain[i], name, holding, 0, i > 0, cursor), Addition::kFirst);
  }
  map->Publish();
  map->Tidy();
  ResidencyMap::Cursor at;
  for (size_t i = 0; i < 60; ++i) map->Remove(chain[i], holder, at);
  map->Publish();
  map.reset();
  EXPECT_EQ(version, 0u);
}

TEST_F(ResidencyMapTest, EqualNumbersOfOtherFormsAreOtherHashes) {
  const HolderId holder = Open();
  const BlockHash positive = BlockHash::FromUnsigned(~uint64_t{0});
  const BlockHash negative = BlockHash::FromSigned(-1);
  Add(holder, std::span(&positive, 1));
  Commit();
  EXPECT_TRUE(map.Holds(positive, holder));
  EXPECT_FALSE(map.Holds(negative, holder));
}

// A holder is closed, and a new holder gets the number of the closed holder. The entries of the
// closed holder must not appear under the new holder. This must hold even if a run with these
// entries moves to a run number that the sweep has passed.
TEST_F(ResidencyMapTest, ARunThatMovesBehindTheSweepLosesTheEntriesOfClosedHolders) {
  const HolderId stays = Open();
  const HolderId leaves = Open();
  const auto early = ChainOf(BlockHash::Form::kUnsigned, 1, 64);
  const auto late = ChainOf(BlockHash::Form::kUnsigned, 2, 64);
  Add(stays, early);
  Add(stays, late);
  Add(leaves, std::span(late).first(4));
  Commit();
  Remove(stays, early);  // frees a run number below the run number of `late`
  Commit();
  reclaim.Collect();
  Close(leaves);
  Commit();
  Sweep(1);  // passes the freed run number
  ASSERT_TRUE(holder_table.sweeping());
  Remove(stays, std::span(late).subspan(8));
  Commit();
  while (holder_table.sweeping()) Sweep(1);
  reclaim.Collect();
  const HolderId next = Open();
  ASSERT_EQ(next, leaves) << "the new holder must get the number of the closed holder";
  EXPECT_EQ(Contents(), held);
  EXPECT_FALSE(map.Holds(late[0], next));
}

TEST_F(ResidencyMapTest, CopiesOfAClosedHolderAreForgotten) {
  const HolderId holder = Open();
  const auto chain = ChainOf(BlockHash::Form::kUnsigned, 1, 3);
  for (int copy = 0; copy < 3; ++copy) Add(holder, chain);
  Commit();
  Close(holder);
  Commit();
  Sweep(1000);
  ASSERT_FALSE(holder_table.sweeping());
  reclaim.Collect();
  ASSERT_EQ(Open(), holder);
  Add(holder, chain);
  Remove(holder, chain);
  Commit();
  EXPECT_TRUE(Contents().empty());
}

struct ResidencyMapModelTest : ResidencyMapTest, ::testing::WithParamInterface<BlockHash::Form> {};

TEST_P(ResidencyMapModelTest, AgreesWithASimpleModel) {
  std::mt19937_64 random(20);
  const auto pick = [&random](size_t below) { return random() % below; };
  constexpr size_t kChains = 12;
  constexpr size_t kHolders = 3;
  std::vector<std::vector<BlockHash>> chains;
  for (size_t i = 0; i < kChains; ++i) chains.push_back(ChainOf(GetParam(), i, 150));
  std::vector<HolderId> open;
  for (size_t i = 0; i < kHolders; ++i) open.push_back(Open());
  int reused = 0;
  HolderId largest = 0;
  for (int step = 0; step < 2000; ++step) {
    const auto& watched = chains[pick(kChains)];
    const Seen before = Expected(watched);
    for (size_t op = pick(4); op > 0; --op) {
      const auto& chain = chains[pick(kChains)];
      const size_t begin = pick(chain.size());
      // Half of the operations have up to 100 blocks, and half have up to 10 blocks.
      const size_t length = std::min(chain.size() - begin, 1 + pick(pick(2) == 0 ? 100 : 10));
      const auto part = std::span(chain).subspan(begin, length);
      const HolderId holder = open[pick(kHolders)];
      if (pick(10) < 5) {
        Add(holder, part, begin > 0 && pick(2) == 0 ? &chain[begin - 1] : nullptr);
      } else if (pick(2) == 0) {
        Remove(holder, part);
      } else {
        const std::vector<BlockHash> backwards(part.rbegin(), part.rend());
        Remove(holder, backwards);
      }
    }
    if (pick(6) == 0) {  // removes most of a chain; the map rewrites the runs
      const auto& chain = chains[pick(kChains)];
      for (const HolderId holder : open) {
        for (size_t i = 0; i < chain.size(); ++i) {
          if (i % 9 != 0) Remove(holder, std::span(chain).subspan(i, 1));
        }
      }
    }
    ASSERT_EQ(Walked(watched), before) << "not committed, step " << step;
    if (pick(6) == 0) {
      HolderId& holder = open[pick(kHolders)];
      Close(holder);
      holder = Open();
      reused += holder < largest;
      largest = std::max(largest, holder);
    }
    Commit();
    reclaim.Collect();  // makes freed run numbers reusable immediately
    Sweep(pick(6));
    StepPass(pick(3) == 0 ? 0 : pick(60));
    if (HasFatalFailure()) return;
    ASSERT_EQ(Walked(watched), Expected(watched)) << "step " << step;
    if (step % 10 == 0) {
      ASSERT_EQ(Contents(), held) << "step " << step;
    }
  }
  EXPECT_GT(reused, 30);
  EXPECT_GT(passes, 20);
  EXPECT_GT(steady, 1000u);
}

INSTANTIATE_TEST_SUITE_P(Forms, ResidencyMapModelTest,
                         ::testing::Values(BlockHash::Form::kUnsigned, BlockHash::Form::kNegative,
                                           BlockHash::Form::kBytes));

}  // namespace
}  // namespace kvcast::router
