// Tokens that are loaded from another tier get slots immediately and are cached when the load is
// done.
// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

// All blocks of a request's tables except the null block. Fails on a repeated id.
std::set<uint32_t> HeldBlocks(const TestEngine& engine, const CacheRequest& request,
                              uint32_t groups) {
  std::set<uint32_t> held;
  for (uint32_t group = 0; group < groups; ++group) {
    for (const uint32_t block : engine.Table(request, group)) {
      if (block == 0) continue;
      EXPECT_TRUE(held.insert(block).second) << "block " << block << " twice";
    }
  }
  return held;
}

// Every group hits locally, then the manager takes blocks for external tokens. No group may lose
// its hit, although the hit blocks are the next blocks in the free queue of the pool.
void LoadBehindHits(std::vector<GroupSpec> groups) {
  const auto count = static_cast<uint32_t>(groups.size());
  TestEngine engine(Config(std::move(groups), 10 * count + 1));
  CacheRequest first = Request("0", Tokens(64));
  CacheRequest filler = Request("filler", Tokens(96, 5000));
  engine.Start(first);
  engine.Start(filler);
  engine.Free(first);
  engine.Free(filler);
  for (int round = 0; round < 2; ++round) {
    CacheRequest second = Request("1", Tokens(160));
    const PrefixHit hit = engine.Lookup(second);
    ASSERT_EQ(hit.tokens, 64);
    ASSERT_TRUE(engine.Allocate(
        second, {.new_tokens = 16, .external_tokens = 80, .hit = &hit, .delay_caching = true}));
    EXPECT_EQ(HeldBlocks(engine, second, count).size(), 10u * count);
    engine.Free(second);
  }
}

// Each of 2 or 3 groups has a local hit and external blocks. All block ids are unique, and every
// block is referenced, also after free and reallocation.
TEST(ExternalTokens, AreAllocatedAfterEveryGroupHoldsItsHit) {
  LoadBehindHits({Full(), Window(512)});
  LoadBehindHits({Full(), Window(512), Window(1024)});
}

TEST(ExternalTokens, AreNotCachedBeforeTheyHaveArrived) {
  TestEngine engine(Config({Full()}, 20));
  CacheRequest request = Request("0", Tokens(70));
  ASSERT_TRUE(engine.Allocate(request, {.external_tokens = 64, .delay_caching = true}));
  EXPECT_TRUE(engine.cache().TakeEvents().empty());
  CacheRequest same = Request("1", Tokens(70));
  EXPECT_EQ(engine.Lookup(same).tokens, 0);
  engine.cache().CacheBlocks(request, 64);
  EXPECT_EQ(engine.cache().TakeEvents().size(), 1u);
  EXPECT_EQ(engine.Lookup(same).tokens, 64);
}

// A window needs slots only for the external tokens that it will still read.
TEST(ExternalTokens, OutsideAWindowGetNoBlocks) {
  TestEngine engine(Config({Window(32)}, 20));
  CacheRequest request = Request("0", Tokens(170));
  ASSERT_TRUE(
      engine.Allocate(request, {.new_tokens = 10, .external_tokens = 160, .delay_caching = true}));
  EXPECT_EQ(engine.Table(request, 0), (Ids{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}));
}

TEST(ExternalTokens, CachingARequestThatHoldsNothingDoesNothing) {
  TestEngine engine(Config({Full()}, 20));
  CacheRequest request = Request("0", Tokens(70));
  engine.cache().CacheBlocks(request, 64);
  EXPECT_TRUE(engine.cache().TakeEvents().empty());
}

}  // namespace
}  // namespace kvcast::engine
