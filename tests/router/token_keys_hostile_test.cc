// Token mode on streams that no engine sends: hashes, parents, tokens and sizes at random.
// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <random>

#include "tests/router/token_events.h"

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

// Of a block size that the index takes: what it refuses, it cannot find again to remove.
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

// Whatever is sent, what is told to the index is sound: it never hears of a remove without a store,
// and forgets all when the engine does.
TEST(TokenKeysHostile, TheIndexIsToldASoundStory) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    TokenKeysConfig config;
    config.sparse_rule = SparseRule{EngineRules::kMain2026August, 16, 0};
    config.hashes_max = seed % 2 == 0 ? 12 : 1000;
    config.parked_stores_max = 5;
    config.parked_tokens_max = 60;
    const GroupSpec window{.kind = SpecKind::kSlidingWindow, .block_size = 4, .sliding_window = 9};
    TokenModeWorker worker(config, {Full(16), window, Full(8)});
    for (int i = 0; i < 600; ++i) worker.Apply(RandomEvent(random));
    const IndexCounters counters = worker.index().counters(kWorker);
    EXPECT_EQ(counters.unknown_removes, 0u) << "seed " << seed;
    EXPECT_LE(worker.counters().parked_stores, 5u);
    EXPECT_LE(worker.counters().hashes, config.hashes_max);
    worker.Apply(AllBlocksCleared{});
    EXPECT_EQ(worker.index().counters(kWorker).residencies, 0u);
  }
}

}  // namespace
}  // namespace kvcast::testing
