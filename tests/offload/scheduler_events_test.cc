// The scheduler announces the chunks of host memory to routers. Blocks have 4 tokens.
// SPDX-License-Identifier: Apache-2.0
#include "src/offload/connector/chunk_describer.h"
#include "src/offload/connector/event_writer.h"
#include "tests/offload/offload_testing.h"
#include "tests/offload/scheduler_testing.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

BlockHash HashOf(const TestRequest& request, size_t unit) {
  return ToEventHash(request.cache.chain.at(unit), EventHashForm::kInt64);
}

std::vector<TokenId> TokensOf(const TestRequest& request, int64_t begin, int64_t end) {
  return {request.cache.tokens.begin() + begin, request.cache.tokens.begin() + end};
}

TEST(Events, OfBlocksNameHashParentTokensGroupAndKind) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.Add(24);
  engine.Match(request);
  for (const int64_t tokens : {12, 12}) {  // the second job continues the first
    engine.Run(request, tokens);
    engine.Complete();
  }
  const auto events = engine.scheduler().TakeEvents();
  ASSERT_THAT(events, SizeIs(6));
  for (size_t i = 0; i < 6; ++i) {
    const auto& stored = std::get<BlockStored>(events[i]);
    const auto begin = static_cast<int64_t>(4 * i);
    EXPECT_THAT(stored.block_hashes, ElementsAre(HashOf(request, i)));
    EXPECT_EQ(stored.parent_block_hash,
              i == 0 ? std::nullopt : std::optional(HashOf(request, i - 1)));
    EXPECT_EQ(stored.token_ids, TokensOf(request, begin, begin + 4));
    EXPECT_EQ(stored.block_size, 4);
    EXPECT_EQ(stored.group_idx, 0);
    EXPECT_EQ(stored.kv_cache_spec_kind, "full_attention");
    EXPECT_EQ(stored.medium, "CPU");
  }
}

TEST(Events, OfChunksNameEveryBlockAndTheRemovalDoesToo) {
  TestEngine engine(Config({Full()}, 3, 2));
  TestRequest& request = engine.Stored(engine.Add(24));
  auto events = engine.scheduler().TakeEvents();
  ASSERT_THAT(events, SizeIs(2));
  const auto second = std::get<BlockStored>(events[1]);
  EXPECT_THAT(second.block_hashes,
              ElementsAre(HashOf(request, 3), HashOf(request, 4), HashOf(request, 5)));
  EXPECT_EQ(second.parent_block_hash, HashOf(request, 2));
  EXPECT_EQ(second.token_ids, TokensOf(request, 12, 24));
  engine.Stored(engine.Add(12));
  events = engine.scheduler().TakeEvents();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(std::get<BlockRemoved>(events[0]).block_hashes, second.block_hashes);
}

TEST(Events, OfWindowsAndStatesAreDescribedTooButNotInVllm) {
  for (const bool compatible : {false, true}) {
    OffloadSchedulerConfig config = Config({Full(), Window(8)});
    config.compatible = compatible;
    TestEngine engine(config);
    TestRequest& request = engine.Stored(engine.Add(5));
    const auto events = engine.scheduler().TakeEvents();
    ASSERT_THAT(events, SizeIs(2));
    const auto& window = std::get<BlockStored>(events[1]);
    EXPECT_THAT(window.block_hashes, ElementsAre(HashOf(request, 0)));
    EXPECT_EQ(window.group_idx, 1);
    EXPECT_EQ(window.block_size, compatible ? 0 : 4);
    EXPECT_EQ(window.token_ids->size(), compatible ? 0u : 4u);
    EXPECT_EQ(window.kv_cache_spec_sliding_window.value_or(0), compatible ? 0 : 8);
    EXPECT_EQ(window.kv_cache_spec_kind.value_or(""), compatible ? "" : "sliding_window");
  }
}

TEST(Events, OfAStateNameTheHashAtItsEndAlone) {
  TestEngine engine(Config({Full(8), Mamba(8, MambaMode::kAlign)}, 2));
  TestRequest& request = engine.Add(17);
  engine.Match(request);
  engine.Run(request, 17);
  engine.Complete();
  const auto events = engine.scheduler().TakeEvents();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_THAT(std::get<BlockStored>(events[0]).block_hashes, SizeIs(2));
  const auto& state = std::get<BlockStored>(events[1]);
  EXPECT_THAT(state.block_hashes, ElementsAre(HashOf(request, 3)));
  EXPECT_EQ(state.kv_cache_spec_kind, "mamba");
  EXPECT_EQ(state.token_ids->size(), 16u);
}

TEST(Events, CarryExtraKeysAndAdapter) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.Add(9);
  request.cache.hash_inputs.lora_name = "adapter";
  request.cache.hash_inputs.cache_salt = "salt";
  request.cache.lora_id = 3;
  engine.Stored(request);
  const auto events = engine.scheduler().TakeEvents();
  ASSERT_THAT(events, SizeIs(2));
  const auto& first = std::get<BlockStored>(events[0]);
  EXPECT_EQ(first.lora_name, "adapter");
  EXPECT_EQ(first.lora_id, 3);
  ASSERT_TRUE(first.extra_keys && first.extra_keys->at(0));
  EXPECT_EQ(*first.extra_keys->at(0),
            (ExtraKeys{ExtraKey::Text("adapter"), ExtraKey::Text("salt")}));
  const auto& second = std::get<BlockStored>(events[1]);
  EXPECT_EQ(*second.extra_keys->at(0), ExtraKeys{ExtraKey::Text("adapter")});
}

TEST(Events, CanBeLeftUndescribed) {
  OffloadSchedulerConfig config = Config({Full()});
  config.self_describing_events = false;
  TestEngine engine(config);
  TestRequest& request = engine.Stored(engine.Add(8));
  const auto events = engine.scheduler().TakeEvents();
  ASSERT_THAT(events, SizeIs(2));
  const auto& stored = std::get<BlockStored>(events[1]);
  EXPECT_THAT(stored.block_hashes, ElementsAre(HashOf(request, 1)));
  EXPECT_EQ(stored.block_size, 0);
  EXPECT_EQ(stored.parent_block_hash, std::nullopt);
  EXPECT_THAT(*stored.token_ids, IsEmpty());
}

// Only the event of a removal or a clear deletes the description of a chunk. So without events, the
// scheduler must keep no description.
TEST(Events, ThatAreTurnedOffNeedNoDescriptions) {
  for (const bool enabled : {true, false}) {
    OffloadSchedulerConfig config = Config({Full()});
    config.memory.enable_events = enabled;
    TestEngine engine(config);
    EXPECT_EQ(ChunkDescriber(engine.scheduler().layout(), config).Describes(0), enabled);
    engine.Stored(engine.Add(8));
    EXPECT_THAT(engine.scheduler().TakeEvents(), SizeIs(enabled ? 2 : 0));
  }
}

TEST(Events, ComeWhenTheCopyHasEndedAndNotBefore) {
  TestEngine engine(Config({Full()}));
  TestRequest& request = engine.Add(8);
  engine.Match(request);
  engine.Run(request, 8);
  EXPECT_THAT(engine.scheduler().TakeEvents(), IsEmpty());
  engine.Complete();
  EXPECT_THAT(engine.scheduler().TakeEvents(), SizeIs(2));
}

TEST(Events, OfARemovalOverTwoGroupsAreTwo) {
  TestEngine engine(Config({Full(), Window(64)}, 1, 4));
  engine.Stored(engine.Add(8));
  engine.scheduler().TakeEvents();
  engine.Stored(engine.Add(8));
  const auto events = engine.scheduler().TakeEvents();
  ASSERT_THAT(events, SizeIs(6));
  EXPECT_EQ(std::get<BlockRemoved>(events[0]).group_idx.value() +
                std::get<BlockRemoved>(events[1]).group_idx.value(),
            1);
  EXPECT_THAT(std::get<BlockRemoved>(events[0]).block_hashes, SizeIs(2));
}

// Between two calls of TakeEvents, a chunk is evicted and a new store of this chunk begins. Returns
// the request that stored the chunk first. REQUIRES: there is room for one chunk.
TestRequest& BeginSecondStore(TestEngine& engine) {
  TestRequest& request = engine.Stored(engine.Add(8));
  engine.scheduler().TakeEvents();
  engine.Stored(engine.Add(8));
  TestRequest& again = engine.AddCopy(request);
  engine.Match(again);
  engine.Run(again, 8);
  engine.scheduler().TakeEvents();
  return request;
}

// In the compatible mode, the removal drops the description of the chunk.
TEST(Events, OfAChunkThatIsStoredAgainAreWholeButNotInVllm) {
  for (const bool compatible : {false, true}) {
    OffloadSchedulerConfig config = Config({Full()}, 2, 1);
    config.compatible = compatible;
    TestEngine engine(config);
    TestRequest& request = BeginSecondStore(engine);
    TestRequest& asks = engine.AddCopy(request, false);
    engine.Sample(asks);
    engine.Match(asks);  // pending: vLLM's scheduler describes only hits
    engine.Complete();
    auto events = engine.scheduler().TakeEvents();
    ASSERT_THAT(events, SizeIs(1));
    const auto& stored = std::get<BlockStored>(events[0]);
    EXPECT_EQ(stored.block_size, compatible ? 0 : 4);
    // The hit describes the chunk, so the removal names both blocks.
    TestRequest& hits = engine.AddCopy(request);
    engine.Sample(hits);
    EXPECT_EQ(engine.Match(hits), 8);
    engine.Stored(engine.Add(8));
    events = engine.scheduler().TakeEvents();
    EXPECT_THAT(std::get<BlockRemoved>(events[0]).block_hashes, SizeIs(2));
  }
}

// The copy of the chunk ends after the batch.
TEST(Events, OfAChunkThatIsEvictedAndStoredAgainInOneBatchAreWhole) {
  for (const EngineRules rules :
       {EngineRules::kMain2026August, EngineRules::kV032, EngineRules::kV033}) {
    OffloadSchedulerConfig config = Config({Full()}, 2, 1);
    config.rules = rules;
    TestEngine engine(config);
    BeginSecondStore(engine);
    engine.Complete();
    const auto events = engine.scheduler().TakeEvents();
    ASSERT_THAT(events, SizeIs(1));
    EXPECT_EQ(std::get<BlockStored>(events[0]).block_size, 4);
  }
}

TEST(Events, OfAResetNameTheClearedTier) {
  TestEngine engine(Config({Full()}));
  engine.Stored(engine.Add(8));
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  const auto events = engine.scheduler().TakeEvents();
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(std::get<BlockStored>(events[1]).block_size, 4) << "announced before the reset";
  EXPECT_EQ(std::get<AllBlocksCleared>(events[2]).medium, "CPU");
}

TEST(Events, OfAResetAreMissingInVllm) {
  TestEngine engine(AsVllm(Config({Full()})));
  engine.Stored(engine.Add(8));
  engine.scheduler().TakeEvents();
  ASSERT_TRUE(engine.scheduler().Reset().ok());
  EXPECT_THAT(engine.scheduler().TakeEvents(), IsEmpty());
}

ChunkRecord Record(std::vector<int64_t> hashes) {
  ChunkRecord record;
  for (const int64_t hash : hashes) record.hashes.push_back(Key(hash).digest);
  record.tokens = {1, 2, 3, 4};
  record.block_size = 4;
  return record;
}

class Writer : public ::testing::Test {
 protected:
  std::vector<Event> Write(OffloadEvent::Kind kind, const Numbers& keys,
                           const std::string& medium = kMediumCpu,
                           const std::optional<std::string>& locality = std::nullopt) {
    return Write(kind, keys, EventTier{.medium = medium, .locality = locality});
  }
  std::vector<Event> Write(OffloadEvent::Kind kind, const Numbers& keys, const EventTier& tier) {
    std::vector<Event> events;
    writer_.Translate({kind, Keys(keys)}, tier, events);
    return events;
  }
  EventWriter writer_{{GroupSpec()}, EventHashForm::kBytes, kMediumCpu};
};

TEST_F(Writer, ALowerTierUsesTheDescriptionAndLeavesItAlone) {
  writer_.Describe(Key(2), Record({1, 2}));
  const auto removed = Write(OffloadEvent::Kind::kRemoved, {2}, kMediumStorage);
  EXPECT_THAT(std::get<BlockRemoved>(removed.at(0)).block_hashes, SizeIs(2));
  const auto stored = Write(OffloadEvent::Kind::kStored, {2}, kMediumStorage);
  EXPECT_EQ(std::get<BlockStored>(stored.at(0)).block_size, 4);
  Write(OffloadEvent::Kind::kCleared, {}, kMediumStorage);
  EXPECT_TRUE(writer_.Knows(Key(2)));
  Write(OffloadEvent::Kind::kRemoved, {2});
  EXPECT_FALSE(writer_.Knows(Key(2)));
}

TEST_F(Writer, LocalityIsForwarded) {
  const auto stored = Write(OffloadEvent::Kind::kStored, {1}, kMediumStorage, "REMOTE");
  const auto removed = Write(OffloadEvent::Kind::kRemoved, {1}, kMediumStorage, "LOCAL");
  EXPECT_EQ(std::get<BlockStored>(stored.at(0)).locality, "REMOTE");
  EXPECT_EQ(std::get<BlockRemoved>(removed.at(0)).locality, "LOCAL");
}

TEST_F(Writer, TheOrderOfKeysChangesNothingButTheOrderOfEvents) {
  writer_.Describe(Key(2), Record({1, 2}));
  writer_.Describe(Key(4), Record({3, 4}));
  const auto forward = Write(OffloadEvent::Kind::kStored, {2, 4});
  const auto backward = Write(OffloadEvent::Kind::kStored, {4, 2});
  EXPECT_EQ(forward.at(0), backward.at(1));
  EXPECT_EQ(forward.at(1), backward.at(0));
}

class LastTierWriter : public Writer {
 protected:
  LastTierWriter() {
    writer_.Describe(Key(2), Record({1, 2}));
    Write(OffloadEvent::Kind::kStored, {2});
  }
  const EventTier disk_{.medium = kMediumStorage, .ownership = "kvcr"};
  EventWriter writer_{
      {GroupSpec()}, EventHashForm::kBytes, kMediumCpu, OffloadEventForm::kByGroup, true};

  std::vector<Event> Write(OffloadEvent::Kind kind, const Numbers& keys,
                           const EventTier& tier = {.medium = kMediumCpu}) {
    std::vector<Event> events;
    writer_.Translate({kind, Keys(keys)}, tier, events);
    return events;
  }
};

TEST_F(LastTierWriter, ADescriptionStaysUntilTheLastTierHasRemovedTheKey) {
  const auto stored = Write(OffloadEvent::Kind::kStored, {2}, disk_);
  EXPECT_EQ(std::get<BlockStored>(stored.at(0)).ownership, "kvcr");
  Write(OffloadEvent::Kind::kRemoved, {2});
  writer_.EndBatch();
  EXPECT_TRUE(writer_.Knows(Key(2)));
  const auto removed = Write(OffloadEvent::Kind::kRemoved, {2}, disk_);
  EXPECT_THAT(std::get<BlockRemoved>(removed.at(0)).block_hashes, SizeIs(2));
  EXPECT_EQ(std::get<BlockRemoved>(removed.at(0)).ownership, "kvcr");
  writer_.EndBatch();
  EXPECT_FALSE(writer_.Knows(Key(2)));
}

TEST_F(LastTierWriter, OwnersOfOneMediumAreSeparateResidencies) {
  Write(OffloadEvent::Kind::kStored, {2}, disk_);
  Write(OffloadEvent::Kind::kStored, {2}, {.medium = kMediumStorage});
  Write(OffloadEvent::Kind::kRemoved, {2});
  Write(OffloadEvent::Kind::kRemoved, {2}, disk_);
  writer_.EndBatch();
  EXPECT_TRUE(writer_.Knows(Key(2)));
}

TEST_F(LastTierWriter, AStoreOfALowerTierInTheBatchOfTheRemovalIsWhole) {
  Write(OffloadEvent::Kind::kRemoved, {2});
  const auto stored = Write(OffloadEvent::Kind::kStored, {2}, disk_);
  EXPECT_EQ(std::get<BlockStored>(stored.at(0)).block_size, 4);
  writer_.EndBatch();
  EXPECT_TRUE(writer_.Knows(Key(2)));
}

TEST_F(LastTierWriter, AFailedStoreLeavesTheDescriptionToALowerTier) {
  writer_.Forget(Key(2));
  EXPECT_TRUE(writer_.Knows(Key(2)));
  Write(OffloadEvent::Kind::kCleared, {});
  writer_.EndBatch();
  EXPECT_FALSE(writer_.Knows(Key(2)));
}

}  // namespace
}  // namespace kvcast::offload
