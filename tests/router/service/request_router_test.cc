// RequestRouter chooses the worker with the lowest cost by the configured weights, books its load,
// and remembers the expected prefixes (SpeculativePrefixes).
// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/request_router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "router/service/json/json_fields.h"
#include "router/service/route/decision_json.h"
#include "tests/support/colliding_texts.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::CollidingTexts;
using kvcast::testing::Hashes;
using kvcast::testing::PlainTexts;
using kvcast::testing::StoreFull;
using kvcast::testing::ThreadNsOf;

constexpr int64_t kPrompt = 1000;

// A token of a prompt takes 1 ms, and nothing else takes time. The delay of later requests has
// weight 0.
RoutingConfig Plain() {
  RoutingConfig config;
  config.forecast.start = {{0, 0.001, 0, 0, 0}};
  config.weights.later = 0;
  return config;
}

// The names of Hashes(first, count).
SharedPrefixes Prefixes(uint64_t first, size_t count) {
  std::vector<PrefixName> names(count);
  std::iota(names.begin(), names.end(), PrefixNameOf(Hashes(first, 1)[0]));
  return std::make_shared<const std::vector<PrefixName>>(std::move(names));
}

QueryAnswer AnswerOf(uint32_t id, int64_t reusable, int64_t with_cpu = 0,
                     SourceState state = SourceState::kSynced) {
  QueryAnswer answer;
  answer.name = "w" + std::to_string(id);
  answer.match.worker = WorkerId(id);
  answer.match.gpu_tokens = reusable;
  answer.match.with_cpu_tokens = std::max(with_cpu, reusable);
  answer.match.hit = reusable > 0 ? HitKind::kPartial : HitKind::kMiss;
  answer.hash_block_size = 16;
  answer.state = state;
  answer.weight = state == SourceState::kSynced ? 1.0 : 0.5;
  answer.prefixes = Prefixes(1, 62);
  return answer;
}

Query QueryOf(const std::string& id = "") {
  Query query;
  query.prompt_tokens = kPrompt;
  query.request_id = id;
  return query;
}

Feedback FeedbackOf(Feedback::Event event, const std::string& id, int64_t reused = 0) {
  return {.event = event, .request_id = id, .reused_tokens = reused};
}

struct RequestRouterTest : ::testing::Test {
  static RouteDecision Decide(RequestRouter& router, std::vector<QueryAnswer> answers,
                              const Query& query = QueryOf(), double now_ms = 0) {
    auto decision = router.Decide(query, std::move(answers), now_ms);
    EXPECT_TRUE(decision.ok()) << decision.status().ToString();
    return std::move(decision).value();
  }
  static std::string Chosen(const RouteDecision& decision) {
    return decision.candidates[decision.chosen].answer.name;
  }

  RoutingConfig config = Plain();
  double drawn = 0;
  RequestRouter request_router{config, [this] { return drawn; }};
};

TEST_F(RequestRouterTest, TheCostFollowsTheWeights) {
  QueryAnswer answer = AnswerOf(1, 400, 600);
  answer.match.per_group_tokens = {900, 400};
  request_router.SetQueue(WorkerId(1), 7);
  const RouteDecision decision = Decide(request_router, {answer});
  // The worker computes 400 tokens. This time counts twice: as time to the first token, and as work
  // of the fleet. The worker loads 200 tokens at a tenth of the cost. One group holds 296 more
  // tokens in whole blocks. The probability of another prompt with these tokens is 0.5.
  EXPECT_NEAR(decision.candidates[0].cost, 0.4 + 0.4 + 0.1 * 0.2 - 0.5 * 0.296, 1e-9);
  config.weights.queued_request = 10;
  RequestRouter other(config, [] { return 0.0; });
  other.SetQueue(WorkerId(1), 7);
  EXPECT_NEAR(Decide(other, {answer}).candidates[0].cost, 0.8 + 0.02 - 0.148 + 70, 1e-9);
}

TEST_F(RequestRouterTest, EachTierCountsOnlyTokensBeyondThePreviousTier) {
  config.weights.load_token = 0.25;
  config.weights.load_storage_token = 0.5;
  const struct {
    int64_t gpu, cpu, storage;
    double compute_s, load_s;
  } rows[] = {
      {0, 0, 0, 1, 0},
      {400, 0, 0, 0.6, 0},
      {0, 400, 0, 0.6, 0.1},
      {0, 0, 400, 0.6, 0.2},
      {200, 400, 600, 0.4, 0.05 + 0.1},
      {600, 400, 200, 0.4, 0},
      {0, 5000, 5000, 0.001, 0.25},
      {0, 0, 5000, 0.001, 0.5},
  };
  for (const auto& [gpu, cpu, storage, compute_s, load_s] : rows) {
    QueryAnswer answer = AnswerOf(1, gpu);
    answer.match.with_cpu_tokens = cpu;
    answer.match.with_storage_tokens = storage;
    RequestRouter fresh(config, [] { return 0.0; });
    const Candidate parts = Decide(fresh, {answer}).candidates[0].parts;
    EXPECT_DOUBLE_EQ(parts.compute_s, compute_s) << gpu << " " << cpu << " " << storage;
    EXPECT_DOUBLE_EQ(parts.load_s, load_s) << gpu << " " << cpu << " " << storage;
  }
}

TEST_F(RequestRouterTest, LoadsBeginAfterTheExpectedTokens) {
  QueryAnswer answer = AnswerOf(0, 0);
  answer.prefixes = Prefixes(1, 30);
  Decide(request_router, {answer});
  answer.match.with_cpu_tokens = 600;
  const RouteCandidate candidate = Decide(request_router, {answer}, QueryOf(), 10).candidates[0];
  EXPECT_EQ(candidate.speculative_tokens, 480);
  EXPECT_DOUBLE_EQ(candidate.parts.load_s, 0.1 * 0.12);
  EXPECT_DOUBLE_EQ(candidate.parts.compute_s, 0.4);
}

TEST_F(RequestRouterTest, QueuedPrefillOutweighsASmallHit) {
  const std::vector<QueryAnswer> answers = {AnswerOf(0, 160), AnswerOf(1, 0)};
  Query booked = QueryOf("first");
  EXPECT_EQ(Chosen(Decide(request_router, answers, booked)), "w0");
  EXPECT_EQ(request_router.load(WorkerId(0)).active_prefill_tokens, 840);
  config.speculative.lifetime_ms = 0;
  RequestRouter plain(config, [] { return 0.0; });
  EXPECT_EQ(Chosen(Decide(plain, answers)), "w0");
  const RouteDecision second = Decide(plain, answers);
  EXPECT_EQ(Chosen(second), "w1");
  EXPECT_EQ(second.reason,
            "0 of 1000 tokens reusable; cost 2.000 s, the lowest; next is w0 with 2.520 s");
}

TEST_F(RequestRouterTest, ASecondRequestWithTheSamePromptGoesToTheSameWorker) {
  const std::vector<QueryAnswer> answers = {AnswerOf(0, 0), AnswerOf(1, 0), AnswerOf(2, 0)};
  EXPECT_EQ(Chosen(Decide(request_router, answers)), "w0");
  const RouteDecision second = Decide(request_router, answers, QueryOf(), 10);
  EXPECT_EQ(Chosen(second), "w0") << "on another worker the prefix would be computed twice";
  const RouteCandidate& w0 = second.candidates[0];
  EXPECT_EQ(w0.speculative_tokens, 62 * 16);
  // The first request needs 990 ms more. Then the second request computes 8 tokens.
  EXPECT_NEAR(w0.parts.queue_s, 0.99, 1e-9);
  EXPECT_NEAR(w0.cost, 0.99 + 0.008 + 0.008, 1e-9);
  EXPECT_EQ(request_router.load(WorkerId(0)).active_prefill_tokens, 1008);
  // Another prompt at the same time goes to w1.
  QueryAnswer other = AnswerOf(0, 0);
  other.prefixes = Prefixes(500, 62);
  EXPECT_EQ(Chosen(Decide(request_router, {other, AnswerOf(1, 0)}, QueryOf(), 20)), "w1");
}

TEST_F(RequestRouterTest, AWorkerThatHasComputedItsPromptsIsFreeAgain) {
  Decide(request_router, {AnswerOf(0, 0)}, QueryOf("r"));
  QueryAnswer other = AnswerOf(0, 0);
  other.prefixes = Prefixes(500, 62);
  Query unbooked = QueryOf();
  unbooked.book = false;
  const auto queue_s = [&](double now_ms) {
    return Decide(request_router, {other}, unbooked, now_ms).candidates[0].parts.queue_s;
  };
  EXPECT_NEAR(queue_s(400.5), 0.5995, 1e-9) << "fractions of a millisecond count";
  EXPECT_NEAR(queue_s(1200), 0, 1e-9) << "the worker is predicted to be ready";
  EXPECT_TRUE(request_router.Take(FeedbackOf(Feedback::Event::kFirstToken, "r"), 400.5).ok());
  EXPECT_NEAR(queue_s(400.5), 0, 1e-9) << "the worker was ready earlier than predicted";
}

// w0 has a queue of 3 s and most of the prompt. w1 is idle and holds nothing.
struct TimeLimit : RequestRouterTest {
  TimeLimit() {
    QueryAnswer earlier = AnswerOf(0, 0);
    earlier.prefixes = Prefixes(500, 187);
    Query query = QueryOf();
    query.prompt_tokens = 3000;
    Decide(request_router, {earlier}, query);
  }
  RouteDecision Within(std::optional<double> limit_ms,
                       std::vector<QueryAnswer> answers = {AnswerOf(0, 900), AnswerOf(1, 0)}) {
    Query query = QueryOf();
    query.book = false;
    query.ttft_slo_ms = limit_ms;
    query.temperature = 100;  // has no effect with a limit
    if (!limit_ms) query.temperature = 0;
    return Decide(request_router, std::move(answers), query, 1);
  }
};

TEST_F(TimeLimit, WithoutALimitTheLowestCostIsChosen) {
  const RouteDecision decision = Within(std::nullopt);
  EXPECT_EQ(Chosen(decision), "w1");
  EXPECT_EQ(decision.keeps_slo, std::nullopt);
  EXPECT_FALSE(Json::parse(RenderDecision(decision)).contains("keeps_slo"));
}

TEST_F(TimeLimit, ChoosesTheLowestFleetCostAmongWorkersThatKeepTheLimit) {
  drawn = 0.999999;
  const RouteDecision decision = Within(5000);
  EXPECT_EQ(Chosen(decision), "w0") << "w0 has to compute 100 tokens, and w1 has to compute 1000";
  EXPECT_EQ(decision.keeps_slo, true);
  EXPECT_EQ(decision.reason,
            "900 of 1000 tokens reusable; cost 3.199 s; the lowest is w1 with 2.000 s; "
            "keeps the limit");
  EXPECT_EQ(Chosen(Within(3000)), "w1") << "w0 needs 3.099 s";
  EXPECT_EQ(Within(3000).keeps_slo, true);
  EXPECT_EQ(Json::parse(RenderDecision(Within(3000))).at("keeps_slo"), true);
}

TEST_F(TimeLimit, IfNoWorkerKeepsTheLimitTheShortestTimeIsChosen) {
  const RouteDecision decision = Within(999);
  EXPECT_EQ(Chosen(decision), "w1");
  EXPECT_EQ(decision.keeps_slo, false);
  EXPECT_TRUE(decision.reason.ends_with("; no worker is predicted to keep the limit"));
  EXPECT_EQ(Json::parse(RenderDecision(decision)).at("keeps_slo"), false);
  EXPECT_EQ(Within(1001).keeps_slo, true) << "w1 needs 1000 ms";
}

TEST_F(TimeLimit, AConnectingWorkerIsNotChosen) {
  const QueryAnswer connecting = AnswerOf(2, 999, 0, SourceState::kConnecting);
  const RouteDecision decision = Within(900, {AnswerOf(0, 900), AnswerOf(1, 0), connecting});
  EXPECT_EQ(Chosen(decision), "w1");
  EXPECT_EQ(decision.keeps_slo, false);
}

TEST_F(RequestRouterTest, ThePredictedTimeOfEachWorkerIsShown) {
  config.weights.queued_request = 0.5;
  RequestRouter queued(config, [] { return 0.0; });
  queued.SetQueue(WorkerId(0), 3);
  const Json shown =
      Json::parse(RenderDecision(Decide(queued, {AnswerOf(0, 400, 600), AnswerOf(1, 0)})));
  // 1500 ms in the queue, 20 ms of loads, 400 ms of computation.
  const Json& candidates = shown.at("candidates");
  EXPECT_EQ(candidates.at(0).at("name"), "w1");
  EXPECT_NEAR(candidates.at(0).at("predicted_ttft_ms").get<double>(), 1000, 1e-6);
  EXPECT_NEAR(candidates.at(1).at("predicted_ttft_ms").get<double>(), 1920, 1e-6);
}

TEST_F(RequestRouterTest, FirstTokensAreComparedWithTheirPrediction) {
  Decide(request_router, {AnswerOf(0, 0)}, QueryOf("late"), 0);
  EXPECT_TRUE(request_router.Take(FeedbackOf(Feedback::Event::kFirstToken, "late"), 1500).ok());
  EXPECT_TRUE(request_router.Take(FeedbackOf(Feedback::Event::kFirstToken, "late"), 9000).ok());
  EXPECT_TRUE(request_router.Take(FeedbackOf(Feedback::Event::kFinished, "late"), 9000).ok());
  Decide(request_router, {AnswerOf(0, 0)}, QueryOf("early"), 10000);
  EXPECT_TRUE(request_router.Take(FeedbackOf(Feedback::Event::kFirstToken, "early"), 10250).ok());
  Decide(request_router, {AnswerOf(0, 0)}, QueryOf("silent"), 20000);
  EXPECT_TRUE(request_router.Take(FeedbackOf(Feedback::Event::kFinished, "silent"), 20500).ok());
  const RoutingCounters counters = request_router.counters();
  EXPECT_EQ(counters.first_tokens, 2u);
  EXPECT_NEAR(counters.predicted_first_token_s, 1 + 1, 1e-9);
  EXPECT_NEAR(counters.first_token_s, 1.5 + 0.25, 1e-9);
  EXPECT_NEAR(counters.first_token_error_s, 0.5 + 0.75, 1e-9);
}

TEST_F(RequestRouterTest, AHintGivesTheLengthOfThePrefixThatAWorkerHolds) {
  QueryAnswer answer = AnswerOf(0, 0);
  answer.match.per_group_tokens = {500, 0};
  const RouteDecision decision = Decide(request_router, {answer, AnswerOf(1, 0)});
  EXPECT_EQ(Chosen(decision), "w0");
  EXPECT_EQ(decision.keep_prefix_tokens, 496) << "whole blocks";
  EXPECT_EQ(Json::parse(RenderDecision(decision)).at("hints").at("keep_prefix_tokens"), 496);
  EXPECT_EQ(Json::parse(RenderDecision(Decide(request_router, {AnswerOf(3, 0)}))).at("hints"),
            Json({{"keep_prefix_tokens", 0}, {"will_not_return_after", nullptr}}));
}

// The second worker has another block size, and the forecast uses the prefixes of the first worker.
TEST_F(RequestRouterTest, AHintCountsThePrefixesOfOneBlockSize) {
  QueryAnswer larger = AnswerOf(1, 0);
  larger.hash_block_size = 64;
  larger.prefixes = Prefixes(1000, 15);
  larger.match.per_group_tokens = {500, 0};
  const RouteDecision decision = Decide(request_router, {AnswerOf(0, 0), larger});
  EXPECT_EQ(decision.keep_prefix_tokens, 496);
}

// The first worker may be new, or its hash scheme may not be known.
TEST_F(RequestRouterTest, AWorkerWithoutNamesDoesNotPreventAHint) {
  QueryAnswer unnamed = AnswerOf(0, 0);
  unnamed.hash_block_size = 0;
  QueryAnswer answer = AnswerOf(1, 0);
  answer.match.per_group_tokens = {500, 0};
  for (const SharedPrefixes& none : {SharedPrefixes(), Prefixes(1, 0)}) {
    unnamed.prefixes = none;
    RequestRouter other(config, [] { return 0.0; });
    EXPECT_EQ(Decide(other, {unnamed, answer}).keep_prefix_tokens, 496);
  }
}

TEST_F(RequestRouterTest, AHintGivesThePositionAfterWhichNoPromptReusesTokens) {
  RouteDecision decision;
  for (uint64_t i = 0; i < 40; ++i) {
    QueryAnswer answer = AnswerOf(0, 0);
    answer.match.per_group_tokens = {496, 0};
    // The first 31 blocks of all prompts are the same, and the other blocks differ.
    std::vector<PrefixName> names = *Prefixes(1, 62);
    for (size_t block = 31; block < 62; ++block) names[block] += 1000 * (i + 1);
    answer.prefixes = std::make_shared<const std::vector<PrefixName>>(std::move(names));
    decision = Decide(request_router, {answer}, QueryOf(), 10000.0 * static_cast<double>(i));
  }
  EXPECT_EQ(decision.will_not_return_after, 496);
  EXPECT_EQ(Json::parse(RenderDecision(decision)).at("hints").at("will_not_return_after"), 496);
}

TEST_F(RequestRouterTest, EventsResetsAndTheLifetimeRemoveExpectedPrefixes) {
  const std::vector<QueryAnswer> answers = {AnswerOf(0, 0)};
  const auto expected = [&](int64_t now_ms) {
    Query query = QueryOf();
    query.book = false;
    return Decide(request_router, answers, query, now_ms).candidates[0].speculative_tokens;
  };
  Decide(request_router, answers);
  EXPECT_EQ(expected(1), 992);
  request_router.OnBatch(WorkerId(0), Batch(StoreFull(Hashes(1, 62), 0)));
  EXPECT_EQ(expected(2), 0) << "the index holds these blocks";
  Decide(request_router, answers, QueryOf(), 3);
  request_router.OnReset(WorkerId(0));
  EXPECT_EQ(expected(4), 0);
  Decide(request_router, answers, QueryOf(), 5);
  EXPECT_EQ(expected(2004), 992);
  EXPECT_EQ(expected(2005), 0);
}

TEST_F(RequestRouterTest, OnlyStoresAndClearsOfTheGpuEndExpectedPrefixes) {
  const std::vector<QueryAnswer> answers = {AnswerOf(0, 0)};
  const auto expected = [&] { return request_router.counters().speculative_hashes; };
  const auto decide = [&] { Decide(request_router, answers); };
  decide();
  ASSERT_EQ(expected(), 62u);
  BlockStored on_cpu = StoreFull(Hashes(1, 62), 0);
  on_cpu.medium = kMediumCpu;
  request_router.OnBatch(WorkerId(0), Batch(on_cpu, AllBlocksCleared{.medium = kMediumCpu}));
  request_router.OnBatch(WorkerId(1), Batch(StoreFull(Hashes(1, 62), 0), AllBlocksCleared{}));
  EXPECT_EQ(expected(), 62u);
  request_router.OnBatch(WorkerId(0), Batch(AllBlocksCleared{}));
  EXPECT_EQ(expected(), 0u);
  decide();
  // OnBatch handles the hashes of a batch in parts of 1024.
  request_router.OnBatch(WorkerId(0),
                         Batch(StoreFull(Hashes(5000, 1500), 0), StoreFull(Hashes(1, 10), 0),
                               StoreFull(Hashes(9000, 3000), 0)));
  EXPECT_EQ(expected(), 52u);
}

TEST_F(RequestRouterTest, ExpectedHashesOfOnePromptAreBounded) {
  QueryAnswer answer = AnswerOf(0, 0);
  answer.prefixes = Prefixes(1, 10000);
  Query query;
  query.prompt_tokens = 160001;
  Decide(request_router, {answer}, query);
  EXPECT_LE(request_router.counters().speculative_hashes, 64u);
  query.book = false;
  EXPECT_EQ(Decide(request_router, {answer}, query).candidates[0].speculative_tokens, 160000);
}

TEST_F(RequestRouterTest, BookingsFollowTheFeedback) {
  Decide(request_router, {AnswerOf(0, 160)}, QueryOf("r"));
  EXPECT_TRUE(request_router.Admit("r", 100).ok());
  EXPECT_TRUE(request_router.Admit("r", 100).ok()) << "a repeated report is accepted";
  EXPECT_TRUE(request_router.Take(FeedbackOf(Feedback::Event::kFirstToken, "r"), 0).ok());
  EXPECT_EQ(request_router.load(WorkerId(0)).active_prefill_tokens, 0);
  EXPECT_EQ(request_router.load(WorkerId(0)).decode_blocks, 63);
  EXPECT_TRUE(request_router.Take(FeedbackOf(Feedback::Event::kFinished, "r"), 0).ok());
  EXPECT_EQ(request_router.load(WorkerId(0)).decode_blocks, 0);
  EXPECT_EQ(request_router.Take(FeedbackOf(Feedback::Event::kFinished, "r"), 0).code(),
            StatusCode::kNotFound);
  const RoutingCounters counters = request_router.counters();
  EXPECT_EQ(counters.compared, 1u);
  EXPECT_EQ(counters.equal, 0u);
  EXPECT_EQ(counters.over_tokens, 60u);
  EXPECT_EQ(counters.under_tokens, 0u);
}

// `comparable` is true for the first admission if the answer was exact, or if reports of the engine
// contradict it. `next_seq` is that of the answer.
TEST_F(RequestRouterTest, AnAdmissionHasComparableAndTheNextSeqOfTheAnswer) {
  QueryAnswer exact = AnswerOf(0, 480);
  exact.exact = true;
  exact.next_seq = 7;
  Decide(request_router, {exact}, QueryOf("exact"));
  const auto admission = request_router.Admit("exact", 464);
  ASSERT_TRUE(admission.ok());
  EXPECT_TRUE(admission->comparable);
  EXPECT_EQ(admission->next_seq, 7u);
  EXPECT_FALSE(request_router.Admit("exact", 464)->comparable)
      << "only the first admission is comparable";
  QueryAnswer guess = exact;
  guess.exact = false;
  Decide(request_router, {guess}, QueryOf("guess"));
  EXPECT_FALSE(request_router.Admit("guess", 464)->comparable);
  guess.reuse_contradicts = true;
  Decide(request_router, {guess}, QueryOf("contradicted"));
  EXPECT_TRUE(request_router.Admit("contradicted", 464)->comparable);
}

TEST_F(RequestRouterTest, BookingsExpireByNumberAndAge) {
  config.bookings_max = 2;
  config.booking_lifetime_ms = 100;
  RequestRouter small(config, [] { return 0.0; });
  for (const char* id : {"a", "b", "c", "d"}) Decide(small, {AnswerOf(0, 0)}, QueryOf(id), 0);
  EXPECT_LE(small.counters().bookings, 3u);
  Query query = QueryOf();
  query.book = false;
  Decide(small, {AnswerOf(0, 0)}, query, 100);
  EXPECT_EQ(small.counters().bookings, 0u);
  EXPECT_EQ(small.load(WorkerId(0)).active_prefill_tokens, 0);
  EXPECT_EQ(small.counters().expired_bookings, 4u);
}

TEST_F(RequestRouterTest, AnExpiredBookingTakesNoFeedback) {
  config.booking_lifetime_ms = 100;
  RequestRouter router(config, [] { return 0.0; });
  Decide(router, {AnswerOf(0, 0)}, QueryOf("a"), 0);
  EXPECT_EQ(router.Take(FeedbackOf(Feedback::Event::kFirstToken, "a"), 101).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(router.counters().first_tokens, 0u);
  EXPECT_EQ(router.counters().bookings, 0u);
  EXPECT_EQ(router.counters().expired_bookings, 1u);
}

TEST_F(RequestRouterTest, FinishedRequestsDoNotEndOtherBookings) {
  config.bookings_max = 2;
  RequestRouter small(config, [] { return 0.0; });
  Decide(small, {AnswerOf(0, 0)}, QueryOf("long"), 0);
  for (int i = 0; i < 100; ++i) {
    const std::string id = "short" + std::to_string(i);
    Decide(small, {AnswerOf(0, 0)}, QueryOf(id), 0);
    EXPECT_TRUE(small.Take(FeedbackOf(Feedback::Event::kFinished, id), 0).ok());
  }
  EXPECT_EQ(small.counters().bookings, 1u);
  EXPECT_EQ(small.counters().expired_bookings, 0u);
  EXPECT_TRUE(small.Take(FeedbackOf(Feedback::Event::kFinished, "long"), 0).ok());
}

TEST_F(RequestRouterTest, TheSameRequestTwiceIsBookedOnce) {
  Decide(request_router, {AnswerOf(0, 0)}, QueryOf("r"), 0);
  Decide(request_router, {AnswerOf(1, 0)}, QueryOf("r"), 50);
  EXPECT_EQ(request_router.load(WorkerId(0)).active_prefill_tokens, 0);
  EXPECT_EQ(request_router.load(WorkerId(1)).active_prefill_tokens, kPrompt);
  EXPECT_EQ(request_router.counters().bookings, 1u);
}

TEST_F(RequestRouterTest, AWorkerThatLeftIsForgotten) {
  Decide(request_router, {AnswerOf(0, 0)}, QueryOf("r"));
  request_router.OnRemoved(WorkerId(0));
  EXPECT_EQ(request_router.counters().bookings, 0u);
  EXPECT_EQ(request_router.load(WorkerId(0)).active_prefill_tokens, 0);
  EXPECT_FALSE(request_router.Take(FeedbackOf(Feedback::Event::kFinished, "r"), 0).ok());
}

TEST_F(RequestRouterTest, ConnectingWorkersAreTheLastChoice) {
  const RouteDecision decision =
      Decide(request_router, {AnswerOf(0, 900, 0, SourceState::kConnecting), AnswerOf(1, 0)});
  EXPECT_EQ(Chosen(decision), "w1");
  EXPECT_FALSE(decision.candidates[0].eligible);
  EXPECT_EQ(decision.candidates[0].reason, "connecting");
  EXPECT_EQ(Chosen(Decide(request_router, {AnswerOf(0, 900, 0, SourceState::kConnecting)})), "w0");
}

TEST_F(RequestRouterTest, HitsOfASuspectSourceCountByItsWeight) {
  EXPECT_EQ(Chosen(Decide(request_router,
                          {AnswerOf(0, 900, 0, SourceState::kSuspect), AnswerOf(1, 480)})),
            "w1");
}

TEST_F(RequestRouterTest, TemperatureDrawsByCost) {
  Query query = QueryOf();
  query.book = false;
  query.temperature = 0.5;
  const std::vector<QueryAnswer> answers = {AnswerOf(0, 1000), AnswerOf(1, 500)};
  // The costs are 0.002 s and 1 s, and the prompt takes 1 s.
  const double border = 1 / (1 + std::exp(-0.998 / 0.5));
  drawn = border - 1e-6;
  EXPECT_EQ(Chosen(Decide(request_router, answers, query)), "w0");
  drawn = border + 1e-6;
  EXPECT_EQ(Chosen(Decide(request_router, answers, query)), "w1");
  drawn = 0.999999;
  const std::vector<QueryAnswer> one_connects = {AnswerOf(0, 0),
                                                 AnswerOf(1, 999, 0, SourceState::kConnecting)};
  EXPECT_EQ(Chosen(Decide(request_router, one_connects, query)), "w0");
}

TEST_F(RequestRouterTest, RoundRobinTakesWorkersInTurnAndBooksThem) {
  config.policy = RoutingPolicy::kRoundRobin;
  RequestRouter in_turn(config, [] { return 0.0; });
  const std::vector<QueryAnswer> answers = {AnswerOf(2, 0), AnswerOf(0, 900),
                                            AnswerOf(3, 900, 0, SourceState::kConnecting),
                                            AnswerOf(1, 0)};
  for (const char* name : {"w0", "w1", "w2", "w0"}) {
    const RouteDecision decision = Decide(in_turn, answers);
    EXPECT_EQ(Chosen(decision), name);
    EXPECT_EQ(decision.reason, "round robin");
  }
  EXPECT_EQ(in_turn.counters().bookings, 4u);
}

TEST_F(RequestRouterTest, WithoutWorkersADecisionIsUnavailable) {
  EXPECT_EQ(request_router.Decide(QueryOf(), {}, 0).status().code(), StatusCode::kUnavailable);
}

TEST_F(RequestRouterTest, IdsCannotBeGuessed) {
  RequestRouter router(config, [this] { return drawn; });
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    const std::string id = Decide(router, {AnswerOf(1, 0)}).request_id;
    EXPECT_EQ(id.size(), std::string("kvcast-").size() + 32) << id;
    ids.insert(id.substr(0, 23));  // the first 64 random bits
  }
  EXPECT_EQ(ids.size(), 100u);
}

// If the length of a prompt had no bound, three routes of 2^62 tokens would make the signed sum
// negative. Then every later request would go to this worker.
TEST_F(RequestRouterTest, NoLengthOfAPromptOverflowsTheLoad) {
  RequestRouter router(config, [this] { return drawn; });
  Query query = QueryOf();
  query.prompt_tokens = int64_t{1} << 62;
  for (int64_t routed = 1; routed <= 3; ++routed) {
    Decide(router, {AnswerOf(1, 0)}, query);
    EXPECT_GE(router.load(WorkerId(1)).active_prefill_tokens,
              routed * (kMaxPromptTokens - kPrompt));
    EXPECT_LE(router.load(WorkerId(1)).active_prefill_tokens, routed * kMaxPromptTokens);
  }
  EXPECT_EQ(Chosen(Decide(router, {AnswerOf(1, 0), AnswerOf(2, 0)})), "w2");
}

// If the hash had a fixed seed, a route after 16,000 routes with colliding ids would compare 16,000
// ids.
TEST_F(RequestRouterTest, IdsThatCollideUnderAFixedSeedCostNoMore) {
  const std::vector<std::string> colliding = CollidingTexts(16000);
  ASSERT_EQ(std::hash<std::string>()(colliding[0]), std::hash<std::string>()(colliding[1]));
  const auto route_ns = [this](const std::vector<std::string>& ids) {
    RequestRouter router(config, [this] { return drawn; });
    return ThreadNsOf([&] {
      for (const std::string& id : ids) Decide(router, {AnswerOf(1, 0)}, QueryOf(id));
    });
  };
  const int64_t plain_ns = route_ns(PlainTexts(colliding.size()));
  EXPECT_LT(route_ns(colliding), 4 * plain_ns) << plain_ns << " ns for other ids";
}

TEST(ParseFeedback, ErrorsNameTheMember) {
  const std::pair<const char*, const char*> wrong[] = {
      {"{", "body: not JSON"},
      {"{}", "event: must be admitted, first_token, finished or load"},
      {R"({"event": "lost", "request_id": "r"})",
       "event: must be admitted, first_token, finished or load"},
      {R"({"event": "finished"})",
       "event load requires worker; all other events require request_id"},
      {R"({"event": "load", "request_id": "r"})",
       "event load requires worker; all other events require request_id"},
      {R"({"event": "load", "worker": "w"})",
       "queued_requests: required with event load, and allowed only there"},
      {R"({"event": "admitted", "request_id": "r"})",
       "reused_tokens: required with event admitted, and allowed only there"},
      {R"({"event": "admitted", "request_id": "r", "reused_tokens": -1})",
       "reused_tokens: must be a non-negative integer"},
      {R"({"event": "finished", "request_id": "r", "next_seq": 1})",
       "next_seq: allowed only with event admitted"},
      {R"({"event": "admitted", "request_id": "r", "reused_tokens": 1, "next_seq": -1})",
       "next_seq: must be a non-negative integer"},
      {R"({"event": "finished", "request_id": "r", "x": 1})", "unknown member: x"},
      {R"({"worker": "w", "promised_tokens": 1, "cached_tokens": 0})",
       "unknown member: cached_tokens"},
      {R"({"event": "admitted", "request_id": "r", "reused_tokens": 2147483649})",
       "reused_tokens: must be at most 2147483648"},
      {R"({"event": "load", "worker": "w", "queued_requests": 1048577})",
       "queued_requests: must be at most 1048576"}};
  for (const auto& [body, message] : wrong) {
    EXPECT_EQ(ParseFeedback(body).status().message(), message) << body;
  }
}

}  // namespace
}  // namespace kvcast::router
