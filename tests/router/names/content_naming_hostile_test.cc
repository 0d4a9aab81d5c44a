// Naming works for streams that no engine sends: random hashes, parents, tokens and sizes. The cost
// of one event does not grow with the number of known blocks. The cost tests measure no time. If
// the cost grew, these tests would run until the timeout of the test program.
// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <map>
#include <random>
#include <tuple>

#include "router/names/ambiguous_names.h"
#include "router/names/sparse_span.h"
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

using Random = std::mt19937_64;

uint64_t Pick(Random& random, uint64_t low, uint64_t high) {
  return std::uniform_int_distribution<uint64_t>(low, high)(random);
}

std::optional<ExtraKeys> RandomExtraKeys(Random& random) {
  switch (Pick(random, 0, 9)) {
    case 0:
      return ExtraKeys{ExtraKey::Text("salt")};
    case 1:
      return ExtraKeys{ExtraKey::Item("a", static_cast<int64_t>(Pick(random, 0, 9)) - 4)};
    case 2:
      return ExtraKeys{ExtraKey::Item("a", std::numeric_limits<int64_t>::min()),
                       ExtraKey::Item("b", std::numeric_limits<int64_t>::max())};
    case 3:
      return ExtraKeys{ExtraKey::Binary("x"), ExtraKey{}};
    default:
      return std::nullopt;
  }
}

// Returns a store with a block size that the index accepts. If the index refused the store, a
// remove could not find its blocks.
BlockStored RandomStore(Random& random) {
  const uint64_t group = Pick(random, 0, 2);
  const uint64_t largest = group == 0 ? 2 : group == 1 ? 0 : 1;
  BlockStored event =
      StoreFull({}, static_cast<int64_t>(group), int64_t{4} << Pick(random, 0, largest));
  for (uint64_t i = Pick(random, 0, 3); i > 0; --i) {
    event.block_hashes.push_back(Hash(Pick(random, 0, 40)));
  }
  if (Pick(random, 0, 2) > 0) event.parent_block_hash = Hash(Pick(random, 0, 40));
  if (Pick(random, 0, 9) > 0) {
    event.token_ids = Tokens(0, static_cast<int64_t>(Pick(random, 0, 8)) * 4);
    for (TokenId& token : *event.token_ids) token = static_cast<TokenId>(Pick(random, 0, 1));
  }
  if (Pick(random, 0, 20) == 0)
    event.tokens_per_position = static_cast<uint8_t>(Pick(random, 0, 3));
  if (Pick(random, 0, 20) == 0) event.token_offset = std::numeric_limits<int64_t>::max();
  if (Pick(random, 0, 20) == 0) event.token_offset = static_cast<int64_t>(Pick(random, 0, 9)) * 4;
  if (Pick(random, 0, 3) == 0) return event;
  event.extra_keys.emplace();
  for (size_t i = 0; i < event.block_hashes.size(); ++i) {
    event.extra_keys->push_back(RandomExtraKeys(random));
  }
  return event;
}

Event RandomEvent(Random& random) {
  if (Pick(random, 0, 300) == 0) return AllBlocksCleared{};
  if (Pick(random, 0, 2) > 0) return RandomStore(random);
  return Remove({Hash(Pick(random, 0, 40))}, static_cast<int64_t>(Pick(random, 0, 2)));
}

using Held = std::map<std::tuple<Tier, uint8_t, uint64_t>, uint32_t>;

Held HeldBy(const PrefixIndex& index) {
  Held held;
  index.ForEachResidency(
      kWorker, [&](Tier tier, uint8_t group, const BlockHash& hash, uint32_t copies) {
        const bool once = held.emplace(std::tuple(tier, group, hash.integer()), copies).second;
        EXPECT_TRUE(once);
      });
  return held;
}

// Tokens do not change which hashes are held.
TEST(ContentNamingHostile, TokensDoNotChangeTheHeldHashes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    WorkerConfig config;
    if (seed % 3 != 0) config.sparse_rule = SparseRule{EngineRules::kMain2026August, 16, 0};
    config.repeats_are_refreshes = seed % 2 == 0;
    const std::vector<GroupSpec> groups = {Full(16), Window(9, 4), Full(8)};
    ContentWorker worker(groups, config);
    ContentWorker blind(groups, config);
    for (int i = 0; i < 600; ++i) {
      const Event event = RandomEvent(random);
      worker.index().Apply(kWorker, {.events = {event}});
      Event without = event;
      if (auto* stored = std::get_if<BlockStored>(&without)) stored->token_ids.reset();
      blind.index().Apply(kWorker, {.events = {without}});
      if (i % 50 != 0) continue;
      const Held held = HeldBy(worker.index());
      ASSERT_EQ(held, HeldBy(blind.index()));
      uint64_t unnamed = 0;
      for (const auto& [block, copies] : held) {
        unnamed += !worker.Knows(Hash(std::get<2>(block)));
      }
      ASSERT_EQ(worker.counters().unnamed, unnamed);
      ASSERT_EQ(worker.counters().residencies, held.size());
    }
    EXPECT_EQ(worker.counters().unknown_removes, blind.counters().unknown_removes);
    EXPECT_EQ(worker.counters().bad_events, blind.counters().bad_events);
    EXPECT_EQ(blind.counters().unnamed, blind.counters().residencies);
    worker.Apply(AllBlocksCleared{});
    EXPECT_EQ(worker.counters().residencies, 0u);
    EXPECT_EQ(worker.counters().unnamed, 0u);
    EXPECT_EQ(worker.counters().unnamed_gpu, 0u);
  }
}

// Returns the store of a prompt of one block. `number` determines the hash and, with `first_token`,
// the content.
BlockStored OwnPrompt(int64_t number, TokenId first_token) {
  return StoreTokens({Hash(static_cast<uint64_t>(number))}, {first_token, number, 0, 0});
}

TEST(ContentNamingCost, AContradictionCostsTheSameHoweverMuchIsKnown) {
  constexpr int64_t kPrompts = 100'000;
  constexpr int64_t kContradictions = 20'000;
  ContentWorker worker({Full(4)});
  for (int64_t i = 0; i < kPrompts; ++i) worker.Apply(OwnPrompt(i, 1));
  for (int64_t i = 0; i < kContradictions; ++i) worker.Apply(OwnPrompt(i, 2));
  EXPECT_GE(worker.counters().ambiguous, router::AmbiguousNames::kMax / 2);
  EXPECT_EQ(worker.counters().unnamed_gpu, uint64_t{kContradictions});
}

// Every hash of the store contradicts its earlier content.
TEST(ContentNamingCost, AStoreOfManyContradictionsIsAppliedInOnePass) {
  constexpr int64_t kHashes = 20'000;
  ContentWorker worker({Full(4)});
  std::vector<BlockHash> hashes;
  for (int64_t i = 0; i < kHashes; ++i) {
    worker.Apply(OwnPrompt(i, 1));
    hashes.push_back(Hash(static_cast<uint64_t>(i)));
  }
  worker.Apply(StoreTokens(hashes, Tokens(1, 4 * kHashes)));
  EXPECT_EQ(worker.counters().unnamed_gpu, uint64_t{kHashes});
}

// Each block waits for the block before it, and the first block waits for block 0, which comes
// last.
TEST(ContentNamingCost, ALongWaitingChainIsNamedInOnePass) {
  constexpr int64_t kStores = 4000;
  ContentWorker worker({Full(4)});
  for (int64_t i = kStores; i > 0; --i) {
    worker.Apply(StoreTokens({Hash(static_cast<uint64_t>(i))}, Tokens(4 * i, 4),
                             Hash(static_cast<uint64_t>(i - 1))));
  }
  worker.Apply(StoreTokens({Hash(0)}, Tokens(0, 4)));
  EXPECT_EQ(worker.counters().named_late, uint64_t{kStores});
  EXPECT_EQ(worker.Reusable(Tokens(0, 4 * kStores + 4)), 4 * kStores + 4);
}

TEST(ContentNamingCost, AClearOfAnEmptyTierCostsNothing) {
  ContentWorker worker({Full(4)});
  for (int64_t i = 0; i < 100'000; ++i) worker.Apply(OwnPrompt(i, 1));
  for (int i = 0; i < 100'000; ++i) worker.Apply(AllBlocksCleared{.medium = "CPU"});
  EXPECT_EQ(worker.counters().residencies, 100'000u);
}

TEST(ContentNamingCost, TheCostDoesNotGrowWithTheWindow) {
  const SparseRule rule{EngineRules::kMain2026August, 4, 0};
  std::vector<int64_t> blocks_of = {router::kNoBlock};
  EXPECT_TRUE(router::PlaceByRule(rule, Window(kMaxWindow, 4), 0, 4, blocks_of));
  EXPECT_EQ(blocks_of[0], router::kNoBlock);
}

}  // namespace
}  // namespace kvcast::testing
