// A request with CacheRequest::keep_prefix_tokens keeps the blocks that a hit at this boundary
// needs, so that the next request with the prefix hits.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

// A prompt that begins with `shared` tokens and goes on with 64 tokens of its own.
CacheRequest Sharing(const char* id, uint32_t shared, TokenId own) {
  return Request(id, Concat(Tokens(shared), Tokens(64, own)));
}

CacheConfig FullAnd(GroupSpec other) {
  CacheConfig config = Config({Full(), other}, 100);
  config.retention_interval = 0;
  return config;
}

int64_t BoundaryOf(TestEngine& engine, CacheRequest& request, int64_t hint) {
  request.keep_prefix_tokens = hint;
  return engine.Lookup(request).shared_prefix_boundary;
}

TEST(KeepPrefix, KeepsTheWindowThatTheNextRequestNeeds) {
  for (const int64_t hint : {0, 64}) {
    TestEngine engine(FullAnd(Window(16)));
    CacheRequest first = Sharing("0", 64, 1000);
    first.keep_prefix_tokens = hint;
    engine.Start(first);
    CacheRequest second = Sharing("1", 64, 2000);
    EXPECT_EQ(engine.Lookup(second).tokens, hint);
  }
}

TEST(KeepPrefix, KeepsTheStateThatTheNextRequestNeeds) {
  for (const int64_t hint : {0, 32}) {
    TestEngine engine(FullAnd(Mamba(MambaMode::kAlign)));
    CacheRequest first = Sharing("0", 32, 1000);
    first.keep_prefix_tokens = hint;
    const PrefixHit hit = engine.Lookup(first);
    EXPECT_EQ(hit.shared_prefix_boundary, hint) << "the prefill stops here";
    ASSERT_TRUE(engine.Allocate(first, {.new_tokens = 32, .hit = &hit}));
    ASSERT_TRUE(engine.Allocate(first, {.computed_tokens = 32, .new_tokens = 64}));
    CacheRequest second = Sharing("1", 32, 2000);
    EXPECT_EQ(engine.Lookup(second).tokens, hint);
  }
}

TEST(KeepPrefix, TheHintIsRoundedDownToAPossibleHit) {
  TestEngine engine(FullAnd(Window(16)));
  CacheRequest request = Request("0", Tokens(100));
  EXPECT_EQ(BoundaryOf(engine, request, 79), 64);
  EXPECT_EQ(BoundaryOf(engine, request, 15), 0);
  EXPECT_EQ(BoundaryOf(engine, request, -5), 0);
  EXPECT_EQ(BoundaryOf(engine, request, 5000), 96) << "the whole blocks of the prompt";
  TestEngine mixed(Config({Full(32), Window(8, 8)}, 100));
  CacheRequest other = Request("0", Tokens(100));
  EXPECT_EQ(BoundaryOf(mixed, other, 79), 64) << "hits end at multiples of 32 tokens";
}

TEST(KeepPrefix, TheBoundaryOfTheOwnLookupWins) {
  TestEngine engine(FullAnd(Window(16)));
  CacheRequest first = Sharing("0", 64, 1000);
  engine.Start(first);
  CacheRequest second = Sharing("1", 64, 2000);
  for (const int64_t hint : {0, 32, 96}) EXPECT_EQ(BoundaryOf(engine, second, hint), 64) << hint;
}

TEST(KeepPrefix, AHitBeyondTheHintNeedsNoBoundary) {
  TestEngine engine(Config({Full()}, 100));
  CacheRequest first = Sharing("0", 64, 1000);
  engine.Start(first);
  CacheRequest second = Sharing("1", 64, 2000);
  EXPECT_EQ(engine.Lookup(second).tokens, 64);
  EXPECT_EQ(BoundaryOf(engine, second, 48), 0);
  EXPECT_EQ(BoundaryOf(engine, second, 64), 0);
  EXPECT_EQ(BoundaryOf(engine, second, 80), 80);
}

TEST(KeepPrefix, WithoutALookupThereIsNoBoundary) {
  TestEngine engine(FullAnd(Window(16)));
  CacheRequest request = Request("0", Tokens(100));
  request.skip_prefix_lookup = true;
  EXPECT_EQ(BoundaryOf(engine, request, 64), 0);
}

}  // namespace
}  // namespace kvcast::engine
