// Event options that vLLM lacks. announce_once: only the first copy of a hash is announced.
// exact_spans: an event covers exactly the blocks that it names. name_cleared_tier: a clear names
// its tier. TakePayload returns the encoded events.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/wire/wire.h"
#include "src/engine/block_pool.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

constexpr GroupIdx kGroup{0};

PoolOptions With(const EventOptions& events) {
  PoolOptions options = Pool(20, 4);
  options.events = events;
  return options;
}

Bitmap Mask(std::initializer_list<bool> kept) {
  Bitmap mask;
  mask.Resize(static_cast<int64_t>(kept.size()));
  int64_t position = 0;
  for (const bool keep : kept) {
    if (keep) mask.Set(position);
    ++position;
  }
  return mask;
}

std::string Kinds(const std::vector<Event>& events) {
  std::string kinds;
  for (const Event& event : events) kinds += "SRC"[event.index()];
  return kinds;
}

// Two requests compute the same block, and both keep their copy.
TEST(AnnounceOnce, AHashIsStoredWithItsFirstCopyAndRemovedWithItsLast) {
  BlockPool pool(With({.announce_once = true}));
  const CacheRequest request = HashedRequest(4, 4);
  const auto first = Allocated(pool, 1);
  const auto second = Allocated(pool, 1);
  pool.CacheFullBlocks({request, kGroup, 4, first, 0, 1});
  pool.CacheFullBlocks({request, kGroup, 4, second, 0, 1});
  EXPECT_EQ(Kinds(TakeEvents(pool)), "S");
  pool.Evict(first);
  EXPECT_EQ(Kinds(TakeEvents(pool)), "") << "one copy is left";
  pool.Evict(second);
  EXPECT_EQ(Kinds(TakeEvents(pool)), "R");
}

TEST(AnnounceOnce, OnlyTheNewHashesOfASpanAreNamed) {
  BlockPool pool(With({.announce_once = true}));
  const CacheRequest request = HashedRequest(12, 4);
  const auto first = Allocated(pool, 1);
  const auto second = Allocated(pool, 3);
  pool.CacheFullBlocks({request, kGroup, 4, first, 0, 1});
  TakeEvents(pool);
  pool.CacheFullBlocks({request, kGroup, 4, second, 0, 3});
  const auto events = TakeEvents(pool);
  ASSERT_EQ(Kinds(events), "S");
  EXPECT_EQ(std::get<BlockStored>(events[0]).block_hashes,
            (std::vector{EventHashOf(request, 1), EventHashOf(request, 2)}));
}

TEST(AnnounceOnce, AHitIsNotReportedAgain) {
  BlockPool pool(With({.announce_once = true}));
  const CacheRequest request = HashedRequest(8, 4);
  pool.ReportBlocks(request, kGroup, 4, Allocated(pool, 2));
  EXPECT_TRUE(TakeEvents(pool).empty());
}

// Blocks have 4 tokens. Of six blocks, the pool keeps the blocks 0, 2, 3 and 5.
TEST(ExactSpans, EachRunOfNeighboursIsAnEventWithItsOwnParentTokensAndOffset) {
  BlockPool pool(With({.exact_spans = true}));
  const CacheRequest request = HashedRequest(24, 4);
  const auto table = Allocated(pool, 6);
  const Bitmap keep = Mask({true, false, true, true, false, true});
  pool.CacheFullBlocks({request, kGroup, 4, table, 0, 6, &keep});
  const auto events = TakeEvents(pool);
  ASSERT_EQ(Kinds(events), "SSS");
  const std::vector<TokenId> tokens = Tokens(24);
  const auto expect = [&](size_t event_index, size_t begin, size_t end) {
    const auto& event = std::get<BlockStored>(events[event_index]);
    std::vector<BlockHash> hashes;
    for (size_t i = begin; i < end; ++i) hashes.push_back(EventHashOf(request, i));
    EXPECT_EQ(event.block_hashes, hashes);
    const auto parent = begin == 0 ? std::nullopt : std::optional(EventHashOf(request, begin - 1));
    EXPECT_EQ(event.parent_block_hash, parent);
    EXPECT_EQ(event.token_offset, static_cast<int64_t>(begin) * 4);
    EXPECT_EQ(*event.token_ids, std::vector<TokenId>(tokens.begin() + static_cast<long>(begin * 4),
                                                     tokens.begin() + static_cast<long>(end * 4)));
    EXPECT_EQ(event.extra_keys->size(), end - begin);
  };
  expect(0, 0, 1);
  expect(1, 2, 4);
  expect(2, 5, 6);
}

TEST(ExactSpans, ASpanWithoutKeptBlocksHasNoEvent) {
  BlockPool pool(With({.exact_spans = true}));
  const CacheRequest request = HashedRequest(8, 4);
  const auto table = Allocated(pool, 2);
  const Bitmap keep = Mask({false, false});
  pool.CacheFullBlocks({request, kGroup, 4, table, 0, 2, &keep});
  EXPECT_TRUE(TakeEvents(pool).empty());
}

TEST(ExactSpans, AReportNamesOnlyBlocksThatTheGroupHolds) {
  BlockPool pool(With({.exact_spans = true}));
  const CacheRequest request = HashedRequest(12, 4);
  const auto held = Allocated(pool, 1);
  pool.ReportBlocks(request, kGroup, 4, std::vector{kNullBlock, kNullBlock, held[0]});
  const auto events = TakeEvents(pool);
  ASSERT_EQ(Kinds(events), "S");
  EXPECT_EQ(std::get<BlockStored>(events[0]).block_hashes, std::vector{EventHashOf(request, 2)});
  EXPECT_EQ(std::get<BlockStored>(events[0]).token_offset, 8);
}

TEST(NamedTier, AClearNamesItsTier) {
  PoolOptions options = With({.name_cleared_tier = true});
  options.medium = kMediumCpu;
  BlockPool pool(options);
  ASSERT_TRUE(pool.Reset());
  const auto events = TakeEvents(pool);
  ASSERT_EQ(Kinds(events), "C");
  EXPECT_EQ(std::get<AllBlocksCleared>(events[0]).medium, "CPU");
}

// A reset of an idle engine makes an event that no step will publish.
TEST(IdleFlush, PendingEventsAreVisibleOutsideOfSteps) {
  TestEngine engine(Config({Full()}, 10));
  EXPECT_EQ(engine.cache().pending_events(), 0u);
  ASSERT_TRUE(engine.cache().ResetPrefixCache());
  EXPECT_EQ(engine.cache().pending_events(), 1u);
  EXPECT_EQ(engine.cache().TakeEvents().size(), 1u);
  EXPECT_EQ(engine.cache().pending_events(), 0u);
}

// For every dialect and every kind of event, the payload equals the encoded events.
TEST(TakePayload, IsByteEqualToTheEncodedEvents) {
  for (int i = 0; i <= static_cast<int>(Dialect::kKvcast1); ++i) {
    const auto dialect = static_cast<Dialect>(i);
    const EventOptions options{.hash_form =
                                   i % 2 == 0 ? EventHashForm::kInt64 : EventHashForm::kBytes};
    const CacheConfig config = Config({Full(), Window(32)}, 14);
    TestEngine taken(config, options);
    TestEngine encoded(config, options);
    for (TestEngine* engine : {&taken, &encoded}) {
      for (int round = 0; round < 3; ++round) {
        CacheRequest request = Request("r", Tokens(80, round * 1000));
        request.hash_inputs.lora_name = round == 1 ? "adapter" : "";
        request.hash_inputs.cache_salt = round == 2 ? "salt" : "";
        request.lora_id = round == 1 ? std::optional<int64_t>(7) : std::nullopt;
        request.session_id = round == 2 ? std::optional<std::string>("s") : std::nullopt;
        ASSERT_TRUE(engine->cache().AllocateSlots(request, {.new_tokens = 80}));
        engine->cache().Free(request);
      }
      ASSERT_TRUE(engine->cache().ResetPrefixCache());
    }
    EventBatch batch;
    batch.ts = 2.5;
    batch.data_parallel_rank = 1;
    batch.events = taken.cache().TakeEvents();
    ASSERT_NE(Kinds(batch.events).find('R'), std::string::npos);
    std::vector<uint8_t> expected = {1, 2, 3};
    ASSERT_TRUE(EncodeBatch(batch, dialect, expected).ok());
    std::vector<uint8_t> payload = {1, 2, 3};
    const auto count = encoded.cache().TakePayload(2.5, 1, dialect, payload);
    ASSERT_TRUE(count.ok());
    EXPECT_EQ(*count, batch.events.size());
    EXPECT_EQ(payload, expected) << DialectName(dialect);
    EXPECT_EQ(*encoded.cache().TakePayload(2.5, 1, dialect, payload), 0u);
    EXPECT_EQ(payload, expected) << "no event is pending, so nothing is appended";
  }
}

TEST(TakePayload, ANameThatIsNotTextIsAnErrorAndLeavesThePayloadAsItWas) {
  TestEngine engine(Config({Full()}, 10));
  CacheRequest request = Request("r", Tokens(32));
  request.session_id = "\xff";
  ASSERT_TRUE(engine.cache().AllocateSlots(request, {.new_tokens = 32}));
  std::vector<uint8_t> payload = {9};
  EXPECT_FALSE(engine.cache().TakePayload(0, 0, kDefaultDialect, payload).ok());
  EXPECT_EQ(payload, std::vector<uint8_t>{9});
}

}  // namespace
}  // namespace kvcast::engine
