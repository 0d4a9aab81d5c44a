// In the simulated engine every request ends, all blocks are freed, and admissions report the
// published sequence number.
// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/sim_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "apps/engine/engine_setup.h"
#include "apps/support/trace.h"
#include "kvcast/stream/publisher.h"

namespace kvcast::tools {
namespace {

struct Recorder {
  std::vector<Admission> admissions;
  std::vector<int64_t> finished;
  std::vector<int64_t> refused;
  uint64_t batches = 0;

  SimHooks hooks() {
    return {.publish = [this](std::vector<Event>) { return Seq(++batches); },
            .admitted = [this](const Admission& admission) { admissions.push_back(admission); },
            .first_token = [](int64_t) {},
            .finished = [this](int64_t number) { finished.push_back(number); },
            .refused = [this](int64_t number) { refused.push_back(number); }};
  }
};

std::unique_ptr<CacheManager> Cache(const std::string& model, int64_t blocks) {
  CacheOptions options;
  options.model = model;
  options.blocks = blocks;
  auto cache = MakeCacheManager(options);
  EXPECT_TRUE(cache.ok()) << cache.status().ToString();
  return std::move(cache).value();
}

std::vector<TokenId> Prompt(int64_t length, TokenId first) {
  std::vector<TokenId> tokens(static_cast<size_t>(length));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

void RunUntilIdle(SimEngine& engine) {
  for (int step = 0; step < 100000 && !engine.idle(); ++step) engine.Step();
  ASSERT_TRUE(engine.idle());
}

TEST(SimEngine, FinishesEveryRequestAndFreesEveryBlock) {
  Recorder recorder;
  SimEngine engine({}, Cache("hybrid", 2000), 1000, recorder.hooks());
  const int64_t free_before = engine.cache().usage().free_blocks;
  for (int64_t i = 0; i < 20; ++i) engine.Add({i, Prompt(500, 100 * i), 10});
  RunUntilIdle(engine);
  EXPECT_EQ(recorder.finished.size(), 20u);
  EXPECT_EQ(engine.totals().admitted, 20);
  EXPECT_EQ(engine.cache().usage().free_blocks, free_before);
  EXPECT_TRUE(engine.cache().CheckInvariants().ok());
}

TEST(SimEngine, SecondRequestWithTheSamePromptReusesAllButTheLastBlock) {
  Recorder recorder;
  SimEngine engine({}, Cache("hybrid", 2000), 1000, recorder.hooks());
  engine.Add({0, Prompt(512, 0), 1});
  RunUntilIdle(engine);
  engine.Add({1, Prompt(512, 0), 1});
  RunUntilIdle(engine);
  ASSERT_EQ(recorder.admissions.size(), 2u);
  EXPECT_EQ(recorder.admissions[0].hit_tokens, 0);
  EXPECT_EQ(recorder.admissions[1].hit_tokens, 496);
}

TEST(SimEngine, BlocksThatNoRequestWillReuseAreEvictedFirst) {
  Recorder recorder;
  SimEngine engine({}, Cache("full", 41), 1000, recorder.hooks());
  engine.Add({0, Prompt(160, 0), 1});
  RunUntilIdle(engine);
  // The cache evicts the blocks of this request first, although these blocks were used last.
  engine.Add({.number = 1, .prompt = Prompt(160, 1000), .will_not_return_after = 0});
  RunUntilIdle(engine);
  engine.Add({2, Prompt(400, 5000), 1});  // evicts some blocks
  RunUntilIdle(engine);
  engine.Add({3, Prompt(160, 0), 1});
  engine.Add({4, Prompt(160, 1000), 1});
  RunUntilIdle(engine);
  ASSERT_EQ(recorder.admissions.size(), 5u);
  EXPECT_EQ(recorder.admissions[3].hit_tokens, 144);
  EXPECT_LT(recorder.admissions[4].hit_tokens, 144);
}

TEST(SimEngine, AdmissionCountsOnlyBatchesPublishedBeforeItsLookup) {
  Recorder recorder;
  SimEngine engine({}, Cache("full", 2000), 1000, recorder.hooks());
  engine.Add({0, Prompt(160, 0), 1});
  engine.Add({1, Prompt(160, 0), 1});
  engine.Step();
  ASSERT_EQ(recorder.admissions.size(), 2u);
  EXPECT_EQ(recorder.admissions[0].published, Seq(0));
  // The stores of the first request were sent before the lookup of the second request, so the
  // second request hits them.
  EXPECT_EQ(recorder.admissions[1].published, Seq(1));
  EXPECT_EQ(recorder.admissions[1].hit_tokens, 144);
}

TEST(SimEngine, PreemptedRequestsContinueWithTheirSampledTokens) {
  Recorder recorder;
  SimEngine engine({}, Cache("full", 41), 1000, recorder.hooks());
  for (int64_t i = 0; i < 4; ++i) engine.Add({i, Prompt(140, 1000 * i), 200});
  RunUntilIdle(engine);
  EXPECT_EQ(recorder.finished.size(), 4u);
  EXPECT_GT(engine.totals().preempted, 0);
  const auto came_back =
      std::count_if(recorder.admissions.begin(), recorder.admissions.end(),
                    [](const Admission& admission) { return admission.sampled_tokens > 0; });
  EXPECT_GT(came_back, 0);
}

TEST(SimEngine, ARequestThatCanNeverFitIsRefusedAndOtherRequestsContinue) {
  Recorder recorder;
  SimEngine engine({}, Cache("full", 20), 1000, recorder.hooks());
  engine.Add({0, Prompt(1000, 0), 1});
  engine.Add({1, Prompt(100, 0), 1});
  RunUntilIdle(engine);
  EXPECT_THAT(recorder.refused, ::testing::ElementsAre(0));
  EXPECT_THAT(recorder.finished, ::testing::ElementsAre(1));
}

TEST(SimEngine, LongPromptIsPrefilledInChunks) {
  Recorder recorder;
  SimEngineConfig config;
  config.max_batched_tokens = 256;
  SimEngine engine(config, Cache("hybrid", 2000), 1000, recorder.hooks());
  engine.Add({0, Prompt(1000, 0), 1});
  RunUntilIdle(engine);
  EXPECT_EQ(engine.totals().steps, 4);
  EXPECT_EQ(recorder.finished.size(), 1u);
}

// Accepted draft tokens save steps. The engine computes the tokens of rejected drafts again. Drafts
// do not change the cached blocks of a request.
TEST(SimEngine, DraftsSaveStepsAndChangeNoHit) {
  std::vector<int64_t> steps;
  for (const int64_t drafts : {0, 3}) {
    Recorder recorder;
    SimEngineConfig config;
    config.draft_tokens = drafts;
    SimEngine engine(config, Cache("hybrid", 2000), 1000, recorder.hooks());
    const int64_t free_before = engine.cache().usage().free_blocks;
    engine.Add({0, Prompt(500, 0), 100});
    RunUntilIdle(engine);
    steps.push_back(engine.totals().steps);
    // Each step after the prompt's step computes one token and the drafts.
    EXPECT_EQ(engine.totals().computed_tokens, 500 + (1 + drafts) * (steps.back() - 1));
    EXPECT_EQ(engine.totals().drafted > 0, drafts > 0);
    EXPECT_LT(engine.totals().drafts_accepted, engine.totals().drafted + (drafts == 0));
    // The engine computes 500 tokens of the prompt and 99 of the answer: 37 blocks of 16.
    std::vector<TokenId> again = Prompt(500, 0);
    for (int64_t k = 0; k < 100; ++k) again.push_back(OutputToken(0, k, 1000));
    engine.Add({1, again, 1});
    RunUntilIdle(engine);
    ASSERT_EQ(recorder.admissions.size(), 2u);
    EXPECT_EQ(recorder.admissions[1].hit_tokens, 592);
    EXPECT_EQ(engine.cache().usage().free_blocks, free_before);
    EXPECT_TRUE(engine.cache().CheckInvariants().ok());
  }
  EXPECT_EQ(steps[0], 100);
  EXPECT_LT(steps[1], 70);
}

// A Mamba group keeps the state at the end of a prefill chunk. If chunks ended at any token, no
// request would hit.
TEST(SimEngine, ChunksEndWhereAStateIsKept) {
  CacheConfig config;
  config.groups = {{.kind = SpecKind::kFullAttention, .block_size = 64},
                   {.kind = SpecKind::kMamba, .block_size = 64, .mamba_mode = MambaMode::kAlign}};
  config.num_blocks = 200;
  auto hasher = MakeHasher("sha256", "");
  ASSERT_TRUE(hasher.ok());
  auto cache = CacheManager::Create(config, std::move(hasher).value());
  ASSERT_TRUE(cache.ok()) << cache.status().ToString();
  Recorder recorder;
  SimEngineConfig sim;
  sim.max_batched_tokens = 300;
  SimEngine engine(sim, std::move(cache).value(), 1000, recorder.hooks());
  engine.Add({0, Prompt(500, 0), 1});
  RunUntilIdle(engine);
  EXPECT_EQ(engine.totals().steps, 3);  // 256, 448, 500
  engine.Add({1, Prompt(500, 0), 1});
  RunUntilIdle(engine);
  ASSERT_EQ(recorder.admissions.size(), 2u);
  EXPECT_EQ(recorder.admissions[1].hit_tokens, 448);
}

// One option names the release. The release sets the rules of the cache, the form of the hashes and
// the layout of the events.
TEST(EngineRulesOption, NamesRulesHashesAndLayout) {
  CacheOptions options;
  options.draft_tokens = 2;
  const auto newest = MakeCacheConfig(options);
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->rules, EngineRules::kV033);
  EXPECT_EQ(newest->chain_form.lookahead, 1);
  EXPECT_EQ(newest->chain_form.extra_keys, ExtraKeyScheme::kTagged);
  EXPECT_FALSE(newest->groups[0].eagle);
  EXPECT_EQ(DialectOf(newest->rules), Dialect::kVllm12);
  // The defaults of the library and of the command line belong to the same release.
  EXPECT_EQ(newest->rules, CacheConfig().rules);
  EXPECT_EQ(DialectOf(CacheConfig().rules), kDefaultDialect);
  EXPECT_EQ(PublisherConfig().dialect, kDefaultDialect);

  // With host memory, hashes have no lookahead, and the groups drop the last block of a hit
  // instead.
  options.cpu_blocks = 100;
  const auto connected = MakeCacheConfig(options);
  ASSERT_TRUE(connected.ok());
  EXPECT_EQ(connected->chain_form.lookahead, 0);
  EXPECT_TRUE(connected->groups[0].eagle);
  options.cpu_blocks = 0;

  options.rules = "2026-08";
  const auto older = MakeCacheConfig(options);
  ASSERT_TRUE(older.ok());
  EXPECT_EQ(older->chain_form, ChainForm());
  EXPECT_TRUE(older->groups[0].eagle);
  EXPECT_EQ(DialectOf(older->rules), Dialect::kVllm10);

  options.rules = "0.33";
  EXPECT_EQ(MakeCacheConfig(options).status().message(),
            "--engine-rules: expected \"v0.21\", \"2026-05\", \"2026-08\", \"v0.32\", \"v0.33\", "
            "got '0.33'");
}

}  // namespace
}  // namespace kvcast::tools
