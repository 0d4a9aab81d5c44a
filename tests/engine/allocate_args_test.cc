// AllocateSlots refuses contradictory arguments and then changes nothing. Tokens beyond the model
// length get no slots.
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

class AllocateArguments : public ::testing::Test {
 protected:
  AllocateArguments() : engine_(Config({Full(), Window(32)}, 40)) {
    CacheRequest cached = Request("cached", Tokens(64));
    engine_.Start(cached);
    engine_.Free(cached);
    hit_ = engine_.Lookup(request_);
    EXPECT_EQ(hit_.tokens, 64);
  }
  void ExpectRefused(const AllocateArgs& args) {
    EXPECT_FALSE(engine_.Allocate(request_, args));
    EXPECT_EQ(engine_.free_blocks(), 39);
    EXPECT_TRUE(engine_.Table(request_, 0).empty());
  }

  TestEngine engine_;
  CacheRequest request_ = Request("0", Tokens(100));
  PrefixHit hit_;
};

TEST_F(AllocateArguments, NothingToComputeIsRefused) { ExpectRefused({}); }

TEST_F(AllocateArguments, NegativeCountsAreRefused) {
  ExpectRefused({.new_tokens = -1});
  ExpectRefused({.computed_tokens = -5, .new_tokens = 10});
  ExpectRefused({.new_tokens = 10, .lookahead_tokens = -1});
  ExpectRefused({.new_tokens = 10, .external_tokens = -1});
}

TEST_F(AllocateArguments, CountsOutOfRangeAreRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ExpectRefused({.computed_tokens = 1, .new_tokens = kMost});
  ExpectRefused({.new_tokens = 10, .lookahead_tokens = kMost});
  ExpectRefused({.new_tokens = 10, .encoder_tokens = kMost});
  ExpectRefused({.new_tokens = 100, .reserved_blocks = -1});
}

TEST_F(AllocateArguments, AHitBehindComputedTokensIsRefused) {
  ExpectRefused({.computed_tokens = 5, .new_tokens = 10, .hit = &hit_});
}

TEST_F(AllocateArguments, AHitOfARunningRequestIsRefused) {
  ASSERT_TRUE(engine_.Allocate(request_, {.new_tokens = 10, .hit = &hit_}));
  EXPECT_FALSE(engine_.Allocate(request_, {.new_tokens = 10, .hit = &hit_}));
}

TEST_F(AllocateArguments, AHitWhoseTablesDoNotFitIsRefused) {
  PrefixHit wrong = hit_;
  wrong.blocks.pop_back();
  ExpectRefused({.new_tokens = 10, .hit = &wrong});
  wrong = hit_;
  wrong.blocks[0].pop_back();
  ExpectRefused({.new_tokens = 10, .hit = &wrong});
  wrong = hit_;
  wrong.blocks[0][0] = BlockId(40);
  ExpectRefused({.new_tokens = 10, .hit = &wrong});
  wrong = hit_;
  wrong.tokens = 0;
  ExpectRefused({.new_tokens = 10, .hit = &wrong});
}

TEST_F(AllocateArguments, TokensBeyondTheModelsLengthGetNoSlots) {
  CacheConfig config = Config({Full()}, 40);
  config.max_model_len = 64;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(100));
  ASSERT_TRUE(engine.Allocate(request, {.new_tokens = 100}));
  EXPECT_EQ(engine.Table(request, 0).size(), 4u);
  engine.cache().CacheBlocks(request, 100);
  EXPECT_EQ(engine.cache().CachedKeys(GroupIdx(0)).size(), 4u);
}

}  // namespace
}  // namespace kvcast::engine
