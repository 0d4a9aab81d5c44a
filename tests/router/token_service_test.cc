// Token mode in the service: a source whose hashes nobody can recompute answers queries by tokens,
// and says whether the answer is proven.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kvcast/publisher.h"
#include "router/service/query_engine.h"
#include "router/service/router_service.h"
#include "tests/router/scheme_streams.h"
#include "tests/router/token_events.h"

namespace kvcast::router {
namespace {

using Json = nlohmann::json;
using kvcast::testing::Batch;
using kvcast::testing::DenseStore;
using kvcast::testing::EngineScheme;
using kvcast::testing::Full;
using kvcast::testing::Hash;
using kvcast::testing::Hashes;
using kvcast::testing::Registered;
using kvcast::testing::RootStore;
using kvcast::testing::Tokens;

// As SGLang sends it: integers of unknown origin; no groups, kinds or extra keys. Pages of 4.
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

// Other prompts' first pages: enough for the router to give up on hash schemes.
EventBatch OtherPrompts() {
  EventBatch batch;
  for (uint64_t i = 0; i < kSchemeMissesToGiveUp; ++i) {
    const auto first = static_cast<TokenId>(10'000 + 100 * i);
    batch.events.emplace_back(SglangStore({Hash(900 + i)}, Tokens(first, 4)));
  }
  return batch;
}

std::vector<TokenId> PromptFromOne(int64_t tokens) { return Tokens(1, tokens); }

struct TokenServiceTest : ::testing::Test {
  void Follow(const WorkerConfig& worker, Dialect sent = Dialect::kSglang5) {
    RouterSource config;
    config.worker = worker;
    sources.push_back(Source::Create(WorkerId(0), config, index).value());
    dialect = sent;
  }
  void Send(const EventBatch& batch) {
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(batch, dialect, payload).ok());
    sources[0]->OnBatch(payload);
  }
  QueryAnswer Ask(Query query) const {
    const QueryEngine engine(index,
                             [](WorkerId) { return SourceStatus{.state = SourceState::kSynced}; });
    query.prompt_tokens = std::ssize(query.tokens);
    return engine.Answer(query, sources).value().at(0);
  }
  QueryAnswer AskTokens(int64_t tokens) const { return Ask({.tokens = PromptFromOne(tokens)}); }
  int64_t Reusable(int64_t tokens) const { return AskTokens(tokens).match.gpu_tokens; }

  PrefixIndex index;
  SourceList sources;
  Dialect dialect = Dialect::kSglang5;
};

TEST_F(TokenServiceTest, WhatCameBeforeTheVerdictIsServedToo) {
  Follow(Registered({Full(4)}));
  Send(Batch(SglangStore(Hashes(1, 3), PromptFromOne(12))));
  EXPECT_FALSE(AskTokens(20).token_mode);
  EXPECT_EQ(AskTokens(20).exact, false);
  Send(OtherPrompts());
  const QueryAnswer answer = AskTokens(20);
  EXPECT_TRUE(answer.token_mode);
  EXPECT_EQ(answer.scheme.state, SchemeState::kTokenMode);
  EXPECT_EQ(answer.match.gpu_tokens, 12);
  EXPECT_EQ(answer.match.recompute_tokens, 8);
  EXPECT_EQ(answer.hash_block_size, 4);
  EXPECT_EQ(answer.reason, "");
  EXPECT_TRUE(answer.exact);
  Send(Batch(SglangRemove({Hash(3)})));
  EXPECT_EQ(Reusable(20), 8);
}

TEST_F(TokenServiceTest, GroupsThatNobodyToldAreNoProof) {
  Follow(Registered({}));
  Send(OtherPrompts());
  Send(Batch(SglangStore(Hashes(1, 3), PromptFromOne(12))));
  EXPECT_EQ(Reusable(20), 12);
  EXPECT_FALSE(AskTokens(20).exact);
  EXPECT_EQ(AskTokens(20).reason,
            "token mode: the kinds of the groups are neither sent nor registered");
}

TEST_F(TokenServiceTest, ABlockBehindAnUnknownParentIsNotProvenUntilTheParentComes) {
  Follow(Registered({Full(4)}));
  Send(OtherPrompts());
  Send(Batch(SglangStore({Hash(2)}, Tokens(5, 4), Hash(1))));
  EXPECT_EQ(Reusable(20), 0);
  EXPECT_EQ(AskTokens(20).reason,
            "token mode: blocks whose content is not known: 1 unknown_parent");
  Send(Batch(SglangStore({Hash(1)}, PromptFromOne(4))));
  EXPECT_EQ(Reusable(20), 8);
  EXPECT_TRUE(AskTokens(20).exact);
}

TEST_F(TokenServiceTest, SaltsOfMetadataAreOtherCaches) {
  Follow(Registered({Full(4)}), Dialect::kSglang4);
  Send(OtherPrompts());
  BlockStored salted = SglangStore(Hashes(1, 3), PromptFromOne(12));
  salted.metadata.emplace().emplace_back("cache_salt", ExtraKey::Text("tenant"));
  Send(Batch(salted));
  EXPECT_EQ(Reusable(20), 0);
  Query query{.tokens = PromptFromOne(20)};
  query.inputs.cache_salt = "tenant";
  EXPECT_EQ(Ask(query).match.gpu_tokens, 12);
}

TEST_F(TokenServiceTest, HashesAreAskedAsTheEngineSentThem) {
  Follow(Registered({Full(4)}));
  Send(OtherPrompts());
  Send(Batch(SglangStore(Hashes(1, 3), PromptFromOne(12))));
  const QueryAnswer answer = Ask({.by_tokens = false, .hashes = Hashes(1, 2)});
  EXPECT_FALSE(answer.token_mode);
  EXPECT_EQ(answer.match.gpu_tokens, 8);
}

// No known scheme hashes pairs: there is nothing to wait for.
TEST_F(TokenServiceTest, PairsOfTokensAreServedAtOnce) {
  Follow(Registered({Full(4)}));
  BlockStored store = SglangStore({Hash(1)}, {1, 2, 2, 3, 3, 4, 4, 5});
  store.tokens_per_position = 2;
  Send(Batch(store));
  EXPECT_TRUE(AskTokens(20).token_mode);
  EXPECT_EQ(Reusable(20), 4);
  EXPECT_EQ(Ask({.tokens = {1, 2, 3, 4, 6, 7}}).match.gpu_tokens, 0) << "the last pair is (4, 5)";
}

TEST_F(TokenServiceTest, LostBatchesTakeBackWhatIsHeldAndKeepWhatIsKnown) {
  Follow(Registered({Full(4)}));
  Send(OtherPrompts());
  Send(Batch(SglangStore(Hashes(1, 2), PromptFromOne(8))));
  sources[0]->OnReset(ResetReason::kLostBatches);
  EXPECT_EQ(Reusable(20), 0);
  Send(Batch(SglangStore({Hash(3)}, Tokens(9, 4), Hash(2)),
             SglangStore(Hashes(1, 2), PromptFromOne(8))));
  EXPECT_EQ(Reusable(20), 12);
  Send(Batch(SglangRemove(Hashes(1, 3))));
  EXPECT_EQ(Reusable(20), 0) << "the copy before the loss is not counted";
}

TEST_F(TokenServiceTest, WhatWasLostBeforeTheVerdictIsNotServedAfterIt) {
  Follow(Registered({Full(4)}));
  Send(Batch(SglangStore(Hashes(1, 2), PromptFromOne(8))));
  sources[0]->OnReset(ResetReason::kLostBatches);
  Send(OtherPrompts());
  EXPECT_TRUE(AskTokens(20).token_mode);
  EXPECT_EQ(Reusable(20), 0);
}

TEST_F(TokenServiceTest, ARestartedEngineHasNewHashes) {
  Follow(Registered({Full(4)}));
  Send(OtherPrompts());
  Send(Batch(SglangStore(Hashes(1, 2), PromptFromOne(8))));
  sources[0]->OnReset(ResetReason::kRestart);
  EXPECT_FALSE(AskTokens(20).token_mode);
  EXPECT_EQ(index.counters(sources[0]->token_worker()).residencies, 0u);
  Send(Batch(SglangStore({Hash(7)}, Tokens(9, 4), Hash(2))));
  Send(OtherPrompts());
  EXPECT_TRUE(AskTokens(20).token_mode);
  EXPECT_EQ(AskTokens(20).reason,
            "token mode: blocks whose content is not known: 1 unknown_parent");
}

TEST_F(TokenServiceTest, AKnownSchemeNeedsNoTokenMode) {
  Follow(Registered({Full(16)}), kDefaultDialect);
  Send(Batch(DenseStore(EngineScheme{}, PromptFromOne(64), 0, 4)));
  EXPECT_FALSE(AskTokens(100).token_mode);
  EXPECT_EQ(Reusable(100), 64);
  EXPECT_TRUE(AskTokens(100).exact);
  EXPECT_EQ(sources[0]->token_status().keys.hashes, 0u) << "nothing is kept for it";
}

TEST_F(TokenServiceTest, ASchemeThatIsLostLeavesWhatWasStoredUnknown) {
  Follow(Registered({Full(16)}), kDefaultDialect);
  Send(Batch(DenseStore(EngineScheme{}, PromptFromOne(64), 0, 4)));
  const EngineScheme unknown{.seed = "nobody knows"};
  for (int64_t n = 100; AskTokens(20).scheme.state == SchemeState::kMatched; ++n) {
    ASSERT_LT(n, 2000);
    Send(Batch(RootStore(unknown, n)));
  }
  Send(Batch(DenseStore(unknown, PromptFromOne(32), 0, 2)));
  EXPECT_TRUE(AskTokens(100).token_mode);
  EXPECT_EQ(Reusable(100), 32);
  EXPECT_EQ(AskTokens(100).reason, "token mode: what was stored before it began is not known");
}

// A wrong registration is no reason to answer nothing.
TEST_F(TokenServiceTest, AnUnknownSchemeBehindARegisteredOneIsServed) {
  RouterSource config;
  config.worker = Registered({Full(16)});
  config.algorithm = HashAlgorithm::kXxhash;
  config.hash_seed = "registered";
  sources.push_back(Source::Create(WorkerId(0), config, index).value());
  dialect = kDefaultDialect;
  const EngineScheme unknown{.seed = "nobody knows"};
  Send(Batch(DenseStore(unknown, PromptFromOne(64), 0, 4)));
  for (int64_t n = 100; n < 108; ++n) Send(Batch(RootStore(unknown, n)));
  EXPECT_EQ(AskTokens(100).scheme.state, SchemeState::kMismatch);
  EXPECT_TRUE(AskTokens(100).token_mode);
  EXPECT_EQ(Reusable(100), 64);
}

// Before the index is fed nobody can tell its reports of hits from copies.
TEST_F(TokenServiceTest, AnEngineThatReportsHitsIsServedFromTheVerdictOn) {
  WorkerConfig worker = Registered({Full(4)});
  worker.hit_reports = HitReports::kExpected;
  Follow(worker);
  Send(Batch(SglangStore(Hashes(1, 2), PromptFromOne(8))));
  Send(OtherPrompts());
  EXPECT_EQ(Reusable(20), 0);
  Send(Batch(SglangStore({Hash(3)}, Tokens(9, 4), Hash(2)),
             SglangStore(Hashes(1, 2), PromptFromOne(8))));
  EXPECT_EQ(Reusable(20), 12);
  EXPECT_EQ(AskTokens(20).reason, "token mode: what was stored before it began is not known");
}

// A publisher's batches over sockets into the service and out over HTTP.
TEST(TokenServiceOverSockets, AnSglangEngineIsAskedByTokens) {
  PublisherConfig publishing;
  publishing.endpoint = "tcp://127.0.0.1:0";
  publishing.replay_endpoint = "tcp://127.0.0.1:0";
  publishing.dialect = Dialect::kSglang3;
  const auto publisher = Publisher::Create(publishing).value();
  RouterOptions options;
  RouterSource source;
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
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  Json worker;
  do {
    const auto reply = httplib::Client("127.0.0.1", service->http_port())
                           .Post("/v1/query", body, "application/json");
    ASSERT_TRUE(reply);
    worker = Json::parse(reply->body).at("workers").at(0);
  } while ((worker.at("next_seq") != 3 || worker.at("state") != "synced") &&
           std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(worker.at("reusable_tokens"), 12);
  EXPECT_EQ(worker.at("mode"), "token");
  EXPECT_EQ(worker.at("exact"), true);
  EXPECT_EQ(worker.at("reason"), "");
  EXPECT_EQ(worker.at("scheme").at("state"), "token_mode");
}

}  // namespace
}  // namespace kvcast::router
