// ResidencyMap agrees with its definition: a map from (place, hash) to copies.
// SPDX-License-Identifier: Apache-2.0
#include "router/index/residency_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "router/index/place_table.h"
#include "src/base/epoch.h"
#include "src/base/slab_arena.h"

namespace kvcast::router {
namespace {

using Held = std::map<std::pair<PlaceId, std::string>, uint32_t>;  // hashes by name
using Seen = std::set<std::pair<PlaceId, size_t>>;                 // place, position in the chain

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
  PlaceId Open() {
    places.SetVersion(next_slot, &versions.emplace_back(0));
    return places.Open({.slot = next_slot++, .group = 0, .tier = Tier::kGpu});
  }

  void Add(PlaceId place, std::span<const BlockHash> hashes, const BlockHash* parent = nullptr) {
    ResidencyMap::Cursor cursor;
    if (parent != nullptr) map.Seek(*parent, kUnnamed, cursor);
    size_t more = hashes.size();
    for (const BlockHash& hash : hashes) {
      const bool first = held[{place, Name(hash)}]++ == 0;
      EXPECT_EQ(map.Add(hash, {}, {.own = {&place, 1}, .place = place}, --more, true, cursor),
                first ? Addition::kFirst : Addition::kCopy);
    }
  }
  void Remove(PlaceId place, std::span<const BlockHash> hashes) {
    ResidencyMap::Cursor cursor;
    for (const BlockHash& hash : hashes) {
      Removal expected = Removal::kNotHeld;
      if (const auto it = held.find({place, Name(hash)}); it != held.end()) {
        expected = --it->second == 0 ? Removal::kLastCopy : Removal::kCopiesLeft;
        if (it->second == 0) held.erase(it);
      }
      EXPECT_EQ(map.Remove(hash, place, cursor), expected);
    }
  }
  void Close(PlaceId place) {
    closing.push_back(place);
    std::erase_if(held, [place](const auto& entry) { return entry.first.first == place; });
  }
  void Commit() {
    for (const PlaceId place : closing) places.Close(place);
    closing.clear();
    map.Publish();
    map.Tidy();
  }
  // REQUIRES: all changes are committed.
  void Sweep(size_t runs) {
    if (!places.sweeping()) {
      if (!places.BeginSweep()) return;
      map.BeginSweep();
    }
    if (map.Sweep(runs)) return;
    map.EndSweep();
    places.EndSweep();
  }

  // REQUIRES: all changes are committed.
  Held Contents() const {
    Held contents;
    map.ForEach([&](PlaceId place, const BlockHash& hash, uint32_t copies) {
      if (places.Read(place)) contents[{place, Name(hash)}] = copies;
    });
    return contents;
  }
  Seen Walked(std::span<const BlockHash> chain, bool until_gap = false) const {
    Seen seen;
    map.WalkHashes(
        chain, until_gap, false,
        [&](const HolderSet& holders, uint32_t offset, size_t position, uint32_t length) {
          for (uint32_t i = 0; i < holders.size(); ++i) {
            if (!places.Read(holders.place(i))) continue;
            for (uint32_t bit = 0; bit < length; ++bit) {
              if ((holders.bits(i) >> (offset + bit) & 1) != 0)
                seen.emplace(holders.place(i), position + bit);
            }
          }
        });
    return seen;
  }
  // Returns the blocks that a walk must find according to `held`.
  Seen Expected(std::span<const BlockHash> chain) const {
    Seen seen;
    for (PlaceId place = 0; place < places.size(); ++place) {
      for (size_t i = 0; i < chain.size(); ++i) {
        if (held.contains({place, Name(chain[i])})) seen.emplace(place, i);
      }
    }
    return seen;
  }

  SlabArena arena;
  EpochDomain epochs;
  PlaceTable places{epochs};
  ResidencyMap map{7, arena, epochs, places};
  WorkerSlot next_slot = 0;
  std::deque<std::atomic<uint64_t>> versions;  // by slot
  std::vector<PlaceId> closing;
  Held held;
};

TEST_F(ResidencyMapTest, ReadersSeeABatchWhenItIsPublished) {
  const PlaceId place = Open();
  const auto chain = ChainOf(BlockHash::Form::kUnsigned, 1, 100);
  Add(place, std::span(chain).first(70));
  EXPECT_TRUE(map.Holds(chain[69], place));
  EXPECT_TRUE(Walked(chain).empty());
  Commit();
  EXPECT_EQ(Walked(chain).size(), 70u);
  Remove(place, std::span(chain).subspan(60, 5));
  EXPECT_EQ(Walked(chain).size(), 70u);
  Commit();
  EXPECT_EQ(Walked(chain).size(), 65u);
  EXPECT_EQ(Walked(chain, true).size(), 60u);
}

TEST_F(ResidencyMapTest, EqualNumbersOfOtherFormsAreOtherHashes) {
  const PlaceId place = Open();
  const BlockHash positive = BlockHash::FromUnsigned(~uint64_t{0});
  const BlockHash negative = BlockHash::FromSigned(-1);
  Add(place, std::span(&positive, 1));
  Commit();
  EXPECT_TRUE(map.Holds(positive, place));
  EXPECT_FALSE(map.Holds(negative, place));
}

// A place is closed, and a new owner gets the number of the place. The entries of the closed place
// must not appear under the new owner. This must hold even if a run with these entries moves to a
// run number that the sweep has passed.
TEST_F(ResidencyMapTest, ARunThatMovesBehindTheSweepTakesNothingClosedAlong) {
  const PlaceId stays = Open();
  const PlaceId leaves = Open();
  const auto early = ChainOf(BlockHash::Form::kUnsigned, 1, 64);
  const auto late = ChainOf(BlockHash::Form::kUnsigned, 2, 64);
  Add(stays, early);
  Add(stays, late);
  Add(leaves, std::span(late).first(4));
  Commit();
  Remove(stays, early);  // frees a run number below the run number of `late`
  Commit();
  epochs.Collect();
  Close(leaves);
  Commit();
  Sweep(1);  // passes the freed run number
  ASSERT_TRUE(places.sweeping());
  Remove(stays, std::span(late).subspan(8));
  Commit();
  while (places.sweeping()) Sweep(1);
  const PlaceId next = Open();
  ASSERT_EQ(next, leaves) << "the new place must get the number of the closed place";
  EXPECT_EQ(Contents(), held);
  EXPECT_FALSE(map.Holds(late[0], next));
}

TEST_F(ResidencyMapTest, CopiesOfAClosedPlaceAreForgotten) {
  const PlaceId place = Open();
  const auto chain = ChainOf(BlockHash::Form::kUnsigned, 1, 3);
  for (int copy = 0; copy < 3; ++copy) Add(place, chain);
  Commit();
  Close(place);
  Commit();
  Sweep(1000);
  ASSERT_FALSE(places.sweeping());
  ASSERT_EQ(Open(), place);
  Add(place, chain);
  Remove(place, chain);
  Commit();
  EXPECT_TRUE(Contents().empty());
}

struct ResidencyMapModelTest : ResidencyMapTest, ::testing::WithParamInterface<BlockHash::Form> {};

TEST_P(ResidencyMapModelTest, HoldsWhatItsDefinitionHolds) {
  std::mt19937_64 random(20);
  const auto pick = [&random](size_t below) { return random() % below; };
  constexpr size_t kChains = 12;
  constexpr size_t kPlaces = 3;
  std::vector<std::vector<BlockHash>> chains;
  for (size_t i = 0; i < kChains; ++i) chains.push_back(ChainOf(GetParam(), i, 150));
  std::vector<PlaceId> open;
  for (size_t i = 0; i < kPlaces; ++i) open.push_back(Open());
  int reused = 0;
  PlaceId largest = 0;
  for (int step = 0; step < 2000; ++step) {
    const auto& watched = chains[pick(kChains)];
    const Seen before = Expected(watched);
    for (size_t op = pick(4); op > 0; --op) {
      const auto& chain = chains[pick(kChains)];
      const size_t begin = pick(chain.size());
      // Half of the operations have up to 100 blocks, and half have up to 10 blocks.
      const size_t length = std::min(chain.size() - begin, 1 + pick(pick(2) == 0 ? 100 : 10));
      const auto part = std::span(chain).subspan(begin, length);
      const PlaceId place = open[pick(kPlaces)];
      if (pick(10) < 5) {
        Add(place, part, begin > 0 && pick(2) == 0 ? &chain[begin - 1] : nullptr);
      } else if (pick(2) == 0) {
        Remove(place, part);
      } else {
        const std::vector<BlockHash> backwards(part.rbegin(), part.rend());
        Remove(place, backwards);
      }
    }
    if (pick(6) == 0) {  // removes most of a chain; the map rewrites the runs
      const auto& chain = chains[pick(kChains)];
      for (const PlaceId place : open) {
        for (size_t i = 0; i < chain.size(); ++i) {
          if (i % 9 != 0) Remove(place, std::span(chain).subspan(i, 1));
        }
      }
    }
    ASSERT_EQ(Walked(watched), before) << "not committed, step " << step;
    if (pick(6) == 0) {
      PlaceId& place = open[pick(kPlaces)];
      Close(place);
      place = Open();
      reused += place < largest;
      largest = std::max(largest, place);
    }
    Commit();
    epochs.Collect();  // makes freed run numbers reusable immediately
    Sweep(pick(6));
    ASSERT_EQ(Walked(watched), Expected(watched)) << "step " << step;
    if (step % 10 == 0) {
      ASSERT_EQ(Contents(), held) << "step " << step;
    }
  }
  EXPECT_GT(reused, 30);
}

INSTANTIATE_TEST_SUITE_P(Forms, ResidencyMapModelTest,
                         ::testing::Values(BlockHash::Form::kUnsigned, BlockHash::Form::kNegative,
                                           BlockHash::Form::kBytes));

}  // namespace
}  // namespace kvcast::router
