// Admission: whether a step gets its blocks, and whether a request can ever be admitted.
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "src/engine/single_type_manager.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

constexpr RequestSlot kSlot{0};

CacheConfig FullAndWindow(int64_t num_blocks) {
  CacheConfig config = Config({Full(), Window(64)}, num_blocks);
  config.max_in_flight_tokens = 128;
  config.max_model_len = 1024;
  return config;
}

bool Admit(TestEngine& engine, CacheRequest& request, int64_t new_tokens) {
  const PrefixHit hit = engine.Lookup(request);
  return engine.Allocate(request,
                         {.new_tokens = new_tokens, .hit = &hit, .full_sequence_must_fit = true});
}

// Full + SWA, block size 16, window 64, 128 tokens in flight, model length 1024, 78 blocks. The
// whole prompt must fit. A prompt of 512 tokens is admitted: it needs 32 blocks of full
// attention and at most 13 blocks of the window, so 45 of 77 blocks.
TEST(Admission, CountsAWindowAtItsPeakNotItsLength) {
  TestEngine engine(FullAndWindow(78));
  CacheRequest request = Request("0", Tokens(512));
  EXPECT_TRUE(Admit(engine, request, 128));
  TestEngine exact(FullAndWindow(46));
  EXPECT_TRUE(Admit(exact, request, 128));
  TestEngine one_less(FullAndWindow(45));
  EXPECT_FALSE(Admit(one_less, request, 128));
}

// The same configuration with 5 blocks refuses a prompt of 256 tokens.
TEST(Admission, RefusesAPromptThatCannotFit) {
  TestEngine engine(FullAndWindow(5));
  CacheRequest request = Request("0", Tokens(256));
  EXPECT_FALSE(Admit(engine, request, 16));
  EXPECT_EQ(engine.free_blocks(), 4);
  const PrefixHit none = engine.Lookup(request);
  EXPECT_TRUE(engine.Allocate(request, {.new_tokens = 16, .hit = &none}))
      << "one step of the prompt would fit";
}

TEST(Admission, CanEverFitAssumesAnEmptyPool) {
  TestEngine engine(FullAndWindow(46));
  CacheRequest other = Request("0", Tokens(300));
  engine.Start(other);
  EXPECT_TRUE(engine.cache().CanEverFit(512));
  EXPECT_FALSE(engine.cache().CanEverFit(513));
}

// A Mamba state moves to a new block before the block of the previous step is released. A request
// therefore needs two blocks, although admission counts only one block for the first step.
TEST(Admission, CanEverFitCountsTheStateOfThePreviousStep) {
  TestEngine two(Config({Mamba(MambaMode::kAlign)}, 3));
  EXPECT_TRUE(two.cache().CanEverFit(100));
  TestEngine one(Config({Mamba(MambaMode::kAlign)}, 2));
  EXPECT_FALSE(one.cache().CanEverFit(100));
  CacheRequest request = Request("0", Tokens(48));
  ASSERT_TRUE(Admit(one, request, 16));
  EXPECT_FALSE(one.Allocate(request, {.computed_tokens = 16, .new_tokens = 16}));
}

TEST(Admission, CanEverFitCountsTheEncodersTokens) {
  GroupSpec cross;
  cross.kind = SpecKind::kCrossAttention;
  TestEngine engine(Config({Full(), cross}, 6));
  EXPECT_TRUE(engine.cache().CanEverFit(32, 48));
  EXPECT_FALSE(engine.cache().CanEverFit(32, 49));
  EXPECT_FALSE(engine.cache().CanEverFit(32, std::numeric_limits<int64_t>::max()));
  EXPECT_TRUE(engine.cache().CanEverFit(-1, -1)) << "a request without tokens always fits";
}

TEST(Admission, KeepsTheWatermarkFreeIfRequested) {
  CacheConfig config = Config({Full()}, 11);
  config.watermark = 0.2;
  TestEngine engine(config);
  CacheRequest request = Request("0", Tokens(9 * 16));
  EXPECT_FALSE(engine.Allocate(request, {.new_tokens = 9 * 16, .apply_watermark = true}));
  EXPECT_TRUE(engine.Allocate(request, {.new_tokens = 8 * 16, .apply_watermark = true}));
}

TEST(Admission, DoesNotAllocateReservedBlocks) {
  TestEngine engine(Config({Full()}, 11));
  CacheRequest request = Request("0", Tokens(160));
  EXPECT_FALSE(engine.Allocate(request, {.new_tokens = 96, .reserved_blocks = 5}));
  EXPECT_TRUE(engine.Allocate(request, {.new_tokens = 80, .reserved_blocks = 5}));
}

TEST(Admission, ARefusedStepStillReleasesTheBlocksBeforeTheWindow) {
  TestEngine engine(Config({Window(16)}, 11));
  CacheRequest request = Request("0", Tokens(400));
  ASSERT_TRUE(engine.Allocate(request, {.new_tokens = 96}));
  EXPECT_EQ(engine.free_blocks(), 4);
  EXPECT_FALSE(engine.Allocate(request, {.computed_tokens = 96, .new_tokens = 160}));
  EXPECT_EQ(engine.free_blocks(), 9);
}

struct OneManager {
  explicit OneManager(GroupSpec spec, std::optional<int64_t> cap = std::nullopt)
      : pool(Pool(100, spec.block_size)) {
    GroupContext context;
    context.spec = spec;
    context.alignment = spec.block_size;
    context.max_admission_blocks = cap;
    context.pool = &pool;
    manager = std::make_unique<SingleTypeManager>(context);
  }
  BlockPool pool;
  std::unique_ptr<SingleTypeManager> manager;
};

// SWA with cap 4, block size 2, and 4, 8, 12, 16 tokens. Without apply_admission_cap, the predicted
// demand equals the allocation at every step.
TEST(Admission, PredictsTheNumberOfBlocksThatTheAllocatorTakes) {
  OneManager window(Window(4, 2), 4);
  for (const int64_t tokens : {4, 8, 12, 16}) {
    const SlotDemand demand{.tokens = tokens, .main_tokens = tokens};
    const int64_t predicted = window.manager->BlocksToAllocate(kSlot, {}, demand);
    std::vector<BlockId> added;
    window.manager->AllocateNew(kSlot, demand, added);
    EXPECT_EQ(predicted, static_cast<int64_t>(added.size()));
  }
}

// A new request needs 20 blocks. With 10 free hits the demand is 20. With 5 null hits and 5 free
// hits the demand is 15.
TEST(Admission, FreeHitsAreTakenFromTheQueueAndNullOnesAreNot) {
  OneManager full(Full(2));
  std::vector<BlockId> hits;
  full.pool.Allocate(10, hits);
  full.pool.Free(hits);
  const SlotDemand demand{.tokens = 40, .local_computed = 20, .total_computed = 20};
  EXPECT_EQ(full.manager->BlocksToAllocate(kSlot, hits, demand), 20);
  for (size_t i = 0; i < 5; ++i) hits[i] = kNullBlock;
  EXPECT_EQ(full.manager->BlocksToAllocate(kSlot, hits, demand), 15);
}

// With one evictable hit and 2 needed blocks the demand is 2, the allocator takes 1, and the table
// has 2 blocks.
TEST(Admission, TheAllocatorTakesTheDemandMinusTheFreeHits) {
  OneManager full(Full(2));
  std::vector<BlockId> hits;
  full.pool.Allocate(1, hits);
  full.pool.Free(hits);
  const SlotDemand demand{.tokens = 4, .main_tokens = 4, .local_computed = 2, .total_computed = 2};
  EXPECT_EQ(full.manager->BlocksToAllocate(kSlot, hits, demand), 2);
  full.manager->AddHit(kSlot, hits, demand);
  std::vector<BlockId> added;
  full.manager->AllocateNew(kSlot, demand, added);
  EXPECT_EQ(added.size(), 1u);
  EXPECT_EQ(full.manager->table(kSlot).size(), 2u);
}

TEST(Admission, SinkLayersReserveTheirBlocksPermanently) {
  GroupSpec sink = Full();
  sink.kind = SpecKind::kSinkFullAttention;
  sink.sink_tokens = 32;
  TestEngine engine(Config({sink}, 11));
  EXPECT_EQ(engine.free_blocks(), 8);
  EXPECT_TRUE(engine.cache().CanEverFit(128));
  EXPECT_FALSE(engine.cache().CanEverFit(129));
  CacheRequest request = Request("0", Tokens(20));
  EXPECT_EQ(engine.Start(request), (IdLists{{3, 4}}));
}

TEST(Admission, SinksThatFillThePoolAreAnError) {
  GroupSpec sink = Full();
  sink.kind = SpecKind::kSinkFullAttention;
  sink.sink_tokens = 160;
  auto hasher = BlockHasher::FromSeed(HashAlgorithm::kSha256, kDefaultHashSeed);
  const auto cache = CacheManager::Create(Config({sink}, 10), std::move(hasher).value());
  EXPECT_EQ(cache.status().code(), StatusCode::kInvalidArgument);
}

TEST(Admission, CrossAttentionHoldsTheEncodersTokens) {
  GroupSpec cross;
  cross.kind = SpecKind::kCrossAttention;
  GroupSpec encoder;
  encoder.kind = SpecKind::kEncoderOnlyAttention;
  TestEngine engine(Config({Full(), cross, encoder}, 20));
  CacheRequest request = Request("0", Tokens(20));
  ASSERT_TRUE(engine.Allocate(request, {.new_tokens = 20, .encoder_tokens = 40}));
  EXPECT_EQ(engine.last_new(), (IdLists{{1, 2}, {3, 4, 5}, {}}));
  CacheRequest same = Request("1", Tokens(20));
  EXPECT_EQ(engine.Lookup(same).tokens, 16) << "the lookup ignores the other groups";
  engine.Free(request);
  EXPECT_EQ(engine.free_blocks(), 19);
}

}  // namespace
}  // namespace kvcast::engine
