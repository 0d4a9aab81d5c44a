// A query reaches workers of any hash scheme. Each worker is matched with a chain of its own
// scheme.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/query_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/router/names/scheme_streams.h"
#include "tests/support/colliding_texts.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::Full;
using kvcast::testing::Hashes;
using kvcast::testing::Registered;
using kvcast::testing::StoreFull;
using kvcast::testing::ThreadNsOf;
using kvcast::testing::Window;

std::vector<TokenId> FirstTokens(int64_t tokens) {
  std::vector<TokenId> prompt(static_cast<size_t>(tokens));
  std::iota(prompt.begin(), prompt.end(), 1000);
  return prompt;
}

SourceStatus Synced(WorkerId /*worker*/) {
  SourceStatus status;
  status.state = SourceState::kSynced;
  return status;
}

Query ByFourHashes() {
  Query query;
  query.by_tokens = false;
  query.hashes = Hashes(1, 4);
  return query;
}

struct QueryEngineTest : ::testing::Test {
  // Adds a worker that holds the first `blocks` blocks of the prompt that FirstTokens returns,
  // hashed in the given scheme.
  void AddWorker(const std::string& name, HashAlgorithm algorithm, const std::string& seed,
                 int64_t hash_block_size, EventHashForm form, int64_t blocks,
                 const HashInputs& inputs = {}) {
    WorkerRegistration config;
    config.worker = Registered({Full(hash_block_size)});
    config.worker.name = name;
    config.algorithm = algorithm;
    config.hash_seed = seed;
    const WorkerId id(static_cast<uint32_t>(sources.size()));
    sources.push_back(WorkerIngest::Create(id, config, index).value());
    std::vector<Digest> digests;
    BlockHasher::FromSeed(algorithm, seed)
        ->ExtendChain(FirstTokens(hash_block_size * blocks), hash_block_size, inputs, digests);
    std::vector<BlockHash> hashes;
    for (const Digest& digest : digests) hashes.push_back(ToEventHash(digest, form));
    std::vector<uint8_t> payload;
    const EventBatch batch = Batch(StoreFull(hashes, 0, hash_block_size));
    ASSERT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    sources.back()->OnBatch(payload);
  }

  std::vector<int64_t> Ask(const Query& query) const {
    const QueryEngine engine(index, [](WorkerId) { return SourceStatus(); });
    std::vector<int64_t> tokens;
    const Result<std::vector<QueryAnswer>> answers = engine.Answer(query, sources);
    for (const QueryAnswer& answer : answers.value()) {
      tokens.push_back(answer.match.gpu_tokens);
    }
    return tokens;
  }

  static Query ByTokens(int64_t tokens) {
    Query query;
    query.tokens = FirstTokens(tokens);
    query.prompt_tokens = tokens;
    return query;
  }

  PrefixIndex index;
  SourceList sources;
};

TEST_F(QueryEngineTest, EveryWorkerIsAskedWithItsOwnChain) {
  const std::string seed(kDefaultHashSeed);
  AddWorker("a", HashAlgorithm::kSha256, seed, 16, EventHashForm::kInt64, 4);
  AddWorker("b", HashAlgorithm::kSha256Cbor, seed, 16, EventHashForm::kInt64, 3);
  AddWorker("c", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 2);
  AddWorker("d", HashAlgorithm::kSha256, seed, 32, EventHashForm::kInt64, 1);
  AddWorker("e", HashAlgorithm::kSha256, seed, 16, EventHashForm::kBytes, 1);
  EXPECT_EQ(Ask(ByTokens(100)), (std::vector<int64_t>{64, 48, 32, 32, 16}));
  EXPECT_EQ(Ask(ByTokens(33)), (std::vector<int64_t>{32, 32, 32, 32, 16}));
}

TEST_F(QueryEngineTest, LoraAndSaltAreAnotherCache) {
  HashInputs tenant;
  tenant.cache_salt = "tenant-a";
  HashInputs adapter;
  adapter.lora_name = "adapter";
  AddWorker("plain", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 4);
  AddWorker("salted", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 4, tenant);
  AddWorker("adapted", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 4, adapter);
  Query query = ByTokens(100);
  EXPECT_EQ(Ask(query), (std::vector<int64_t>{64, 0, 0}));
  query.inputs = tenant;
  EXPECT_EQ(Ask(query), (std::vector<int64_t>{0, 64, 0}));
  query.inputs = adapter;
  EXPECT_EQ(Ask(query), (std::vector<int64_t>{0, 0, 64}));
}

TEST_F(QueryEngineTest, NamedWorkersAnswerInOrderOfTheSources) {
  AddWorker("a", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 1);
  AddWorker("b", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 2);
  AddWorker("c", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 3);
  Query query = ByTokens(100);
  query.workers = {"c", "b"};
  EXPECT_EQ(Ask(query), (std::vector<int64_t>{32, 48}));
  query.workers = {"nobody"};
  const QueryEngine engine(index, [](WorkerId) { return SourceStatus(); });
  EXPECT_EQ(engine.Answer(query, sources).status().message(), "workers: unknown worker nobody");
}

// If each worker searched all names, 512 workers would take 512 times as long as one worker.
TEST_F(QueryEngineTest, ManyNamesAreNotSearchedForEachWorker) {
  Query query;
  query.by_tokens = false;
  query.workers.assign(100000, "w0");
  const auto ask_ns = [&] {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int run = 0; run < 3; ++run) {
      least = std::min(least, ThreadNsOf([&] { EXPECT_EQ(Ask(query).size(), 1u); }));
    }
    return least;
  };
  const std::string seed(kDefaultHashSeed);
  const auto add = [&](int i) {
    AddWorker("w" + std::to_string(i), HashAlgorithm::kSha256, seed, 16, EventHashForm::kInt64, 1);
  };
  add(0);
  const int64_t one_ns = ask_ns();
  for (int i = 1; i < 512; ++i) add(i);
  EXPECT_LT(ask_ns(), 8 * one_ns) << one_ns << " ns with one worker";
}

TEST_F(QueryEngineTest, ABaselinePredictsByItsRuleAndIsNotExact) {
  WorkerRegistration config;
  config.worker = Registered({Full(16), Window(32)});
  config.worker.name = "hybrid";
  sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  std::vector<uint8_t> payload;
  ASSERT_TRUE(EncodeBatch(Batch(StoreFull(Hashes(1, 4), 0, 16)), kDefaultDialect, payload).ok());
  sources.back()->OnBatch(payload);
  const Query query = ByFourHashes();
  const QueryAnswer exact = QueryEngine(index, Synced).Answer(query, sources).value()[0];
  EXPECT_EQ(exact.match.gpu_tokens, 0);
  EXPECT_TRUE(exact.exact) << exact.reason;
  const QueryEngine full_only(index, Synced, {}, MatchPolicy::kFullOnly);
  const QueryAnswer answer = full_only.Answer(query, sources).value()[0];
  EXPECT_EQ(answer.match.gpu_tokens, 64);
  EXPECT_FALSE(answer.exact);
  EXPECT_EQ(answer.reason, "policy: the service predicts by another rule than the engine's");
}

TEST_F(QueryEngineTest, TheAnswerContainsAllBatchesBeforeNextSeq) {
  AddWorker("a", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 0);
  const Query query = ByFourHashes();
  SourceStatus status;
  const QueryEngine engine(index, [&](WorkerId worker) {
    if (status.next_seq++ == 0) index.Apply(worker, Batch(StoreFull(Hashes(1, 4), 0, 16)));
    return status;
  });
  const auto answers = engine.Answer(query, sources);
  EXPECT_EQ(answers.value()[0].next_seq, 1u);
  EXPECT_EQ(answers.value()[0].match.gpu_tokens, 64);
}

TEST_F(QueryEngineTest, AnAnswerForAnotherHashUnitIsNotExact) {
  AddWorker("a", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 4);
  Query query = ByFourHashes();
  query.hash_block_size = 32;
  const QueryEngine engine(index, Synced);
  const auto answers = engine.Answer(query, sources);
  EXPECT_FALSE(answers.value()[0].exact);
  EXPECT_EQ(answers.value()[0].reason, "the query's hash_block_size is not the worker's");
  query.hash_block_size = 16;
  EXPECT_TRUE(engine.Answer(query, sources).value()[0].exact);
}

TEST_F(QueryEngineTest, AWorkerWithoutStoresHasNoKnownHashUnit) {
  WorkerRegistration config;
  config.worker = Registered({});
  sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  Query by_hashes;
  by_hashes.by_tokens = false;
  by_hashes.hashes = Hashes(1, 4);
  by_hashes.hash_block_size = 16;
  const QueryEngine engine(index, Synced);
  for (const Query& query : {by_hashes, ByTokens(100)}) {
    EXPECT_EQ(engine.Answer(query, sources).value()[0].reason,
              "no store shows the worker's hash_block_size: set hash_block_size or groups");
  }
}

// The hash block size of the stores does not divide the blocks of the registered groups.
TEST_F(QueryEngineTest, AnAnswerForAUnitThatTheIndexCannotTakeIsNotExact) {
  WorkerRegistration config;
  config.worker = Registered({Full(16)});
  sources.push_back(WorkerIngest::Create(WorkerId(0), config, index).value());
  std::vector<uint8_t> payload;
  const EventBatch batch = Batch(kvcast::testing::RootStore({.hash_block_size = 24}, 1));
  ASSERT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
  sources.back()->OnBatch(payload);
  EXPECT_EQ(sources.back()->verdict()->state, SchemeState::kMatched);
  const QueryEngine engine(index, Synced);
  const auto answers = engine.Answer(ByTokens(100), sources);
  EXPECT_EQ(answers.value()[0].reason,
            "hash scheme: the stores' hash block size is not the worker's");
}

TEST_F(QueryEngineTest, TheReasonOfASilentStreamNamesWhatToCheck) {
  AddWorker("a", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 0);
  SourceStatus status;
  const QueryEngine engine(index, [&status](WorkerId) { return status; });
  const auto reason = [&] { return engine.Answer(ByTokens(100), sources).value()[0].reason; };
  EXPECT_EQ(reason(), "the stream is connecting");
  status.reason = SourceReason::kUnheard;
  EXPECT_EQ(
      reason(),
      "the stream is connecting: no connection for 10 s: if the engine connects its publisher "
      "(vLLM does for tcp://127.0.0.1:PORT), set bind=true");
  status.bound = true;
  EXPECT_EQ(reason(), "the stream is connecting: no publisher has connected for 10 s");
}

TEST_F(QueryEngineTest, AnUncertainMatchIsNotExact) {
  AddWorker("a", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 0);
  const Query query = ByFourHashes();
  const QueryEngine engine(index, Synced);
  BlockStored store = StoreFull(Hashes(1, 4), 0, 16);
  store.token_ids.emplace(64, 1);
  index.Apply(WorkerId(0), Batch(store));
  EXPECT_TRUE(engine.Answer(query, sources).value()[0].exact);
  index.Apply(WorkerId(0), Batch(store));
  EXPECT_EQ(engine.Answer(query, sources).value()[0].reason, "hit reports may count as copies");
  EXPECT_FALSE(engine.Answer(query, sources).value()[0].exact);
}

TEST_F(QueryEngineTest, TheSourceMustBeSyncedBeforeAndAfterTheIndexIsAsked) {
  AddWorker("a", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 4);
  const Query query = ByFourHashes();
  const SourceState states[][2] = {{SourceState::kSynced, SourceState::kSynced},
                                   {SourceState::kSynced, SourceState::kSuspect},
                                   {SourceState::kGap, SourceState::kSynced}};
  for (const auto& [before, after] : states) {
    int calls = 0;
    const QueryEngine engine(index, [&, first = before, then = after](WorkerId) {
      SourceStatus status;
      status.state = calls++ == 0 ? first : then;
      return status;
    });
    const auto answers = engine.Answer(query, sources);
    EXPECT_EQ(answers.value()[0].exact, &before == &states[0][0]);
    EXPECT_EQ(answers.value()[0].reason.empty(), answers.value()[0].exact);
  }
}

// The source publishes its status only after the reset.
TEST_F(QueryEngineTest, AnAnswerJustAfterAResetIsNotExact) {
  AddWorker("a", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 4);
  const Query query = ByFourHashes();
  SourceStatus status = Synced(WorkerId(0));
  const QueryEngine engine(index, [&](WorkerId) { return status; });
  const auto ask = [&] { return engine.Answer(query, sources).value()[0]; };
  EXPECT_TRUE(ask().exact);
  const std::vector<uint8_t> damaged = {0xc1};
  const std::function<void()> drops[] = {
      [&] { sources[0]->OnReset(ResetReason::kDoubt); },
      [&] { sources[0]->OnReset(ResetReason::kRestart); },
      [&] { EXPECT_EQ(sources[0]->OnBatch(damaged), BatchResult::kUndecodable); }};
  for (const auto& drop : drops) {
    drop();
    EXPECT_FALSE(ask().exact);
    EXPECT_EQ(ask().reason, "the worker's blocks were just dropped or replaced");
    status.replacements = sources[0]->replacements();
    EXPECT_TRUE(ask().exact);
  }
}

TEST_F(QueryEngineTest, AfterAResetDuringTheQueryTheAnswerIsNotExact) {
  AddWorker("a", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 4);
  const Query query = ByFourHashes();
  SourceStatus status = Synced(WorkerId(0));
  int calls = 0;
  const QueryEngine engine(index, [&](WorkerId) {
    if (calls++ == 1) {
      sources[0]->OnReset(ResetReason::kRestart);
      status.replacements = sources[0]->replacements();
    }
    return status;
  });
  const QueryAnswer during = engine.Answer(query, sources).value()[0];
  EXPECT_EQ(during.state, SourceState::kSynced);
  EXPECT_FALSE(during.exact);
  EXPECT_EQ(during.reason, "the worker's blocks were just dropped or replaced");
  EXPECT_TRUE(engine.Answer(query, sources).value()[0].exact);
}

TEST_F(QueryEngineTest, HashesOfAQueryAreUsedUnchanged) {
  AddWorker("a", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 0);
  AddWorker("b", HashAlgorithm::kSha256, "0", 32, EventHashForm::kInt64, 0);
  index.Apply(WorkerId(0), Batch(StoreFull(Hashes(1, 4), 0, 16)));
  index.Apply(WorkerId(1), Batch(StoreFull(Hashes(1, 4), 0, 32)));
  Query query = ByFourHashes();
  EXPECT_EQ(Ask(query), (std::vector<int64_t>{64, 128}));
  query.prompt_tokens = 64;
  EXPECT_EQ(Ask(query), (std::vector<int64_t>{48, 32}));
  query.hash_block_size = 32;
  EXPECT_EQ(Ask(query), (std::vector<int64_t>{0, 32}));
}

TEST_F(QueryEngineTest, EventsAgeByTheWorkersOwnTimeStamp) {
  AddWorker("fed", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 1);
  AddWorker("ahead", HashAlgorithm::kSha256, "0", 16, EventHashForm::kInt64, 1);
  WorkerRegistration silent;
  silent.worker = Registered({Full()});
  silent.worker.name = "silent";
  sources.push_back(WorkerIngest::Create(WorkerId(2), silent, index).value());
  const double stamps[] = {100, 200};
  for (size_t i = 0; i < 2; ++i) {
    EventBatch batch;
    batch.ts = stamps[i];
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    sources[i]->OnBatch(payload);
  }
  const auto status = [](WorkerId) { return SourceStatus(); };
  const QueryEngine engine(index, status, [] { return 107.5; });
  const auto answers = engine.Answer(ByTokens(100), sources).value();
  EXPECT_EQ(answers[0].event_age_seconds, 7.5);
  EXPECT_EQ(answers[1].event_age_seconds, 0);  // the worker's clock is ahead
  EXPECT_EQ(answers[2].event_age_seconds, std::nullopt);
  EXPECT_EQ(answers[2].match.recompute_tokens, 100);
  const QueryEngine without_clock(index, status);
  EXPECT_EQ(without_clock.Answer(ByTokens(100), sources).value()[0].event_age_seconds,
            std::nullopt);
}

}  // namespace
}  // namespace kvcast::router
