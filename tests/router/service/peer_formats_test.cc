// With the formats of TensorRT-LLM and Mooncake, the router's answers equal the engine's own
// lookup. Damaged bytes are refused and counted. The tests also cover the tiers of SGLang's
// HiCache, two connectors of one engine, and components of blocks.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "router/service/ingest/mooncake_events.h"
#include "router/service/ingest/mooncake_writer.h"
#include "router/service/ingest/trtllm_events.h"
#include "router/service/ingest/trtllm_writer.h"
#include "router/service/ingest/worker_ingest.h"
#include "src/wire/writer.h"
#include "tests/router/service/peer_engine.h"
#include "tests/support/content_events.h"

namespace kvcast::testing {
namespace {

using router::EventFormat;
using router::MooncakeWriter;
using router::TrtllmWriter;
using router::WorkerRegistration;
using Bytes = std::vector<uint8_t>;
using Json = nlohmann::json;

constexpr int64_t kWholeWindow = 4096;

// Groups in the order of group_idx.
struct Model {
  std::vector<GroupSpec> groups;
  std::vector<int64_t> windows;
};
Model FullModel() { return {{PeerFull()}, {kWholeWindow}}; }
Model HybridModel() { return {{PeerFull(), PeerWindow(12)}, {kWholeWindow, 12}}; }

WorkerRegistration TrtllmSource(const Model& model) {
  WorkerRegistration source;
  source.worker.name = "trtllm";
  source.format = EventFormat::kTrtllm;
  source.trtllm.window_sizes = model.windows;
  source.trtllm.tokens_per_block = kPeerBlock;
  return source;
}
WorkerRegistration MooncakeSource(const Model& model) {
  WorkerRegistration source;
  source.worker.name = "mooncake";
  source.worker.groups = model.groups;
  source.format = EventFormat::kMooncake;
  return source;
}

using Encoder = std::function<Bytes(const EventBatch&)>;

Encoder TrtllmEncoder(const Model& model) {
  auto writer = std::make_shared<TrtllmWriter>(
      router::TrtllmWriterConfig{.window_sizes = model.windows, .tokens_per_block = kPeerBlock});
  return [writer](const EventBatch& batch) {
    std::string json;
    EXPECT_TRUE(writer->Write(batch, json).ok());
    return Bytes(json.begin(), json.end());
  };
}
Encoder MooncakeEncoder() {
  auto writer = std::make_shared<MooncakeWriter>(router::MooncakeWriterConfig());
  return [writer](const EventBatch& batch) {
    Bytes bytes;
    EXPECT_TRUE(writer->Write(batch, bytes).ok());
    return bytes;
  };
}

// A source, and an index that does not know the engine's hash scheme.
class Reader {
 public:
  explicit Reader(const WorkerRegistration& config)
      : source_(router::WorkerIngest::Create(kWorker, config, index_).value()) {}
  BatchResult Take(const Bytes& bytes) { return source_->OnBatch(bytes, Seq(seq_++)); }
  WorkerMatch Match(const std::vector<TokenId>& prompt) const {
    const auto contents = PromptContents(index_.keys(), prompt, kPeerBlock, 0, HashInputs());
    const auto matches = index_.Match(
        {.hash_block_size = kPeerBlock, .prompt_tokens = std::ssize(prompt), .contents = contents});
    return matches.empty() ? WorkerMatch() : matches[0];
  }
  int64_t Reusable(const std::vector<TokenId>& prompt) const { return Match(prompt).gpu_tokens; }
  int64_t WithHostMemory(const std::vector<TokenId>& prompt) const {
    return Match(prompt).with_cpu_tokens;
  }
  router::WorkerIngest& source() { return *source_; }
  IndexCounters counters() const { return index_.counters(kWorker); }

 private:
  PrefixIndex index_;
  std::unique_ptr<router::WorkerIngest> source_;
  uint64_t seq_ = 0;
};

void ExpectTheEnginesAnswer(const Model& model, Reader& reader, const Encoder& encode,
                            uint32_t seed) {
  PeerEngine engine(model.groups, 48 * std::ssize(model.groups), seed);
  int64_t hits = 0;
  for (int turn = 0; turn < 300; ++turn) {
    const auto prompt = engine.NextPrompt();
    const int64_t hit = engine.Lookup(prompt);
    hits += hit > 0 ? 1 : 0;
    if (turn > 0) {
      ASSERT_EQ(reader.Reusable(prompt), hit) << "turn " << turn << ", seed " << seed;
    }
    EventBatch batch;
    batch.ts = 1'790'000'000 + turn;
    batch.events = turn % 100 == 99 ? engine.Reset() : engine.Run(prompt);
    reader.Take(encode(batch));
  }
  EXPECT_GT(hits, 50);
  EXPECT_GT(reader.counters().removed_blocks, 100u) << "the pool evicts";
  EXPECT_EQ(reader.counters().unknown_removes, 0u);
}

TEST(PeerFormats, AnswersFromTrtllmEqualTheEnginesLookup) {
  for (const Model& model : {FullModel(), HybridModel()}) {
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      Reader reader(TrtllmSource(model));
      ExpectTheEnginesAnswer(model, reader, TrtllmEncoder(model), seed);
      const auto counters = reader.source().counters();
      EXPECT_EQ(counters.trtllm->bad_events + counters.trtllm->gaps, 0u);
      EXPECT_EQ(counters.decode.rejected_total(), 0u);
    }
  }
}

TEST(PeerFormats, AnswersFromMooncakeEqualTheEnginesLookup) {
  for (const Model& model : {FullModel(), HybridModel()}) {
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      Reader reader(MooncakeSource(model));
      ExpectTheEnginesAnswer(model, reader, MooncakeEncoder(), seed);
      const auto counters = reader.source().counters();
      EXPECT_EQ(counters.mooncake->opaque + counters.mooncake->others, 0u);
      EXPECT_EQ(counters.decode.rejected_total(), 0u);
    }
  }
}

BlockStored InTier(const char* medium, BlockStored event) {
  event.medium = medium;
  return event;
}
Json JsonOf(const Bytes& bytes) { return Json::parse(bytes.begin(), bytes.end()); }

TEST(PeerFormats, ABlockThatLeavesTheGpuForHostMemoryIsUpdated) {
  const Encoder encode = TrtllmEncoder(FullModel());
  Reader reader(TrtllmSource(FullModel()));
  const BlockStored stored = StoreTokens({Hash(1)}, Tokens(1, 4));
  reader.Take(encode(Batch(stored)));
  EXPECT_EQ(encode(Batch(InTier(kMediumCpu, stored))), Bytes({'[', ']'}))
      << "the block is also on the GPU";
  const Bytes moved = encode(Batch(Remove({Hash(1)})));
  EXPECT_EQ(JsonOf(moved)[0]["data"]["type"], "updated");
  EXPECT_EQ(JsonOf(moved)[0]["data"]["cache_level"]["new_value"], 1);
  reader.Take(moved);
  EXPECT_EQ(reader.Reusable(Tokens(1, 5)), 0);
  EXPECT_EQ(reader.counters().residencies, 1u);
  reader.Take(encode(Batch(stored)));
  EXPECT_EQ(reader.Reusable(Tokens(1, 5)), 4);
  reader.Take(encode(Batch(RemoveFrom(kMediumCpu, {Hash(1)}))));
  EXPECT_EQ(reader.Reusable(Tokens(1, 5)), 4);
  reader.Take(encode(Batch(Remove({Hash(1)}))));
  EXPECT_EQ(reader.counters().residencies, 0u);
}

TEST(PeerFormats, EventsThatAFormatCannotExpressAreRefused) {
  TrtllmWriter trtllm({.window_sizes = {kWholeWindow}, .tokens_per_block = kPeerBlock});
  std::string json;
  BlockStored salted = StoreTokens({Hash(1)}, Tokens(1, 4));
  salted.cache_salt = "s";
  const EventBatch bad[] = {
      Batch(salted),
      Batch(StoreTokens({Hash(1)}, Tokens(1, 4), std::nullopt, 1)),
      Batch(Remove(Hashes(1, 1), 1)),
      Batch(Remove(Hashes(1, 1), -1)),
      Batch(StoreTokens({Hash(1)}, Tokens(1, 8))),
      Batch(StoreTokens({Hash(1)}, Tokens(1, 8), std::nullopt, 0, 8)),
      Batch(InTier(kMediumStorage, StoreTokens({Hash(1)}, Tokens(1, 4)))),
      Batch(StoreIn(kMediumCpu, Hashes(1, 1))),
      Batch(Remove({Hash(1)}, 3)),
  };
  for (const EventBatch& batch : bad) EXPECT_FALSE(trtllm.Write(batch, json).ok());
  EXPECT_EQ(json, "");
  EXPECT_EQ(trtllm.next_event_id(), 0);
  MooncakeWriter mooncake({});
  Bytes bytes;
  BlockStored offset = StoreTokens({Hash(1)}, Tokens(1, 4));
  offset.token_offset = 2;
  BlockStored keyed = StoreTokens({Hash(1)}, Tokens(1, 4));
  keyed.extra_keys.emplace(1, ExtraKeys{ExtraKey::Text("image")});
  for (const EventBatch& batch : {Batch(StoreTokens({}, {})), Batch(offset), Batch(keyed)}) {
    EXPECT_FALSE(mooncake.Write(batch, bytes).ok());
  }
  EXPECT_TRUE(bytes.empty());
}

// Sends 200 batches. Some batches are cut, or have replaced bytes. The source must count the
// damaged batches.
void ExpectDamageIsCounted(const WorkerRegistration& config, const Encoder& encode, uint32_t seed) {
  PeerEngine engine(FullModel().groups, 64, seed);
  Reader reader(config);
  for (int turn = 0; turn < 200; ++turn) {
    EventBatch batch;
    batch.ts = turn;
    batch.events = engine.Run(engine.NextPrompt());
    Bytes bytes = encode(batch);
    for (size_t damage = engine.Below(4); damage > 0 && !bytes.empty(); --damage) {
      const size_t at = engine.Below(bytes.size());
      if (engine.Below(8) == 0) {
        bytes.resize(at);
      } else {
        bytes[at] = static_cast<uint8_t>(engine.Below(256));
      }
    }
    reader.Take(bytes);
  }
  const auto counters = reader.source().counters();
  EXPECT_GT(counters.undecodable_batches, 0u) << "seed " << seed;
  EXPECT_GT(counters.decode.decoded, 0u);
  const BatchResult nothing = reader.Take({});
  EXPECT_EQ(nothing, BatchResult::kUndecodable);
  EXPECT_EQ(reader.counters().residencies, 0u) << "the batch may have contained removes";
}

TEST(PeerFormats, DamagedTrtllmIsRefusedAndCounted) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    ExpectDamageIsCounted(TrtllmSource(FullModel()), TrtllmEncoder(FullModel()), seed);
  }
}

TEST(PeerFormats, DamagedMooncakeIsRefusedAndCounted) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    ExpectDamageIsCounted(MooncakeSource(FullModel()), MooncakeEncoder(), seed);
  }
}

// Two connectors behind one engine of a hybrid model keep the same blocks in host memory. Each
// connector has its own copy. `ownership` distinguishes the copies.
TEST(PeerFormats, ABlockOfTwoConnectorsIsThereUntilBothRemovedIt) {
  WorkerRegistration config;
  config.worker.name = "vllm";
  config.worker.groups = HybridModel().groups;
  Reader reader(config);
  const auto send = [&reader](auto event, const char* owner, int64_t group) {
    event.medium = kMediumCpu;
    event.group_idx = group;
    event.locality = "LOCAL";
    event.ownership = owner;
    Bytes bytes;
    ASSERT_TRUE(EncodeBatch(Batch(event), Dialect::kVllm12, bytes).ok());
    EXPECT_EQ(reader.Take(bytes), BatchResult::kApplied);
  };
  const auto blocks = [](int64_t group) {
    BlockStored stored = StoreTokens({Hash(1), Hash(2), Hash(3)}, Tokens(1, 12));
    if (group == 1) {
      stored.kv_cache_spec_kind = "sliding_window";
      stored.kv_cache_spec_sliding_window = 12;
    }
    return stored;
  };
  send(blocks(0), "offload", 0);
  EXPECT_EQ(reader.WithHostMemory(Tokens(1, 13)), 0)
      << "a load also needs the blocks of the window group";
  for (const char* owner : {"offload", "lmcache"}) {
    if (owner[0] == 'l') send(blocks(0), owner, 0);
    send(blocks(1), owner, 1);
  }
  EXPECT_EQ(reader.WithHostMemory(Tokens(1, 13)), 12);
  EXPECT_EQ(reader.Reusable(Tokens(1, 13)), 0) << "nothing is on the GPU";
  send(Remove({Hash(3)}), "lmcache", 1);
  EXPECT_EQ(reader.WithHostMemory(Tokens(1, 13)), 12);
  send(Remove({Hash(3)}), "offload", 1);
  EXPECT_EQ(reader.WithHostMemory(Tokens(1, 13)), 8);
  send(Remove({Hash(3)}), "offload", 0);
  EXPECT_EQ(reader.counters().unknown_removes, 0u);
}

// In SGLang's HiCache, a block that was written through to host memory stays in host memory when
// the GPU evicts the block.
struct HiCache {
  explicit HiCache(Dialect wire) : dialect(wire), reader(Config()) {}
  static WorkerRegistration Config() {
    WorkerRegistration config;
    config.worker.name = "sglang";
    config.worker.groups = {PeerFull()};
    config.worker.repeats_are_refreshes = true;
    return config;
  }
  void Send(Event event) {
    Bytes bytes;
    EventBatch batch;
    batch.events.push_back(std::move(event));
    ASSERT_TRUE(EncodeBatch(batch, dialect, bytes).ok());
    reader.Take(bytes);
  }
  // Returns the reusable tokens on the GPU, with loads from host memory, and with loads from host
  // memory and storage.
  std::vector<int64_t> Answers() const {
    const WorkerMatch match = reader.Match(Tokens(1, 13));
    return {match.gpu_tokens, match.with_cpu_tokens, match.with_storage_tokens};
  }

  const Dialect dialect;
  Reader reader;
};

TEST(PeerFormats, HiCacheTiersAreSeparate) {
  using Answers = std::vector<int64_t>;
  for (const Dialect dialect : {Dialect::kSglang3, Dialect::kSglang4, Dialect::kSglang5}) {
    SCOPED_TRACE(DialectName(dialect));
    HiCache engine(dialect);
    const BlockStored all = StoreTokens(Hashes(1, 3), Tokens(1, 12));
    engine.Send(InTier("GPU", all));
    EXPECT_EQ(engine.Answers(), (Answers{12, 12, 12}));
    engine.Send(InTier("CPU_PINNED", all));
    engine.Send(RemoveFrom("GPU", Hashes(2, 2)));
    EXPECT_EQ(engine.Answers(), (Answers{4, 12, 12}))
        << "host memory holds the blocks that the GPU evicted";
    engine.Send(InTier("EXTERNAL", all));
    engine.Send(RemoveFrom("CPU_PINNED", {Hash(3)}));
    EXPECT_EQ(engine.Answers(), (Answers{4, 8, 12}));
    engine.Send(InTier("CPU_PINNED", StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1))));
    engine.Send(RemoveFrom("CPU_PINNED", {Hash(2)}));
    EXPECT_EQ(engine.Answers(), (Answers{4, 4, 12})) << "a repeated store adds no copy";
    engine.Send(InTier("GPU", StoreTokens(Hashes(2, 2), Tokens(5, 8), Hash(1))));
    EXPECT_EQ(engine.Answers(), (Answers{12, 12, 12})) << "the blocks are loaded to the GPU";
    EXPECT_EQ(engine.reader.counters().unknown_removes, 0u);
  }
}

TEST(PeerFormats, AClearOfHiCacheEmptiesHostMemoryAndNoStorage) {
  using Answers = std::vector<int64_t>;
  HiCache engine(Dialect::kSglang5);
  const BlockStored all = StoreTokens(Hashes(1, 3), Tokens(1, 12));
  for (const char* medium : {"GPU", "CPU_PINNED", "EXTERNAL"}) engine.Send(InTier(medium, all));
  engine.Send(AllBlocksCleared());
  EXPECT_EQ(engine.Answers(), (Answers{0, 0, 12}));
  EXPECT_EQ(engine.reader.counters().residencies, 3u);
  // vLLM's host memory has another medium, and a clear does not affect it.
  HiCache vllm(Dialect::kVllm12);
  for (const char* medium : {"GPU", "CPU"}) vllm.Send(InTier(medium, all));
  vllm.Send(AllBlocksCleared());
  EXPECT_EQ(vllm.Answers(), (Answers{0, 12, 12}));
}

// Returns a batch with SGLang's map of a store. The map has `key` in addition to the required
// members.
Bytes SglangStore(const char* key, const std::function<void(wire::Writer&)>& value) {
  Bytes bytes;
  wire::Writer out(bytes);
  out.ArrayHead(3);
  out.Float(1);
  out.ArrayHead(1);
  out.MapHead(6);
  out.Text("type");
  out.Text("BlockStored");
  out.Text("block_hashes");
  out.ArrayHead(1);
  out.Signed(-7);
  out.Text("parent_block_hash");
  out.Nil();
  out.Text("token_ids");
  out.ArrayHead(4);
  for (int64_t token = 1; token <= 4; ++token) out.Signed(token);
  out.Text("block_size");
  out.Signed(4);
  out.Text(key);
  value(out);
  out.Nil();
  out.Close();
  return bytes;
}

TEST(PeerFormats, ComponentsOfABlockAreCountedAndTheAnswerIsNotExact) {
  WorkerRegistration config;
  config.worker.name = "sglang";
  config.worker.groups = {PeerFull()};
  const auto names = [](wire::Writer& out) {
    out.ArrayHead(2);
    out.Text("full");
    out.Text("swa");
  };
  const auto nil = [](wire::Writer& out) { out.Nil(); };
  for (const char* key : {"component_types", "component_id"}) {
    Reader reader(config);
    EXPECT_EQ(reader.Take(SglangStore(key, nil)), BatchResult::kApplied);
    EXPECT_EQ(reader.source().rule_doubt(), "");
    EXPECT_EQ(reader.Take(SglangStore(key, names)), BatchResult::kApplied);
    EXPECT_EQ(reader.source().rule_doubt().substr(0, 11), "components:");
    EXPECT_EQ(reader.source().counters().decode.component_fields, 1u);
    EXPECT_EQ(reader.source().counters().decode.unknown_fields, 2u);
    EXPECT_EQ(reader.Reusable(Tokens(1, 5)), 4);
    reader.source().OnReset(ResetReason::kRestart);
    EXPECT_EQ(reader.source().rule_doubt(), "");
  }
  Reader other(config);
  EXPECT_EQ(other.Take(SglangStore("not_known_yet", names)), BatchResult::kApplied);
  EXPECT_EQ(other.source().rule_doubt(), "");
}

TEST(PeerFormats, AfterAGapOfEventIdsBlocksAreMissingUntilTheEngineRestarts) {
  Reader reader(TrtllmSource(FullModel()));
  const Encoder encode = TrtllmEncoder(FullModel());
  EXPECT_EQ(reader.Take(encode(Batch(StoreTokens({Hash(1)}, Tokens(1, 4))))),
            BatchResult::kComplete);
  (void)encode(Batch(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1))));  // lost
  EXPECT_EQ(reader.Take(encode(Batch(StoreTokens({Hash(3)}, Tokens(9, 4), Hash(2))))),
            BatchResult::kIncomplete);
  EXPECT_EQ(reader.Reusable(Tokens(1, 5)), 0);
  const Encoder encode_anew = TrtllmEncoder(FullModel());
  EXPECT_EQ(reader.Take(encode_anew(Batch(StoreTokens({Hash(1)}, Tokens(1, 4))))),
            BatchResult::kComplete);
  EXPECT_EQ(reader.Reusable(Tokens(1, 5)), 4);
  EXPECT_EQ(reader.source().counters().restarts, 1u);
  EXPECT_EQ(reader.source().counters().losses, 1u);
}

TEST(PeerFormats, ALateReaderLacksBlocks) {
  Reader reader(TrtllmSource(FullModel()));
  const Encoder encode = TrtllmEncoder(FullModel());
  (void)encode(Batch(StoreTokens({Hash(1)}, Tokens(1, 4))));
  EXPECT_EQ(reader.Take(encode(Batch(StoreTokens({Hash(2)}, Tokens(21, 4))))),
            BatchResult::kIncomplete);
  EXPECT_EQ(reader.Reusable(Tokens(21, 5)), 4);
}

}  // namespace
}  // namespace kvcast::testing
