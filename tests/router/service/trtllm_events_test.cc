// TrtllmEvents decodes TensorRT-LLM's JSON events, and the index applies the decoded events.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/trtllm_events.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "src/base/sanitizers.h"
#include "tests/support/colliding_texts.h"
#include "tests/support/content_events.h"
#include "tests/support/flood.h"

namespace kvcast::testing {
namespace {

using router::TrtllmConfig;
using router::TrtllmCounters;
using router::TrtllmEvents;
using Json = nlohmann::json;

Json BlockOf(Json hash, const std::vector<TokenId>& tokens, int cache_level = 0) {
  Json list = Json::array();
  for (const TokenId token : tokens) {
    list.push_back({{"type", "unique_token"}, {"token_id", token}, {"token_extra_id", 0}});
  }
  return {{"type", "stored_block"}, {"block_hash", std::move(hash)},
          {"tokens", list},         {"cache_level", cache_level},
          {"priority", 35},         {"mm_keys", Json::array()}};
}
Json EventOf(int64_t id, Json data, int64_t window = 4096) {
  return {{"event_id", id}, {"window_size", window}, {"data", std::move(data)}};
}
Json StoredOf(Json parent, std::vector<Json> blocks) {
  return {{"type", "stored"}, {"parent_hash", std::move(parent)}, {"blocks", std::move(blocks)}};
}
Json RemovedOf(std::vector<Json> hashes) {
  return {{"type", "removed"}, {"block_hashes", std::move(hashes)}};
}

class TrtllmWorker {
 public:
  explicit TrtllmWorker(TrtllmConfig config = {.window_sizes = {4096}, .tokens_per_block = 4})
      : events_(TrtllmEvents::Create(config).value()) {}

  void Take(const Json& json) {
    const auto batch = events_.Decode(json.dump());
    ASSERT_TRUE(batch.ok()) << batch.status().ToString();
    worker_.index().Apply(kWorker, *batch);
  }
  int64_t Reusable(std::vector<TokenId> tokens) const {
    return worker_.Reusable(std::move(tokens));
  }
  TrtllmCounters counters() const { return events_.counters(); }
  uint64_t residencies() const { return worker_.counters().residencies; }
  IndexCounters index_counters() const { return worker_.counters(); }
  TrtllmEvents& events() { return events_; }

 private:
  TrtllmEvents events_;
  ContentWorker worker_;
};

TEST(TrtllmEvents, StoredBlocksArePromisedUntilRemoved) {
  TrtllmWorker worker;
  worker.Take(Json::array(
      {EventOf(0, {{"type", "created"}, {"num_blocks_per_cache_level", {8, 0}}}),
       EventOf(1, StoredOf(nullptr, {BlockOf(901, Tokens(1, 4)), BlockOf(7, Tokens(5, 4))})),
       EventOf(2, StoredOf(7, {BlockOf(18446744073709551615u, Tokens(9, 4))}))}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 12);
  worker.Take(EventOf(3, RemovedOf({18446744073709551615u})));
  EXPECT_EQ(worker.Reusable(Tokens(1, 12)), 8);
  EXPECT_EQ(worker.counters().events, 4u);
}

TEST(TrtllmEvents, HashesMayBeText) {
  TrtllmWorker worker;
  worker.Take(EventOf(0, StoredOf(nullptr, {BlockOf("abcd", Tokens(1, 4))})));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
  worker.Take(EventOf(1, RemovedOf({"abcd"})));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

TEST(TrtllmEvents, AWindowSizeIsAGroup) {
  TrtllmWorker worker({.window_sizes = {5, 4096}, .tokens_per_block = 4});
  const Json stored = StoredOf(nullptr, {BlockOf(1, Tokens(1, 4)), BlockOf(2, Tokens(5, 4))});
  worker.Take(Json::array({EventOf(0, stored, 4096), EventOf(1, stored, 5)}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8);
  worker.Take(EventOf(2, RemovedOf({1}), 5));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 8) << "a window of 5 needs one block";
  worker.Take(EventOf(3, RemovedOf({2}), 5));
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
}

TEST(TrtllmEvents, ATierChangeMovesTheBlock) {
  TrtllmWorker worker;
  worker.Take(EventOf(0, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))})));
  const auto moved = [](int from, int to) -> Json {
    return {{"type", "updated"},
            {"block_hash", 1},
            {"priority", nullptr},
            {"cache_level", {{"type", "event_diff"}, {"old_value", from}, {"new_value", to}}}};
  };
  worker.Take(EventOf(1, moved(0, 1)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  EXPECT_EQ(worker.residencies(), 1u) << "the block is in host memory";
  worker.Take(EventOf(2, moved(1, 0)));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
  worker.Take(EventOf(3, RemovedOf({1})));
  EXPECT_EQ(worker.residencies(), 0u);
}

TEST(TrtllmEvents, ABlockStoredTwiceIsOneCopy) {
  TrtllmWorker worker;
  const Json stored = StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))});
  worker.Take(Json::array({EventOf(0, stored), EventOf(1, stored), EventOf(2, RemovedOf({1}))}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

TEST(TrtllmEvents, ContentBesidesTokensIsNotPromised) {
  TrtllmWorker worker;
  Json item = BlockOf(1, Tokens(1, 4));
  item["mm_keys"] = {{{"type", "mm_key"}, {"hash", "ff"}, {"start_offset", 0}}};
  Json prompt_tuned = BlockOf(2, Tokens(21, 4));
  prompt_tuned["tokens"][2]["token_extra_id"] = 9;
  worker.Take(Json::array(
      {EventOf(0, StoredOf(nullptr, {item})), EventOf(1, StoredOf(nullptr, {prompt_tuned}))}));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
  EXPECT_EQ(worker.Reusable(Tokens(21, 4)), 0);
}

TEST(TrtllmEvents, BlocksWithOtherContentDoNotMakeNamesAmbiguous) {
  TrtllmWorker worker;
  Json events = Json::array();
  for (uint64_t hash : {1, 2}) {
    Json item = BlockOf(hash, Tokens(1, 4));
    item["mm_keys"] = {{{"type", "mm_key"}, {"hash", std::to_string(hash)}, {"start_offset", 0}}};
    events.push_back(EventOf(static_cast<int64_t>(hash) - 1, StoredOf(nullptr, {item})));
  }
  worker.Take(events);
  EXPECT_EQ(worker.index_counters().ambiguous, 0u);
  EXPECT_EQ(worker.index_counters().unnamed_gpu, 0u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 0);
}

TEST(TrtllmEvents, APartialBlockIsLeftOut) {
  TrtllmWorker worker;
  worker.Take(EventOf(0, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4)), BlockOf(2, Tokens(5, 2))})));
  EXPECT_EQ(worker.Reusable(Tokens(1, 6)), 4);
  EXPECT_EQ(worker.counters().partial_blocks, 1u);
}

TEST(TrtllmEvents, ALostEventClearsTheWorker) {
  TrtllmWorker worker;
  worker.Take(EventOf(0, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))})));
  worker.Take(EventOf(2, StoredOf(1, {BlockOf(2, Tokens(5, 4))})));
  EXPECT_EQ(worker.counters().gaps, 1u);
  EXPECT_EQ(worker.Reusable(Tokens(1, 8)), 0);
  EXPECT_EQ(worker.residencies(), 1u) << "only the block after the gap";
}

TEST(TrtllmEvents, IdsMayBeAnyNumber) {
  TrtllmWorker worker;
  worker.Take(
      EventOf(std::numeric_limits<int64_t>::min(), StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))})));
  worker.Take(
      EventOf(std::numeric_limits<int64_t>::max(), StoredOf(nullptr, {BlockOf(2, Tokens(5, 4))})));
  EXPECT_EQ(worker.counters().gaps, 1u);
  worker.Take(
      EventOf(std::numeric_limits<int64_t>::min(), StoredOf(nullptr, {BlockOf(3, Tokens(9, 4))})));
  EXPECT_EQ(worker.counters().restarts, 1u);
}

TEST(TrtllmEvents, ABadEventDropsAllBlocksBecauseItMayBeARemove) {
  TrtllmWorker worker;
  worker.Take(EventOf(0, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))})));
  worker.Take(EventOf(1, {{"type", "removed"}}));
  EXPECT_EQ(worker.residencies(), 0u);
}

TEST(TrtllmEvents, BadEventsAreCounted) {
  TrtllmWorker worker;
  const Json bad[] = {
      5,
      {{"event_id", 0}},
      EventOf(0, {{"kind", "stored"}}),
      EventOf(1, StoredOf(-1.5, {BlockOf(1, Tokens(1, 4))})),
      EventOf(2, StoredOf(nullptr, {Json{{"block_hash", 1}}})),
      EventOf(3, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4), 7)})),
      EventOf(4, RemovedOf({Json::array()})),
      EventOf(5, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))}), 99),
      EventOf(6, {{"type", "updated"}, {"block_hash", 1}, {"cache_level", 3}}),
  };
  for (const Json& event : bad) worker.Take(event);
  EXPECT_EQ(worker.counters().bad_events, std::size(bad));
  EXPECT_EQ(worker.residencies(), 0u);
  worker.Take(EventOf(7, {{"type", "sneezed"}}));
  EXPECT_EQ(worker.counters().unknown_types, 1u);
  worker.Take(EventOf(8, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))})));
  EXPECT_EQ(worker.Reusable(Tokens(1, 4)), 4);
}

TEST(TrtllmEvents, OtherRanksAreLeftOut) {
  TrtllmWorker worker;
  Json event = EventOf(0, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))}));
  event["attention_dp_rank"] = 1;
  worker.Take(event);
  EXPECT_EQ(worker.counters().other_ranks, 1u);
  EXPECT_EQ(worker.residencies(), 0u);
}

// The size of a document limits its number of JSON values. Without this limit, a document with
// 16 MiB of empty strings takes 480 MiB of memory.
TEST(TrtllmEvents, TheSizeLimitsTheNumberOfValues) {
  const auto listed = [](const std::string& element, size_t count) {
    std::string text = "[" + element;
    for (size_t i = 1; i < count; ++i) text += "," + element;
    return text + "]";
  };
  TrtllmWorker worker;
  for (const char* element : {"\"\"", "0", "[]", "{}", "{\"\":0}"}) {
    const Status status = worker.events().Decode(listed(element, 1 << 18)).status();
    EXPECT_EQ(status.code(), StatusCode::kLimit) << element;
    EXPECT_TRUE(worker.events().Decode(listed(element, 1000)).ok()) << element;
  }
  EXPECT_TRUE(worker.events().lacks_events());
  constexpr int64_t kBlocks = kSanitized ? 4000 : 40000;
  std::vector<Json> blocks;
  for (int64_t i = 0; i < kBlocks; ++i) blocks.push_back(BlockOf(i, Tokens(4 * i, 4)));
  TrtllmWorker large;
  large.Take(EventOf(0, StoredOf(nullptr, blocks)));
  EXPECT_EQ(large.residencies(), static_cast<size_t>(kBlocks));
}

TEST(TrtllmEvents, InputsAboveTheBoundsAreRefused) {
  TrtllmWorker worker(
      {.window_sizes = {9}, .tokens_per_block = 4, .json_bytes_max = 2000, .hashes_max = 1});
  EXPECT_FALSE(worker.events().Decode("{").ok());
  EXPECT_FALSE(worker.events().Decode(std::string(2001, ' ')).ok());
  EXPECT_TRUE(worker.events().Decode(std::string(900, '[') + std::string(900, ']')).ok());
  worker.Take(
      EventOf(0, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4)), BlockOf(2, Tokens(5, 4))}), 9));
  EXPECT_EQ(worker.counters().refused_hashes, 1u);
  EXPECT_EQ(worker.residencies(), 1u);
  EXPECT_TRUE(worker.events().lacks_events()) << "the engine holds a block that was refused";
}

// A chain of blocks, and the removal of all blocks, are few events.
TEST(TrtllmEvents, LargeBatchesHaveFewEvents) {
  constexpr int64_t kBlocks = 5000;
  auto events = TrtllmEvents::Create({.window_sizes = {4096}, .tokens_per_block = 4}).value();
  std::vector<Json> blocks;
  for (int64_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(BlockOf(i, Tokens(4 * i, 4), i < kBlocks / 2 ? 0 : 1));
  }
  const auto stored = events.Decode(EventOf(0, StoredOf(nullptr, blocks)).dump());
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->events.size(), 6u);
  ContentWorker together;
  together.index().Apply(kWorker, *stored);
  EXPECT_EQ(together.Reusable(Tokens(0, 4 * kBlocks)), 4 * kBlocks / 2);
  EXPECT_EQ(together.counters().residencies, static_cast<uint64_t>(kBlocks));
  const auto removed = events.Decode("[0]");
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(removed->events.size(), 6u);
  together.index().Apply(kWorker, *removed);
  EXPECT_EQ(together.counters().residencies, 0u);
}

// A block that moves between two tiers becomes two events each time.
TEST(TrtllmEvents, ATextBecomesABoundedNumberOfEvents) {
  auto events =
      TrtllmEvents::Create({.window_sizes = {4096}, .tokens_per_block = 4, .batch_events_max = 100})
          .value();
  const auto moved = [](int64_t id, int64_t level) {
    return EventOf(id, {{"type", "updated"},
                        {"block_hash", 1},
                        {"cache_level", {{"type", "event_diff"}, {"new_value", level}}}});
  };
  Json list = Json::array({EventOf(0, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))}))});
  for (int64_t id = 1; id < 50; ++id) list.push_back(moved(id, id % 2));
  const auto few = events.Decode(list.dump());
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->events.size(), 99u);
  EXPECT_FALSE(events.lacks_events());
  list = Json::array();
  for (int64_t id = 50; id < 1000; ++id) list.push_back(moved(id, id % 2));
  const auto many = events.Decode(list.dump());
  ASSERT_TRUE(many.ok());
  EXPECT_LE(many->events.size(), 101u);
  EXPECT_TRUE(events.lacks_events());
  EXPECT_TRUE(std::holds_alternative<BlockRemoved>(many->events.back()))
      << "the batch ends with the remove of all blocks";
}

TEST(TrtllmEvents, BlocksOfOneEventBecomeABoundedNumberOfEvents) {
  for (const bool removed : {false, true}) {
    auto events =
        TrtllmEvents::Create(
            {.window_sizes = {4096}, .tokens_per_block = 4, .batch_events_max = removed ? 4u : 3u})
            .value();
    std::vector<Json> blocks;
    Json hashes = Json::array();
    for (int i = 0; i < 12; ++i) {
      blocks.push_back(BlockOf(i, Tokens(4 * i, 4), i % 2));
      hashes.push_back(i);
      if (!removed) continue;
      ASSERT_TRUE(events.Decode(EventOf(i, StoredOf(nullptr, {blocks.back()})).dump()).ok());
    }
    ASSERT_EQ(events.lacks_events(), !removed);
    const Json event = removed ? EventOf(12, {{"type", "removed"}, {"block_hashes", hashes}})
                               : EventOf(0, StoredOf(nullptr, blocks));
    const auto batch = events.Decode(event.dump());
    ASSERT_TRUE(batch.ok());
    EXPECT_LE(batch->events.size(), 6u);
    EXPECT_EQ(events.counters().bad_events, 1u);
    EXPECT_TRUE(events.lacks_events());
  }
}

// Blocks that were removed earlier do not add to the time of a bad event.
TEST(TrtllmEvents, TheCostOfABadEventDependsOnlyOnTheHeldBlocks) {
  constexpr int64_t kBlocks = kSanitized ? 10'000 : 50'000;
  const std::string bad = Json(std::vector<int>(kBlocks)).dump();
  const auto decode_ns = [&bad](int64_t blocks) {
    auto events = TrtllmEvents::Create({.window_sizes = {4096}, .tokens_per_block = 4}).value();
    for (int64_t i = 0; i < blocks; i += 1000) {
      std::vector<Json> chain;
      for (int64_t k = i; k < i + 1000; ++k) chain.push_back(BlockOf(k, Tokens(4 * k, 4)));
      EXPECT_TRUE(events.Decode(EventOf(i / 1000, StoredOf(nullptr, chain)).dump()).ok());
    }
    EXPECT_TRUE(events.Decode("[0]").ok());
    return ThreadNsOf([&] { EXPECT_TRUE(events.Decode(bad).ok()); });
  };
  const int64_t plain_ns = decode_ns(0);
  EXPECT_LT(decode_ns(kBlocks), 4 * plain_ns) << plain_ns << " ns without earlier blocks";
}

TEST(TrtllmEvents, KnowsWhetherATextHasEventsOfItsRank) {
  auto events =
      TrtllmEvents::Create({.window_sizes = {4096}, .tokens_per_block = 4, .attention_dp_rank = 1})
          .value();
  Json other = EventOf(0, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))}));
  other["attention_dp_rank"] = 0;
  Json own = other;
  own["attention_dp_rank"] = 1;
  const auto has_events = [&events](const Json& json) {
    EXPECT_TRUE(events.Decode(json.dump()).ok());
    return events.has_events();
  };
  EXPECT_FALSE(has_events(Json::array({other})));
  EXPECT_TRUE(has_events(Json::array({other, own})));
  EXPECT_FALSE(has_events(Json::array({other})));
  EXPECT_TRUE(has_events(Json::array({0}))) << "the bad event may be of this rank";
}

TEST(TrtllmEvents, OnlyBlocksOfOneChainShareAnEvent) {
  auto events = TrtllmEvents::Create({.window_sizes = {4096}, .tokens_per_block = 4}).value();
  Json salted = BlockOf(4, Tokens(41, 4));
  salted["cache_salt"] = "a";
  const Json list = {EventOf(0, StoredOf(nullptr, {BlockOf(1, Tokens(1, 4))})),
                     EventOf(1, StoredOf(nullptr, {BlockOf(2, Tokens(21, 4))})),
                     EventOf(2, StoredOf(1, {BlockOf(3, Tokens(31, 4))})),
                     EventOf(3, StoredOf(3, {salted})),
                     EventOf(4, StoredOf(4, {BlockOf(5, Tokens(51, 4))}))};
  const auto batch = events.Decode(list.dump());
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->events.size(), 5u);
}

TEST(TrtllmEvents, RegistrationIsChecked) {
  EXPECT_FALSE(TrtllmEvents::Create({.tokens_per_block = 4}).ok());
  EXPECT_FALSE(TrtllmEvents::Create({.window_sizes = {8, 8}, .tokens_per_block = 4}).ok());
  EXPECT_FALSE(TrtllmEvents::Create({.window_sizes = {0}, .tokens_per_block = 4}).ok());
  EXPECT_FALSE(TrtllmEvents::Create({.window_sizes = {8}}).ok());
}

TEST(TrtllmEvents, ChosenHashesAreNoSlower) {
  // The test builds the texts without Json, because Json would take most of the measured time.
  const auto before = [](int64_t id, const char* data) {
    return R"({"event_id":)" + std::to_string(id) + R"(,"window_size":4096,"data":{"type":)" + data;
  };
  constexpr char kStored[] = R"("stored","parent_hash":null,"blocks":[{"tokens":[{"token_id":1},
      {"token_id":2},{"token_id":3},{"token_id":4}],"cache_level":0,"block_hash":)";
  constexpr char kRemoved[] = R"("removed","block_hashes":[)";
  const auto numbers = EqualRemainders(FloodKeys(20'000));
  const double ratio = FloodCost(numbers, [&](const std::vector<uint64_t>& hashes) {
    TrtllmEvents events =
        TrtllmEvents::Create({.window_sizes = {4096}, .tokens_per_block = 4}).value();
    int64_t id = 0;
    size_t decoded = 0;
    for (const auto hash : hashes) {
      const auto batch = events.Decode(before(id++, kStored) + std::to_string(hash) + "}]}}");
      decoded += batch.ok() ? batch->events.size() : 0;
    }
    for (const auto hash : hashes) {
      const auto batch = events.Decode(before(id++, kRemoved) + std::to_string(hash) + "]}}");
      decoded += batch.ok() ? batch->events.size() : 0;
    }
    EXPECT_EQ(decoded, 2 * hashes.size());
  });
  EXPECT_LT(ratio, 3);
}

}  // namespace
}  // namespace kvcast::testing
