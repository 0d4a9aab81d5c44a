// MooncakeEvents decodes Mooncake's event maps, and the index applies the decoded events.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/mooncake_events.h"

#include <malloc.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "router/service/ingest/worker_ingest.h"
#include "router/service/route/query_engine.h"
#include "src/base/sanitizers.h"
#include "src/wire/writer.h"
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

using router::MooncakeConfig;
using router::MooncakeCounters;
using router::MooncakeEvents;
using wire::Writer;

using Put = std::function<void(Writer&)>;
using Map = std::vector<std::pair<std::string, Put>>;

Put Text(std::string text) {
  return [text](Writer& out) { out.Text(text); };
}
Put Number(uint64_t number) {
  return [number](Writer& out) { out.Unsigned(number); };
}
Put Nil() {
  return [](Writer& out) { out.Nil(); };
}
Put Numbers(std::vector<uint64_t> numbers) {
  return [numbers](Writer& out) {
    out.ArrayHead(numbers.size());
    for (const uint64_t number : numbers) out.Unsigned(number);
  };
}

// [timestamp_ms, [map, ...], rank]
std::vector<uint8_t> BatchOf(const std::vector<Map>& events) {
  std::vector<uint8_t> payload;
  Writer out(payload);
  out.ArrayHead(3);
  out.Unsigned(1'790'000'000'250);
  out.ArrayHead(events.size());
  for (const Map& event : events) {
    out.MapHead(event.size());
    for (const auto& [key, put] : event) {
      out.Text(key);
      put(out);
    }
  }
  out.Unsigned(0);
  out.Close();
  return payload;
}

// The envelope that every event has.
Map Envelope(const std::string& type, Put medium) {
  return {{"event_id", Number(12)},
          {"timestamp", Number(1'790'000'000'250)},
          {"event_type", Text(type)},
          {"model_name", Text("model")},
          {"block_size", Number(4)},
          {"additional_salt", Nil()},
          {"lora_name", Nil()},
          {"tenant_id", Text("default")},
          {"backend_id", Text("store-0")},
          {"medium", std::move(medium)},
          {"dp_rank", Nil()},
          {"group_id", Nil()}};
}
// Sets or adds a field.
Map With(Map map, const std::string& key, Put put) {
  for (auto& [name, value] : map) {
    if (name == key) {
      value = std::move(put);
      return map;
    }
  }
  map.emplace_back(key, std::move(put));
  return map;
}
Map Stored(std::vector<uint64_t> hashes, std::vector<uint64_t> tokens, Put parent,
           const std::string& medium = "cpu") {
  Map map = With(Envelope("stored", Text(medium)), "seq_hashes", Numbers(std::move(hashes)));
  map = With(std::move(map), "base_block_idx", Nil());
  map = With(std::move(map), "parent_hash", std::move(parent));
  return With(std::move(map), "token_ids", Numbers(std::move(tokens)));
}
Map Removed(std::vector<uint64_t> hashes, const std::string& medium = "cpu") {
  return With(Envelope("removed", Text(medium)), "seq_hashes", Numbers(std::move(hashes)));
}

class MooncakeStore {
 public:
  explicit MooncakeStore(MooncakeConfig config = {})
      : events_(std::move(config)), worker_({Full(4)}, {.repeats_are_refreshes = true}) {}
  void Take(const std::vector<Map>& events) {
    const auto batch = events_.Decode(BatchOf(events));
    ASSERT_TRUE(batch.ok()) << batch.status().ToString();
    worker_.index().Apply(kWorker, *batch);
  }
  // Returns the number of reusable tokens of a prompt with loads from the CPU tier, and with loads
  // from the CPU and storage tiers.
  std::pair<int64_t, int64_t> Reusable(std::vector<TokenId> tokens,
                                       const HashInputs& inputs = {}) const {
    const WorkerMatch match = worker_.Match(std::move(tokens), inputs);
    return {match.with_cpu_tokens, match.with_storage_tokens};
  }
  MooncakeCounters counters() const { return events_.counters(); }
  uint64_t residencies() const { return worker_.counters().residencies; }
  MooncakeEvents& events() { return events_; }

 private:
  MooncakeEvents events_;
  ContentWorker worker_;
};

using Tiers = std::pair<int64_t, int64_t>;

TEST(MooncakeEvents, StoredBlocksAreThoseOfTheTier) {
  MooncakeStore store;
  store.Take({Stored({1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, Nil()),
              Stored({3}, {9, 10, 11, 12}, Number(2), "disk")});
  EXPECT_EQ(store.Reusable(Tokens(1, 12)), Tiers(8, 12));
  store.Take({Removed({2})});
  EXPECT_EQ(store.Reusable(Tokens(1, 12)).first, 4);
  EXPECT_EQ(store.counters().events, 3u);
}

TEST(MooncakeEvents, TheTimeStampIsInMilliseconds) {
  MooncakeEvents events{MooncakeConfig()};
  const auto batch = events.Decode(BatchOf({}));
  ASSERT_TRUE(batch.ok());
  EXPECT_DOUBLE_EQ(batch->ts, 1'790'000'000.25);
}

// With legacy fields, an event contains some values twice, under two names.
TEST(MooncakeEvents, LegacyAliasesAddNothing) {
  MooncakeStore store;
  Map event = Stored({1}, {1, 2, 3, 4}, Nil());
  event = With(event, "type", Text("BlockStored"));
  event = With(event, "block_hashes", Numbers({1}));
  event = With(event, "parent_block_hash", Nil());
  store.Take({event});
  EXPECT_EQ(store.Reusable(Tokens(1, 4)), Tiers(4, 4));
  EXPECT_EQ(store.residencies(), 1u);
}

TEST(MooncakeEvents, ASpanWithABaseBlockIsNotAtTheRoot) {
  MooncakeStore store;
  store.Take({With(Stored({1}, {1, 2, 3, 4}, Nil()), "base_block_idx", Number(5))});
  EXPECT_EQ(store.Reusable(Tokens(1, 4)), Tiers(0, 0));
  store.Take({With(Stored({2}, {1, 2, 3, 4}, Nil()), "base_block_idx", Number(0))});
  EXPECT_EQ(store.Reusable(Tokens(1, 4)), Tiers(4, 4));
}

TEST(MooncakeEvents, SaltAndLoraAreOtherCaches) {
  MooncakeStore store;
  Map event = With(Stored({1}, {1, 2, 3, 4}, Nil()), "additional_salt", Text("tenant"));
  store.Take({With(event, "lora_name", Text("adapter"))});
  HashInputs inputs;
  EXPECT_EQ(store.Reusable(Tokens(1, 4), inputs), Tiers(0, 0));
  inputs.cache_salt = "tenant";
  EXPECT_EQ(store.Reusable(Tokens(1, 4), inputs), Tiers(0, 0));
  inputs.lora_name = "adapter";
  EXPECT_EQ(store.Reusable(Tokens(1, 4), inputs), Tiers(4, 4));
}

TEST(MooncakeEvents, ARepeatedStoreIsOneBlock) {
  MooncakeStore store;
  const Map event = Stored({1}, {1, 2, 3, 4}, Nil());
  store.Take({event, event, Removed({1})});
  EXPECT_EQ(store.residencies(), 0u);
}

// A remove may name only the object, without hashes.
TEST(MooncakeEvents, AnObjectIsRememberedForEachTier) {
  MooncakeStore store;
  const auto key = Text("model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@0123456789abcdef");
  const Map on_cpu = With(Stored({1}, {1, 2, 3, 4}, Nil()), "object_key", key);
  const Map on_disk = With(Stored({1}, {1, 2, 3, 4}, Nil(), "disk"), "object_key", key);
  const auto removed = [&](const std::string& medium) {
    return With(Removed({}, medium), "object_key", key);
  };
  store.Take({on_cpu, on_disk, removed("cpu")});
  EXPECT_EQ(store.Reusable(Tokens(1, 4)), Tiers(0, 4));
  store.Take({removed("disk")});
  EXPECT_EQ(store.residencies(), 0u);
  EXPECT_EQ(store.counters().opaque, 0u);
  store.Take({removed("cpu")});
  EXPECT_EQ(store.counters().opaque, 1u) << "the object is forgotten";
  EXPECT_EQ(store.counters().events, 4u) << "an event that is left out is not counted as decoded";
}

TEST(MooncakeEvents, AnUnchangedObjectIsStoredOnce) {
  MooncakeEvents events{MooncakeConfig()};
  const auto key = Text("object");
  const Map first = With(Stored({1}, {1, 2, 3, 4}, Nil()), "object_key", key);
  EXPECT_EQ(events.Decode(BatchOf({first, first}))->events.size(), 1u);
  const auto changed = events.Decode(BatchOf({With(first, "seq_hashes", Numbers({2}))}));
  ASSERT_EQ(changed->events.size(), 2u);
  const auto& removed = std::get<BlockRemoved>(changed->events[0]);
  EXPECT_EQ(removed.block_hashes, Hashes(1, 1));
  EXPECT_EQ(removed.medium, "CPU");
}

TEST(MooncakeEvents, AnObjectLeavesItsGroupWhenItMovesToAnotherGroup) {
  MooncakeEvents events{MooncakeConfig()};
  const auto key = Text("object");
  const Map first = With(Stored({1}, {1, 2, 3, 4}, Nil()), "object_key", key);
  ASSERT_EQ(events.Decode(BatchOf({first}))->events.size(), 1u);
  const auto moved = events.Decode(BatchOf({With(first, "group_id", Text("1"))}));
  ASSERT_EQ(moved->events.size(), 2u);
  EXPECT_EQ(std::get<BlockRemoved>(moved->events[0]).group_idx, 0);
  EXPECT_EQ(std::get<BlockStored>(moved->events[1]).group_idx, 1);
  // The remove names the object and no group. The object is in group 1.
  const auto removed = events.Decode(BatchOf({With(Removed({}), "object_key", key)}));
  ASSERT_EQ(removed->events.size(), 1u);
  EXPECT_EQ(std::get<BlockRemoved>(removed->events[0]).group_idx, 1);
}

// Mooncake's publisher sends this event: seq_hashes is empty, and token_ids is nil.
TEST(MooncakeEvents, AnObjectWithoutHashesIsLeftOut) {
  MooncakeStore store;
  Map event = With(Envelope("stored", Text("cpu")), "seq_hashes", Numbers({}));
  event = With(With(event, "parent_hash", Nil()), "token_ids", Nil());
  store.Take({With(event, "object_key", Text("model@0123456789abcdef"))});
  EXPECT_EQ(store.counters().opaque, 1u);
  EXPECT_EQ(store.residencies(), 0u);
}

TEST(MooncakeEvents, GroupsAreTextOfANumber) {
  MooncakeStore store;
  const Map event = Stored({1}, {1, 2, 3, 4}, Nil());
  const auto batch = store.events().Decode(BatchOf({With(event, "group_id", Text("1"))}));
  EXPECT_EQ(std::get<BlockStored>(batch.value().events.at(0)).group_idx, 1);
  EXPECT_EQ(store.counters().bad_events, 0u);
  for (const char* group : {"one", "1 ", "-1", "64", "99999999999999999999"}) {
    store.Take({With(event, "group_id", Text(group))});
  }
  EXPECT_EQ(store.counters().bad_events, 5u);
}

TEST(MooncakeEvents, AClearEmptiesEveryTier) {
  MooncakeStore store;
  store.Take({Stored({1}, {1, 2, 3, 4}, Nil()), Stored({1}, {1, 2, 3, 4}, Nil(), "disk"),
              Envelope("cleared", Nil())});
  EXPECT_EQ(store.residencies(), 0u);
  EXPECT_EQ(store.counters().events, 3u);
}

TEST(MooncakeEvents, EventsOfOtherTenantsAndBackendsAreLeftOut) {
  MooncakeStore store({.tenant_id = "mine", .backend_id = "store-0"});
  const Map event = With(Stored({1}, {1, 2, 3, 4}, Nil()), "tenant_id", Text("mine"));
  store.Take({event, With(event, "backend_id", Text("store-1")),
              With(Envelope("cleared", Nil()), "tenant_id", Text("theirs"))});
  EXPECT_EQ(store.counters().others, 2u);
  EXPECT_EQ(store.residencies(), 1u);
}

TEST(MooncakeEvents, ABadEventDropsAllBlocksBecauseItMayBeARemove) {
  const Map store = Stored({1}, {1, 2, 3, 4}, Nil());
  const Map bad[] = {
      {{"tenant_id", Text("default")}},
      With(store, "event_type", Number(1)),
      With(store, "seq_hashes", Text("1")),
      With(store, "parent_hash", Numbers({1})),
      With(store, "block_size", Text("4")),
      With(store, "token_ids", Number(4)),
      With(store, "medium", Text(std::string(5000, 'x'))),
  };
  for (const Map& event : bad) {
    MooncakeStore worker;
    worker.Take({store, event});
    EXPECT_EQ(worker.counters().bad_events, 1u);
    EXPECT_EQ(worker.residencies(), 0u);
  }
  MooncakeStore worker;
  worker.Take({store, With(store, "event_type", Text("moved"))});
  EXPECT_EQ(worker.counters().unknown_types, 1u);
  EXPECT_EQ(worker.residencies(), 1u);
}

TEST(MooncakeEvents, RefusesPayloadsThatAreNoBatch) {
  MooncakeStore store({.bytes_max = 400, .hashes_max = 2, .tokens_max = 4});
  const auto good = BatchOf({Stored({1}, {1, 2, 3, 4}, Nil())});
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(store.events().Decode(std::span(good).first(size)).ok()) << size;
  }
  EXPECT_FALSE(store.events().Decode(std::vector<uint8_t>{0x92, 0xc0, 0x90}).ok());
  EXPECT_FALSE(store.events().Decode(std::vector<uint8_t>{0x92, 0x01, 0x91, 0x05}).ok());
  EXPECT_FALSE(store.events().Decode(BatchOf({Map(60, {"medium", Text("cpu")})})).ok());
  EXPECT_EQ(store.counters().events, 0u);
  store.Take({Stored({1, 2, 3}, {}, Nil())});
  store.Take({Stored({1}, {1, 2, 3, 4, 5}, Nil())});
  EXPECT_EQ(store.counters().bad_events, 2u);
}

TEST(MooncakeEvents, ObjectsAreBounded) {
  MooncakeStore store({.objects_max = 1});
  const Map event = Stored({1}, {1, 2, 3, 4}, Nil());
  store.Take({With(event, "object_key", Text("a")), With(event, "object_key", Text("b"))});
  EXPECT_EQ(store.counters().refused, 1u);
}

TEST(MooncakeEvents, TheHashesOfAllObjectsAreBounded) {
  MooncakeStore store({.object_hashes_max = 3});
  const Map pair = Stored({1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, Nil());
  const Map one = Stored({3}, {9, 9, 9, 9}, Nil());
  store.Take({With(pair, "object_key", Text("a")), With(one, "object_key", Text("b"))});
  EXPECT_EQ(store.counters().refused, 0u);
  store.Take({With(one, "object_key", Text("c"))});
  EXPECT_EQ(store.counters().refused, 1u);
  store.Take({With(one, "object_key", Text("a")), With(one, "object_key", Text("c"))});
  EXPECT_EQ(store.counters().refused, 1u) << "the new blocks of a are fewer";
  store.Take({With(Removed({}), "object_key", Text("a")), With(pair, "object_key", Text("d"))});
  EXPECT_EQ(store.counters().refused, 2u);
  store.Take({Envelope("cleared", Nil()), With(pair, "object_key", Text("d"))});
  EXPECT_EQ(store.counters().refused, 2u) << "a clear makes room";
}

// There is no room for the new content of the object.
TEST(MooncakeEvents, ARefusedObjectLosesItsOldBlocks) {
  MooncakeStore store({.object_hashes_max = 1});
  store.Take({With(Stored({1}, {1, 2, 3, 4}, Nil()), "object_key", Text("a"))});
  EXPECT_EQ(store.Reusable(Tokens(1, 4)), Tiers(4, 4));
  store.Take({With(Stored({2, 3}, {5, 6, 7, 8, 9, 9, 9, 9}, Nil()), "object_key", Text("a"))});
  EXPECT_EQ(store.counters().refused, 1u);
  EXPECT_EQ(store.residencies(), 0u);
  store.Take({With(Stored({4}, {1, 2, 3, 4}, Nil()), "object_key", Text("b"))});
  EXPECT_EQ(store.counters().refused, 1u) << "the room of the old blocks is free";
  EXPECT_EQ(store.Reusable(Tokens(1, 4)), Tiers(4, 4));
}

TEST(MooncakeEvents, ABatchIsBounded) {
  const Map event = Stored({1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, Nil());
  const auto batch = BatchOf({event, event});
  EXPECT_TRUE(MooncakeEvents({.batch_events_max = 2, .batch_hashes_max = 4, .batch_tokens_max = 16})
                  .Decode(batch)
                  .ok());
  EXPECT_FALSE(MooncakeEvents({.batch_events_max = 1}).Decode(batch).ok());
  EXPECT_FALSE(MooncakeEvents({.batch_hashes_max = 3}).Decode(batch).ok());
  EXPECT_FALSE(MooncakeEvents({.batch_tokens_max = 15}).Decode(batch).ok());
}

// A short event that removes an object by its key becomes an event with all hashes of the object.
TEST(MooncakeEvents, TheHashesOfRemovedObjectsCountInTheBatch) {
  const Map on_cpu = With(Stored({1, 2}, {}, Nil()), "object_key", Text("a"));
  const Map on_disk = With(Stored({1, 2}, {}, Nil(), "disk"), "object_key", Text("a"));
  const Map from_cpu = With(Removed({}), "object_key", Text("a"));
  const Map from_disk = With(Removed({}, "disk"), "object_key", Text("a"));
  for (const size_t hashes_max : {4, 3}) {
    MooncakeEvents events({.batch_hashes_max = hashes_max});
    ASSERT_TRUE(events.Decode(BatchOf({on_cpu})).ok());
    ASSERT_TRUE(events.Decode(BatchOf({on_disk})).ok());
    EXPECT_EQ(events.Decode(BatchOf({from_cpu, from_disk})).ok(), hashes_max == 4);
    MooncakeEvents replaced({.batch_hashes_max = hashes_max});
    ASSERT_TRUE(replaced.Decode(BatchOf({on_cpu})).ok());
    ASSERT_TRUE(replaced.Decode(BatchOf({on_disk})).ok());
    const Map other = With(Stored({3}, {}, Nil()), "object_key", Text("a"));
    EXPECT_FALSE(replaced.Decode(BatchOf({other})).ok()) << "4 hashes are removed, and 1 is stored";
  }
}

TEST(MooncakeEvents, LongKeysTakeLittleMemory) {
  constexpr size_t kObjects = 1000;
  constexpr size_t kKeyBytes = 4000;
  std::vector<Map> stores;
  for (size_t i = 0; i < kObjects; ++i) {
    std::string key = std::to_string(i);
    key.resize(kKeyBytes, 'k');
    stores.push_back(With(Stored({1}, {1, 2, 3, 4}, Nil()), "object_key", Text(key)));
  }
  const std::vector<uint8_t> batch = BatchOf(stores);
  MooncakeEvents events{MooncakeConfig()};
  const auto held = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const size_t before = held();
  ASSERT_TRUE(events.Decode(batch).ok());
  EXPECT_LT(held(), before + kObjects * kKeyBytes / 4);
}

// A short event without effect must not be decoded to a long event.
TEST(MooncakeEvents, EventsWithoutEffectBecomeNoEvents) {
  MooncakeEvents events({});
  std::vector<uint64_t> many(1000);
  const Map object = With(Stored(many, {}, Nil()), "object_key", Text("a"));
  const Map from_storage = With(Removed({}, "disk"), "object_key", Text("a"));
  const Map from_nowhere = With(With(Removed({}), "medium", Nil()), "object_key", Text("a"));
  EXPECT_EQ(
      events.Decode(BatchOf({object, from_storage, from_storage, from_nowhere}))->events.size(),
      1u);
  EXPECT_EQ(events.Decode(BatchOf(std::vector<Map>(1000)))->events.size(), 3u)
      << "one clear per tier";
  EXPECT_EQ(events.counters().bad_events, 1000u);
  EXPECT_EQ(events.Decode(BatchOf({{}, object, {}}))->events.size(), 7u);
}

// The cost of a clear depends only on the objects that the clear removes, and not on earlier
// objects. Otherwise this test would take minutes.
TEST(MooncakeEvents, TheCostOfAClearDependsOnTheRemovedObjects) {
  constexpr size_t kStores = kSanitized ? 2'000 : 20'000;
  MooncakeEvents events({.batch_events_max = size_t{1} << 20});
  const Map object = With(Stored({1}, {1, 2, 3, 4}, Nil()), "object_key", Text("a"));
  for (size_t batch = 0; batch < 8; ++batch) {
    std::vector<Map> many;
    for (size_t i = 0; i < kStores; ++i) {
      many.push_back(With(object, "object_key", Text(std::to_string(kStores * batch + i))));
    }
    ASSERT_TRUE(events.Decode(BatchOf(many)).ok());
  }
  std::vector<Map> pairs;
  for (size_t i = 0; i < kStores; ++i) {
    pairs.push_back(object);
    pairs.push_back(Envelope("cleared", Nil()));
  }
  const auto batch = BatchOf(pairs);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(events.Decode(batch)->events.size(), 4 * kStores);
}

std::unique_ptr<router::WorkerIngest> SourceOf(PrefixIndex& index,
                                               router::MooncakeConfig mooncake) {
  router::WorkerRegistration config;
  config.worker.name = "store";
  config.worker.groups = {Full(4)};
  config.format = router::EventFormat::kMooncake;
  config.mooncake = std::move(mooncake);
  return router::WorkerIngest::Create(WorkerId(0), config, index).value();
}

TEST(MooncakeEvents, AnAnswerOfTheServiceIncludesTheBlocksOfAMooncakeStore) {
  PrefixIndex index;
  router::SourceList sources;
  sources.push_back(SourceOf(index, {}));
  sources[0]->OnBatch(BatchOf({Stored({1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, Nil())}));
  const router::QueryEngine engine(
      index, [](WorkerId) { return SourceStatus{.state = SourceState::kSynced}; });
  router::Query query{.tokens = Tokens(1, 20), .prompt_tokens = 20};
  EXPECT_EQ(engine.Answer(query, sources).value().at(0).match.with_cpu_tokens, 8);
  EXPECT_EQ(engine.Answer(query, sources).value().at(0).named_by, router::NamedBy::kContent);
  EXPECT_TRUE(engine.Answer(query, sources).value().at(0).exact);
  sources[0]->OnBatch(BatchOf({With(Removed({2}), "seq_hashes", Text("broken"))}));
  EXPECT_EQ(engine.Answer(query, sources).value().at(0).match.with_cpu_tokens, 0);
  EXPECT_EQ(sources[0]->State(SourceState::kSynced), SourceState::kSuspect);
}

TEST(MooncakeEvents, ARefusedStoreMakesTheSourceSuspect) {
  PrefixIndex index;
  const auto source = SourceOf(index, {.objects_max = 1});
  const Map event = Stored({1}, {1, 2, 3, 4}, Nil());
  source->OnBatch(BatchOf({With(event, "object_key", Text("a"))}));
  EXPECT_EQ(source->State(SourceState::kSynced), SourceState::kSynced);
  source->OnBatch(BatchOf({With(event, "object_key", Text("b"))}));
  EXPECT_EQ(source->State(SourceState::kSynced), SourceState::kSuspect);
  EXPECT_TRUE(source->lacks_host_blocks());
}

}  // namespace
}  // namespace kvcast::testing
