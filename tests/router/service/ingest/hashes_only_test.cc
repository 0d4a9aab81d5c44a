// An engine publishes hashes without token ids. After a challenge, queries by tokens have exact
// answers, also for salted prompts.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kvcast/core/redact.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/engine/chain_prover.h"
#include "kvcast/router/scheme_prover.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/route/query_engine.h"
#include "tests/router/names/scheme_streams.h"
#include "tests/support/content_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::EngineScheme;
using kvcast::testing::HasherOf;
using kvcast::testing::Registered;
using kvcast::testing::SchemeTokens;

class HashesOnlyTest : public ::testing::Test {
 protected:
  HashesOnlyTest() {
    config.groups = {
        GroupSpec{.block_size = 16},
        GroupSpec{.kind = SpecKind::kSlidingWindow, .block_size = 16, .sliding_window = 40}};
    config.num_blocks = 100;
    config.hash_block_size = 16;
    config.chain_form = scheme.chain;
    cache = CacheManager::Create(config, HasherOf(scheme), {.hash_form = scheme.form}).value();
    prover = ChainProver::Create(config, HasherOf(scheme), {.hash_form = scheme.form}).value();
    WorkerRegistration registration;
    registration.worker = Registered(config.groups);
    sources.push_back(WorkerIngest::Create(WorkerId(0), registration, index).value());
  }

  // The engine computes a prompt, and publishes its events without content.
  void Compute(std::vector<TokenId> tokens, const HashInputs& inputs = {}) {
    CacheRequest request = RequestOf(std::move(tokens), inputs);
    cache->BeginStep();
    cache->AllocateSlots(request, {.new_tokens = request.prompt_tokens});
    cache->Free(request);
    EventBatch batch;
    batch.events = cache->TakeEvents();
    observer->Observe(&batch);
    Redact(batch);
    sources[0]->OnBatch(PayloadOf(batch));
  }
  void Challenge() {
    sources[0]->OnChallengeAnswer(PayloadOf(prover->Answer(sources[0]->BeginChallenge())));
  }
  // The answer comes from a publisher that knows only the engine's batches. Returns false if this
  // publisher has no answer.
  bool ChallengeObserver() {
    const EventBatch answer = observer->Answer(sources[0]->BeginChallenge());
    if (!answer.events.empty()) sources[0]->OnChallengeAnswer(PayloadOf(answer));
    return !answer.events.empty();
  }
  QueryAnswer Ask(const std::vector<TokenId>& tokens, const HashInputs& inputs = {}) const {
    const QueryEngine engine(index, [this](WorkerId) {
      return SourceStatus{.state = SourceState::kSynced,
                          .replacements = sources[0]->replacements()};
    });
    const Query query{.tokens = tokens, .inputs = inputs, .prompt_tokens = std::ssize(tokens)};
    return engine.Answer(query, sources).value().at(0);
  }
  int64_t Lookup(const std::vector<TokenId>& tokens, const HashInputs& inputs = {}) {
    CacheRequest request = RequestOf(tokens, inputs);
    return cache->GetComputedBlocks(request).tokens;
  }

  EngineScheme scheme{.seed = "42",
                      .form = EventHashForm::kBytes,
                      .chain = {.extra_keys = ExtraKeyScheme::kTagged}};
  CacheConfig config;
  std::unique_ptr<CacheManager> cache;
  std::unique_ptr<ChainProver> prover;
  std::unique_ptr<SchemeProver> observer = SchemeProver::Create({}).value();
  PrefixIndex index;
  SourceList sources;

 private:
  static std::vector<uint8_t> PayloadOf(const EventBatch& batch) {
    std::vector<uint8_t> payload;
    EXPECT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    return payload;
  }
  CacheRequest RequestOf(std::vector<TokenId> tokens, const HashInputs& inputs) {
    CacheRequest request;
    request.id = std::to_string(next_id_++);
    request.tokens = std::move(tokens);
    request.prompt_tokens = std::ssize(request.tokens);
    request.hash_inputs = inputs;
    return request;
  }

  int next_id_ = 0;
};

TEST_F(HashesOnlyTest, WithoutAChallengeNoAnswerIsExact) {
  Compute(SchemeTokens(160, 1));
  EXPECT_FALSE(Ask(SchemeTokens(160, 1)).exact);
}

TEST_F(HashesOnlyTest, AfterTheChallengeAnswersAreExact) {
  Challenge();
  HashInputs salted;
  salted.cache_salt = "tenant";
  Compute(SchemeTokens(160, 1));
  Compute(SchemeTokens(128, 1), salted);
  Compute(SchemeTokens(200, 5000));
  for (const int64_t first : {1, 5000, 9000}) {
    for (const int64_t count : {17, 64, 100, 129, 161, 260}) {
      for (const HashInputs& inputs : {HashInputs(), salted}) {
        const auto tokens = SchemeTokens(count, first);
        const QueryAnswer answer = Ask(tokens, inputs);
        EXPECT_TRUE(answer.exact) << answer.reason;
        EXPECT_EQ(answer.match.gpu_tokens, Lookup(tokens, inputs)) << first << " " << count;
      }
    }
  }
  EXPECT_EQ(Ask(SchemeTokens(161, 1)).match.gpu_tokens, 160);
}

TEST_F(HashesOnlyTest, APublisherThatKnowsOnlyTheBatchesProvesTheSchemeToo) {
  HashInputs salted;
  salted.cache_salt = "tenant";
  EXPECT_FALSE(ChallengeObserver());
  Compute(SchemeTokens(160, 1));
  EXPECT_FALSE(Ask(SchemeTokens(161, 1)).exact);
  ASSERT_TRUE(ChallengeObserver());
  EXPECT_TRUE(Ask(SchemeTokens(161, 1)).exact);
  EXPECT_EQ(Ask(SchemeTokens(161, 1)).match.gpu_tokens, 160);
  EXPECT_FALSE(Ask(SchemeTokens(161, 1), salted).exact);
  Compute(SchemeTokens(128, 1), salted);
  EXPECT_TRUE(sources[0]->WantsChallenge());
  ASSERT_TRUE(ChallengeObserver());
  const QueryAnswer answer = Ask(SchemeTokens(161, 1), salted);
  EXPECT_TRUE(answer.exact) << answer.reason;
  EXPECT_EQ(answer.match.gpu_tokens, 128);
}

// The adapter's path is part of the hash, and neither events nor challenges carry a path.
TEST_F(HashesOnlyTest, AnswersForAnAdapterAreNotExact) {
  Challenge();
  HashInputs adapter;
  adapter.lora_name = "adapter";
  EXPECT_FALSE(Ask(SchemeTokens(100, 1), adapter).exact);
}

TEST_F(HashesOnlyTest, ARestartOfTheEngineNeedsANewChallenge) {
  Challenge();
  EXPECT_FALSE(sources[0]->WantsChallenge());
  sources[0]->OnReset(ResetReason::kRestart);
  EXPECT_TRUE(sources[0]->WantsChallenge());
  Compute(SchemeTokens(160, 1));
  EXPECT_FALSE(Ask(SchemeTokens(160, 1)).exact);
}

TEST_F(HashesOnlyTest, ALossOfBatchesKeepsTheProof) {
  Challenge();
  sources[0]->OnReset(ResetReason::kLostBatches);
  EXPECT_FALSE(sources[0]->WantsChallenge());
  EXPECT_TRUE(Ask(SchemeTokens(160, 1)).exact);
}

}  // namespace
}  // namespace kvcast::router
