// The service answers queries by tokens. The service finds blocks by their content, or by the
// engine's own hashes if the content is not enough. Each answer states whether the answer is exact.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/stream/publisher.h"
#include "router/service/json/json_fields.h"
#include "router/service/route/query_engine.h"
#include "router/service/router_service.h"
#include "tests/router/names/scheme_streams.h"
#include "tests/support/content_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::DenseStore;
using kvcast::testing::EngineScheme;
using kvcast::testing::Full;
using kvcast::testing::Hash;
using kvcast::testing::Hashes;
using kvcast::testing::Registered;
using kvcast::testing::RootStore;
using kvcast::testing::Tokens;

// Returns a store in SGLang's form. It has integer hashes of an unknown scheme, and no groups,
// kinds or extra keys. Pages have 4 tokens.
BlockStored SglangStore(std::vector<BlockHash> hashes, std::vector<TokenId> tokens,
                        std::optional<BlockHash> parent = std::nullopt) {
  BlockStored event;
  event.block_hashes = std::move(hashes);
  event.parent_block_hash = std::move(parent);
  event.token_ids = std::move(tokens);
  event.block_size = 4;
  event.medium = kMediumGpu;
  return event;
}
BlockRemoved SglangRemove(std::vector<BlockHash> hashes) {
  BlockRemoved event;
  event.block_hashes = std::move(hashes);
  event.medium = kMediumGpu;
  return event;
}

// Returns stores of the first pages of many other prompts. After these stores, the router stops the
// search for a hash scheme.
EventBatch OtherPrompts() {
  EventBatch batch;
  for (uint64_t i = 0; i < kSchemeMissesToGiveUp; ++i) {
    const auto first = static_cast<TokenId>(10'000 + 100 * i);
    batch.events.emplace_back(SglangStore({Hash(900 + i)}, Tokens(first, 4)));
  }
  return batch;
}

std::vector<TokenId> PromptFromOne(int64_t tokens) { return Tokens(1, tokens); }

struct NamingServiceTest : ::testing::Test {
  void Follow(const WorkerConfig& worker, Dialect sent = Dialect::kSglang5,
              std::map<std::string, std::string> lora_paths = {}) {
    WorkerRegistration config;
    config.worker = worker;
    config.lora_paths = std::move(lora_paths);
    sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
    dialect = sent;
  }
  void Send(const EventBatch& batch) {
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(batch, dialect, payload).ok());
    sources[0]->OnBatch(payload);
  }
  QueryAnswer Ask(Query query) const {
    const QueryEngine engine(index, [this](WorkerId) {
      return SourceStatus{.state = SourceState::kSynced,
                          .replacements = sources[0]->replacements()};
    });
    if (query.by_tokens) query.prompt_tokens = std::ssize(query.tokens);
    return engine.Answer(query, sources).value().at(0);
  }
  QueryAnswer AskTokens(int64_t tokens) const { return Ask({.tokens = PromptFromOne(tokens)}); }
  int64_t Reusable(int64_t tokens) const { return AskTokens(tokens).match.gpu_tokens; }

  PrefixIndex index;
  SourceList sources;
  Dialect dialect = Dialect::kSglang5;
};

TEST_F(NamingServiceTest, TheFirstStoreIsServedAndProven) {
  Follow(Registered({Full(4)}));
  Send(Batch(SglangStore(Hashes(1, 3), PromptFromOne(12))));
  const QueryAnswer answer = AskTokens(20);
  EXPECT_EQ(answer.named_by, NamedBy::kContent);
  EXPECT_NE(answer.scheme->state, SchemeState::kMatched);
  EXPECT_EQ(answer.match.gpu_tokens, 12);
  EXPECT_EQ(answer.match.recompute_tokens, 8);
  EXPECT_EQ(answer.hash_block_size, 4);
  EXPECT_EQ(answer.reason, "");
  EXPECT_TRUE(answer.exact);
  ASSERT_NE(answer.prefixes, nullptr);
  EXPECT_EQ(answer.prefixes->size(), 5u);
  Send(OtherPrompts());
  EXPECT_TRUE(AskTokens(20).exact) << "content needs no hash scheme";
  Send(Batch(SglangRemove({Hash(3)})));
  EXPECT_EQ(Reusable(20), 8);
}

TEST_F(NamingServiceTest, AnAnswerForUnknownGroupsIsNotExact) {
  Follow(Registered({}));
  Send(Batch(SglangStore(Hashes(1, 3), PromptFromOne(12))));
  EXPECT_EQ(Reusable(20), 12);
  EXPECT_FALSE(AskTokens(20).exact);
  EXPECT_EQ(AskTokens(20).reason,
            "the kinds of the groups are neither sent nor registered: set groups");
  EXPECT_TRUE(Ask({.tokens = Tokens(500, 20)}).exact) << "the worker holds no block of this prompt";
}

TEST_F(NamingServiceTest, PropertiesThatTheStreamShowsNeedNoRegistration) {
  Follow(Registered({}), kDefaultDialect);
  const auto store = [](BlockHash hash, TokenId first, std::optional<BlockHash> parent) {
    return kvcast::testing::StoreTokens({hash}, Tokens(first, 4), parent);
  };
  Send(Batch(store(Hash(1), 1, {}), store(Hash(2), 5, Hash(1))));
  EXPECT_EQ(AskTokens(20).reason,
            "no reuse has shown yet that all groups were announced: set groups");
  Send(Batch(store(Hash(3), 100, Hash(1))));
  EXPECT_EQ(AskTokens(20).reason, "");
  EXPECT_TRUE(AskTokens(20).exact);
  EXPECT_EQ(Reusable(20), 8);
}

// A new child of a known block is evidence of reuse (reuse_evidence.h). After a late join, a new
// child is no evidence. The engine may have stored the child before the join, and dropped it for a
// draft head.
TEST_F(NamingServiceTest, AStreamThatIsJoinedLateShowsNoReuse) {
  const auto store = [](BlockHash hash, TokenId first, std::optional<BlockHash> parent) {
    return kvcast::testing::StoreTokens({hash}, Tokens(first, 4), parent);
  };
  const EventBatch first = Batch(store(Hash(1), 1, {}), store(Hash(2), 5, Hash(1)));
  const EventBatch second = Batch(store(Hash(3), 100, Hash(1)));
  const auto shows = [&] { return AskTokens(20).reason.empty(); };
  Follow(Registered({}), kDefaultDialect);
  const auto send = [&](const EventBatch& batch, uint64_t seq) {
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(batch, dialect, payload).ok());
    sources[0]->OnBatch(payload, Seq(seq));
  };
  send(first, 7);
  send(second, 8);
  EXPECT_FALSE(shows());
  // After a clear, all blocks are known from the first block on.
  send(Batch(AllBlocksCleared()), 9);
  send(first, 10);
  send(second, 11);
  EXPECT_TRUE(shows());
  sources[0]->OnReset(ResetReason::kRestart);
  send(first, 0);
  EXPECT_FALSE(shows());
  // After lost batches, a new child is no evidence either.
  sources[0]->OnReset(ResetReason::kLostBatches);
  send(first, 2);
  send(second, 3);
  EXPECT_FALSE(shows());
  sources[0]->OnReset(ResetReason::kRestart);
  send(first, 0);
  send(second, 1);
  EXPECT_TRUE(shows());
}

TEST_F(NamingServiceTest, ABlockBehindAnUnknownParentIsNotProvenUntilTheParentComes) {
  Follow(Registered({Full(4)}));
  Send(OtherPrompts());
  Send(Batch(SglangStore({Hash(2)}, Tokens(5, 4), Hash(1))));
  EXPECT_EQ(Reusable(20), 0);
  EXPECT_EQ(AskTokens(20).reason, "blocks whose content is not known: unknown_parent");
  EXPECT_TRUE(Ask({.tokens = Tokens(10'000, 5)}).exact) << "a full hit needs no further block";
  Send(Batch(SglangStore({Hash(1)}, PromptFromOne(4))));
  EXPECT_EQ(Reusable(20), 8);
  EXPECT_TRUE(AskTokens(20).exact);
}

TEST_F(NamingServiceTest, SaltsOfMetadataAreOtherCaches) {
  Follow(Registered({Full(4)}), Dialect::kSglang4);
  BlockStored salted = SglangStore(Hashes(1, 3), PromptFromOne(12));
  salted.metadata.emplace().emplace_back("cache_salt", ExtraKey::Text("tenant"));
  Send(Batch(salted));
  EXPECT_EQ(Reusable(20), 0);
  Query query{.tokens = PromptFromOne(20)};
  query.inputs.cache_salt = "tenant";
  EXPECT_EQ(Ask(query).match.gpu_tokens, 12);
}

TEST_F(NamingServiceTest, AQueryMayContainTheHashesOfTheEngine) {
  Follow(Registered({Full(4)}));
  Send(Batch(SglangStore(Hashes(1, 3), PromptFromOne(12))));
  const QueryAnswer answer = Ask({.by_tokens = false, .hashes = Hashes(1, 2)});
  EXPECT_EQ(answer.named_by, NamedBy::kHashes);
  EXPECT_EQ(answer.match.gpu_tokens, 8);
  EXPECT_TRUE(answer.exact);
}

TEST_F(NamingServiceTest, PairsOfTokensAreServed) {
  Follow(Registered({Full(4)}));
  BlockStored store = SglangStore({Hash(1)}, {1, 2, 2, 3, 3, 4, 4, 5});
  store.tokens_per_position = 2;
  Send(Batch(store));
  EXPECT_EQ(AskTokens(20).named_by, NamedBy::kContent);
  EXPECT_TRUE(AskTokens(20).exact);
  EXPECT_EQ(Reusable(20), 4);
  EXPECT_EQ(Ask({.tokens = {1, 2, 3, 4, 6, 7}}).match.gpu_tokens, 0) << "the last pair is (4, 5)";
}

TEST_F(NamingServiceTest, LostBatchesClearTheHeldBlocks) {
  Follow(Registered({Full(4)}));
  Send(Batch(SglangStore(Hashes(1, 2), PromptFromOne(8))));
  sources[0]->OnReset(ResetReason::kLostBatches);
  EXPECT_EQ(Reusable(20), 0);
  Send(Batch(SglangStore({Hash(3)}, Tokens(9, 4), Hash(2)),
             SglangStore(Hashes(1, 2), PromptFromOne(8))));
  EXPECT_EQ(Reusable(20), 12);
  Send(Batch(SglangRemove(Hashes(1, 3))));
  EXPECT_EQ(Reusable(20), 0) << "the copy before the loss is not counted";
}

TEST_F(NamingServiceTest, ARestartedEngineHasNewHashes) {
  Follow(Registered({Full(4)}));
  Send(Batch(SglangStore(Hashes(1, 2), PromptFromOne(8))));
  sources[0]->OnReset(ResetReason::kRestart);
  EXPECT_EQ(Reusable(20), 0);
  EXPECT_EQ(index.counters(WorkerId(0)).residencies, 0u);
  Send(Batch(SglangStore({Hash(7)}, Tokens(9, 4), Hash(2))));
  Send(OtherPrompts());
  EXPECT_EQ(Reusable(20), 0);
  EXPECT_EQ(AskTokens(20).reason, "blocks whose content is not known: unknown_parent");
}

TEST_F(NamingServiceTest, AKnownSchemeIsNotNeededForContent) {
  Follow(Registered({Full(16)}), kDefaultDialect);
  Send(Batch(DenseStore(EngineScheme{}, PromptFromOne(64), 0, 4)));
  EXPECT_EQ(AskTokens(100).scheme->state, SchemeState::kMatched);
  EXPECT_EQ(AskTokens(100).named_by, NamedBy::kContent);
  EXPECT_EQ(Reusable(100), 64);
  EXPECT_TRUE(AskTokens(100).exact);
}

TEST_F(NamingServiceTest, APromptThatIsNotDescribedToItsEndIsNotExact) {
  Follow(Registered({Full(4)}));
  Send(Batch(SglangStore(Hashes(1, 3), PromptFromOne(12))));
  Query query{.tokens = PromptFromOne(20)};
  EXPECT_TRUE(Ask(query).exact);
  query.inputs.mm_items = {{.identifier = "a", .offset = 0, .length = 4},
                           {.identifier = "b", .offset = 2, .length = 4}};
  const QueryAnswer overlap = Ask(query);
  EXPECT_FALSE(overlap.exact);
  EXPECT_EQ(overlap.reason,
            "the query does not describe the whole prompt: items overlap, or hashes, or digests of "
            "embeddings for this hash_block_size, are missing");
  query.inputs = {};
  query.inputs.embedding_digests.push_back({.hash_block_size = 8, .digests = {}});
  EXPECT_FALSE(Ask(query).exact);
  Query hashes{.by_tokens = false, .hashes = Hashes(1, 3), .prompt_tokens = 100};
  EXPECT_FALSE(Ask(hashes).exact) << "the prompt has more blocks";
  hashes.prompt_tokens = 15;
  EXPECT_TRUE(Ask(hashes).exact) << "the last tokens fill no block";
}

// The engine's hash of a block depends on the last item of the list. Here the last item is out of
// order, and the item before it begins after the end of the prompt. If the query named the blocks
// of the hashes, the names would be wrong for all clients.
TEST_F(NamingServiceTest, ItemsOutOfOrderBehindThePromptNameNothing) {
  Follow(Registered({Full(4)}));
  Send(Batch(SglangStore(Hashes(1, 3), PromptFromOne(12))));
  Query query{.tokens = PromptFromOne(20)};
  query.inputs.mm_items = {{.identifier = "x", .offset = 8, .length = 2},
                           {.identifier = "c", .offset = 1000, .length = 1},
                           {.identifier = "d", .offset = 0, .length = 1}};
  EXPECT_FALSE(Ask(query).exact);
}

// The detector tests only a sample of the stores, so the test sends many stores.
TEST_F(NamingServiceTest, AfterAContradictionNoAnswerIsExactUntilAStoreFits) {
  Follow(Registered({Full(16)}), kDefaultDialect);
  const EngineScheme scheme;
  Send(Batch(DenseStore(scheme, PromptFromOne(64), 0, 4)));
  EXPECT_TRUE(AskTokens(100).exact);
  constexpr int64_t kStores = 200;
  for (int64_t n = 50; n < 50 + kStores && AskTokens(100).exact; ++n) {
    BlockStored wrong = RootStore(scheme, n);
    (*wrong.token_ids)[3] ^= 1;
    Send(Batch(wrong));
  }
  EXPECT_EQ(AskTokens(100).reason,
            "contradiction: the hashes of the stream do not match its tokens");
  EXPECT_EQ(AskTokens(100).scheme->state, SchemeState::kMatched);
  EXPECT_TRUE(sources[0]->is_contradicted());
  for (int64_t n = 500; n < 500 + kStores && !AskTokens(100).exact; ++n) {
    Send(Batch(RootStore(scheme, n)));
  }
  EXPECT_EQ(AskTokens(100).reason, "");
  EXPECT_EQ(Reusable(100), 64);
}

// The store of the first block has no tokens. Content keys need the tokens from the root on. Hashes
// do not need these tokens.
TEST_F(NamingServiceTest, AKnownSchemeFindsBlocksWhoseContentIsNotKnown) {
  Follow(Registered({Full(16)}), kDefaultDialect);
  const EngineScheme scheme;
  Send(Batch(RootStore(scheme, 50)));
  BlockStored first = DenseStore(scheme, PromptFromOne(64), 0, 1);
  first.token_ids.reset();
  first.extra_keys.reset();
  Send(Batch(DenseStore(scheme, PromptFromOne(64), 1, 4), first));
  EXPECT_EQ(index.counters(WorkerId(0)).unnamed_gpu, 4u);
  const QueryAnswer answer = AskTokens(100);
  EXPECT_EQ(answer.named_by, NamedBy::kContent);
  EXPECT_EQ(answer.match.gpu_tokens, 64);
  EXPECT_EQ(answer.reason, "");
  EXPECT_TRUE(answer.exact);
}

// With the next batch, the index names the blocks that a query found by hash, and the blocks that
// wait behind them.
TEST_F(NamingServiceTest, BlocksThatAQueryFindsByHashAreNamed) {
  Follow(Registered({Full(16)}), kDefaultDialect);
  const EngineScheme scheme;
  Send(Batch(RootStore(scheme, 50)));
  BlockStored first = DenseStore(scheme, PromptFromOne(96), 0, 2);
  first.token_ids.reset();
  first.extra_keys.reset();
  Send(Batch(first, DenseStore(scheme, PromptFromOne(96), 2, 6)));
  ASSERT_EQ(index.counters(WorkerId(0)).unnamed_gpu, 6u);
  EXPECT_EQ(Ask({.tokens = Tokens(7'000, 100)}).match.unnamed_units, 0);
  Send(Batch(RootStore(scheme, 51)));
  EXPECT_EQ(index.counters(WorkerId(0)).unnamed_gpu, 6u)
      << "the query reached none of these blocks";
  // The query reaches the first three blocks.
  EXPECT_EQ(AskTokens(49).match.unnamed_units, 3);
  EXPECT_EQ(index.counters(WorkerId(0)).unnamed_gpu, 6u) << "a query does not change the index";
  Send(Batch(RootStore(scheme, 52)));
  EXPECT_EQ(index.counters(WorkerId(0)).unnamed_gpu, 0u);
  EXPECT_EQ(index.counters(WorkerId(0)).named_late, 6u);
  const QueryAnswer answer = AskTokens(100);
  EXPECT_EQ(answer.match.gpu_tokens, 96);
  EXPECT_EQ(answer.match.unnamed_units, 0);
  EXPECT_TRUE(answer.exact);
}

// The router joined the stream late, so the blocks of the worker have no names. The blocks get
// names after the first query for each prompt.
TEST_F(NamingServiceTest, AWorkerOfUnnamedBlocksIsNamedByQueries) {
  Follow(Registered({Full(16)}), kDefaultDialect);
  const EngineScheme scheme;
  Send(Batch(RootStore(scheme, 50)));
  Send(Batch(BlockRemoved{
      .block_hashes = RootStore(scheme, 50).block_hashes, .medium = kMediumGpu, .group_idx = 0}));
  index.ClearWorker(WorkerId(0));
  BlockStored held = DenseStore(scheme, PromptFromOne(64), 0, 4);
  held.token_ids.reset();
  held.extra_keys.reset();
  Send(Batch(held));
  EXPECT_EQ(AskTokens(100).match.gpu_tokens, 64);
  Send(Batch(RootStore(scheme, 51)));
  EXPECT_EQ(index.counters(WorkerId(0)).unnamed_gpu, 0u);
  EXPECT_EQ(AskTokens(100).named_by, NamedBy::kContent);
  EXPECT_EQ(AskTokens(100).match.gpu_tokens, 64);
}

TEST_F(NamingServiceTest, NamesFromBeforeARestartAreNotUsed) {
  WorkerRegistration config;
  config.worker = Registered({Full(16)});
  config.candidate_seeds = {"another"};
  sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  dialect = kDefaultDialect;
  const auto store = [](const EngineScheme& scheme) {
    BlockStored event = DenseStore(scheme, PromptFromOne(64), 0, 4);
    event.token_ids.reset();
    event.extra_keys.reset();
    return event;
  };
  const EngineScheme before;
  Send(Batch(RootStore(before, 50), store(before)));
  // These names come from a query that began before the restart and ends after the restart.
  FoundNames names{.hashes = std::make_shared<std::vector<BlockHash>>(store(before).block_hashes),
                   .contents = std::make_shared<std::vector<ContentKey>>(
                       PromptContents(index.keys(), PromptFromOne(64), 16, 0, {})),
                   .units = 4,
                   .scheme = sources[0]->scheme()};
  sources[0]->OnReset(ResetReason::kRestart);
  const EngineScheme after{.seed = "another"};
  Send(Batch(RootStore(after, 50), store(before)));
  ASSERT_EQ(sources[0]->verdict()->state, SchemeState::kMatched);
  sources[0]->OfferNames(names);
  Send(Batch(RootStore(after, 51)));
  EXPECT_EQ(index.counters(WorkerId(0)).unnamed_gpu, 4u);
  names.scheme = sources[0]->scheme();
  sources[0]->OfferNames(names);
  Send(Batch(RootStore(after, 52)));
  EXPECT_EQ(index.counters(WorkerId(0)).unnamed_gpu, 0u) << "names of the current scheme are used";
}

TEST_F(NamingServiceTest, NamesThatDoNotFitAreDroppedAndCounted) {
  Follow(Registered({Full(16)}), kDefaultDialect);
  const EngineScheme scheme;
  Send(Batch(RootStore(scheme, 50)));
  BlockStored first = DenseStore(scheme, PromptFromOne(64), 0, 4);
  first.token_ids.reset();
  first.extra_keys.reset();
  Send(Batch(first));
  for (size_t i = 0; i < FoundNamesQueue::kPrompts + 3; ++i) AskTokens(100);
  EXPECT_EQ(sources[0]->counters().dropped_names, 3u);
  Send(Batch(RootStore(scheme, 51)));
  EXPECT_EQ(index.counters(WorkerId(0)).unnamed_gpu, 0u);
}

// For each scheme, a query hashes the whole prompt. If the schemes exceed the budget, the answer
// states the reason.
TEST_F(NamingServiceTest, TheHashSchemesOfAQueryAreBounded) {
  constexpr int64_t kTokens = 700'000;
  constexpr uint32_t kEngines = 4;
  std::vector<EngineScheme> schemes;
  for (uint32_t i = 0; i < kEngines; ++i) {
    schemes.push_back({.algorithm = HashAlgorithm::kXxhash, .seed = std::to_string(i)});
    WorkerRegistration config;
    config.worker = Registered({Full(16)});
    config.worker.name = "w" + std::to_string(i);
    config.candidate_seeds = {schemes[i].seed};
    sources.push_back(WorkerIngest::Create(WorkerId(i), config, index).value());
    BlockStored first = DenseStore(schemes[i], PromptFromOne(64), 0, 4);
    first.token_ids.reset();
    first.extra_keys.reset();
    std::vector<uint8_t> payload;
    ASSERT_TRUE(
        EncodeBatch(Batch(RootStore(schemes[i], 50), first), kDefaultDialect, payload).ok());
    sources[i]->OnBatch(payload);
  }
  const QueryEngine engine(index,
                           [](WorkerId) { return SourceStatus{.state = SourceState::kSynced}; });
  const auto ask = [&](int64_t tokens) {
    return engine.Answer({.tokens = PromptFromOne(tokens), .prompt_tokens = tokens}, sources)
        .value();
  };
  for (const QueryAnswer& answer : ask(1000)) {
    EXPECT_TRUE(answer.exact) << answer.reason;
    EXPECT_EQ(answer.match.gpu_tokens, 64);
  }
  size_t within = 0;
  for (const QueryAnswer& answer : ask(kTokens)) {
    within += answer.exact;
    if (answer.exact) {
      EXPECT_EQ(answer.match.gpu_tokens, 64);
    } else {
      EXPECT_EQ(answer.reason, "budget: the queried engines use too many hash schemes");
      EXPECT_EQ(answer.match.gpu_tokens, 0);
    }
  }
  EXPECT_EQ(within, 2u) << "the budget is 2^21 tokens";
}

TEST_F(NamingServiceTest, AStreamWithoutTokensIsAskedByTheLikelyChain) {
  Follow(Registered({Full(16)}), kDefaultDialect);
  BlockStored store = DenseStore(EngineScheme{}, PromptFromOne(64), 0, 4);
  store.token_ids.reset();
  store.extra_keys.reset();
  Send(Batch(store));
  const QueryAnswer answer = AskTokens(100);
  EXPECT_EQ(answer.named_by, NamedBy::kScheme);
  EXPECT_EQ(answer.match.gpu_tokens, 64);
  EXPECT_FALSE(answer.exact);
  EXPECT_EQ(answer.reason.substr(0, 13), "hash scheme: ");
}

TEST_F(NamingServiceTest, AnotherSchemeThanTheRegisteredOneIsServed) {
  WorkerRegistration config;
  config.worker = Registered({Full(16)});
  config.algorithm = HashAlgorithm::kXxhash;
  config.hash_seed = "registered";
  sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  dialect = kDefaultDialect;
  const EngineScheme unknown{.seed = "nobody knows"};
  Send(Batch(DenseStore(unknown, PromptFromOne(64), 0, 4)));
  for (int64_t n = 100; n < 108; ++n) Send(Batch(RootStore(unknown, n)));
  EXPECT_EQ(AskTokens(100).scheme->state, SchemeState::kMismatch);
  EXPECT_EQ(AskTokens(100).named_by, NamedBy::kContent);
  EXPECT_EQ(Reusable(100), 64);
}

TEST_F(NamingServiceTest, TwoContentsOfAHashAreNoProof) {
  Follow(Registered({Full(4)}));
  Send(Batch(SglangStore(Hashes(1, 2), PromptFromOne(8)), SglangStore({Hash(9)}, Tokens(90, 4))));
  Send(Batch(SglangStore({Hash(1)}, Tokens(90, 4))));
  EXPECT_EQ(Reusable(20), 0);
  EXPECT_EQ(AskTokens(20).reason,
            "ambiguous: the worker used a hash for two contents, or two hashes for a content");
}

TEST_F(NamingServiceTest, AnEngineThatReportsHitsIsServed) {
  WorkerConfig worker = Registered({Full(4)});
  worker.hit_reports = HitReports::kExpected;
  Follow(worker);
  Send(Batch(SglangStore({Hash(3)}, Tokens(9, 4), Hash(2)),
             SglangStore(Hashes(1, 2), PromptFromOne(8))));
  EXPECT_EQ(Reusable(20), 12);
  EXPECT_TRUE(AskTokens(20).exact);
}

constexpr char kPath[] = "/adapters/sql";

HashInputs Adapter(std::string path = "") {
  HashInputs inputs;
  inputs.lora_name = "sql";
  inputs.lora_path = std::move(path);
  return inputs;
}

struct LoraTest : NamingServiceTest {
  // Follows an engine that holds the first 64 tokens of the prompt, computed with the adapter.
  void Serve(ExtraKeyScheme keys, std::map<std::string, std::string> lora_paths) {
    Follow(Registered({Full(16)}), kDefaultDialect, std::move(lora_paths));
    engine.chain.extra_keys = keys;
    Send(Batch(RootStore(engine, 50)));
    Send(Batch(DenseStore(engine, PromptFromOne(80), 0, 4, 16, Adapter(kPath))));
  }
  QueryAnswer AskAdapter(const HashInputs& inputs) const {
    Query query{.tokens = PromptFromOne(100)};
    query.inputs = inputs;
    return Ask(query);
  }
  EngineScheme engine;
};

TEST_F(LoraTest, TheNameIsEnoughIfTheEngineHashesOnlyTheName) {
  Serve(ExtraKeyScheme::kBare, {});
  const QueryAnswer answer = AskAdapter(Adapter());
  EXPECT_EQ(answer.scheme->of(KeyKind::kLora).proof, KeyProof::kBare);
  EXPECT_EQ(answer.named_by, NamedBy::kContent);
  EXPECT_EQ(answer.match.gpu_tokens, 64);
  EXPECT_EQ(answer.reason, "");
  EXPECT_TRUE(answer.exact);
  EXPECT_EQ(Reusable(100), 0);
  EXPECT_TRUE(AskTokens(100).exact);
}

TEST_F(LoraTest, ARegisteredPathIsHashedWithTheEnginesScheme) {
  Serve(ExtraKeyScheme::kTagged, {{"sql", kPath}});
  const QueryAnswer answer = AskAdapter(Adapter());
  EXPECT_EQ(answer.scheme->of(KeyKind::kLora).proof, KeyProof::kTagged);
  EXPECT_EQ(answer.named_by, NamedBy::kScheme);
  EXPECT_EQ(answer.match.gpu_tokens, 64);
  EXPECT_EQ(answer.reason, "");
  EXPECT_TRUE(answer.exact);
}

TEST_F(LoraTest, AnotherPathIsAnotherCache) {
  Serve(ExtraKeyScheme::kTagged, {{"sql", kPath}});
  const QueryAnswer answer = AskAdapter(Adapter("/adapters/elsewhere"));
  EXPECT_EQ(answer.named_by, NamedBy::kScheme);
  EXPECT_EQ(answer.match.gpu_tokens, 0);
  EXPECT_TRUE(answer.exact);
}

TEST_F(LoraTest, AnAnswerForAnUnknownPathIsNotExact) {
  Serve(ExtraKeyScheme::kTagged, {});
  const QueryAnswer answer = AskAdapter(Adapter());
  EXPECT_EQ(answer.named_by, NamedBy::kContent);
  EXPECT_EQ(answer.match.gpu_tokens, 64);
  EXPECT_FALSE(answer.exact);
  EXPECT_EQ(
      answer.reason,
      "the content depends on the LoRA path, which is not known: set lora_paths, or lora_path");
  EXPECT_TRUE(AskTokens(100).exact) << "without an adapter";
}

TEST_F(LoraTest, AQueryMayStateThePathOfAnAdapterThatTheRegistrationLacks) {
  Serve(ExtraKeyScheme::kTagged, {{"sql", kPath}});
  HashInputs other;
  other.lora_name = "chat";
  other.lora_path = "/adapters/chat";
  Send(Batch(DenseStore(engine, PromptFromOne(80), 0, 3, 16, other)));
  HashInputs by_name;
  by_name.lora_name = "chat";
  EXPECT_FALSE(AskAdapter(by_name).exact);
  const QueryAnswer answer = AskAdapter(other);
  EXPECT_EQ(answer.match.gpu_tokens, 48);
  EXPECT_EQ(answer.named_by, NamedBy::kScheme);
  EXPECT_TRUE(answer.exact);
}

// A publisher sends batches to the service over sockets. The test queries the service over HTTP.
TEST(NamingServiceOverSockets, AnSglangEngineIsAskedByTokens) {
  PublisherConfig publishing;
  publishing.endpoint = "tcp://127.0.0.1:0";
  publishing.replay_endpoint = "tcp://127.0.0.1:0";
  publishing.dialect = Dialect::kSglang3;
  const auto publisher = Publisher::Create(publishing).value();
  RouterOptions options;
  WorkerRegistration source;
  source.endpoint = publisher->endpoint();
  source.replay_endpoint = publisher->replay_endpoint();
  source.worker = Registered({Full(4)});
  source.worker.name = "sglang";
  options.sources = {source};
  const auto service = RouterService::Start(options).value();
  ASSERT_TRUE(publisher->Publish(Batch(SglangStore(Hashes(1, 2), PromptFromOne(8)))).ok());
  ASSERT_TRUE(publisher->Publish(OtherPrompts()).ok());
  ASSERT_TRUE(publisher
                  ->Publish(Batch(SglangStore({Hash(3), Hash(4)}, Tokens(9, 8), Hash(2)),
                                  SglangRemove({Hash(4)})))
                  .ok());
  const std::string body = Json({{"tokens", PromptFromOne(30)}}).dump();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  Json worker;
  httplib::Client client("127.0.0.1", service->http_port());
  client.set_read_timeout(60);
  do {
    const auto reply = client.Post("/v1/query", body, "application/json");
    ASSERT_TRUE(reply);
    worker = Json::parse(reply->body).at("workers").at(0);
  } while ((worker.at("next_seq") != 3 || worker.at("state") != "synced") &&
           std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(worker.at("reusable_tokens"), 12);
  EXPECT_EQ(worker.at("named_by"), "content");
  EXPECT_EQ(worker.at("exact"), true);
  EXPECT_EQ(worker.at("reason"), "");
}

}  // namespace
}  // namespace kvcast::router
