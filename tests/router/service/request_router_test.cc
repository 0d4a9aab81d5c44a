// RequestRouter chooses the cheapest worker by the configured weights, and books load and expected
// prefixes.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/request_router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::Hashes;
using kvcast::testing::StoreFull;

constexpr int64_t kPrompt = 1000;

// The names of Hashes(first, count).
SharedPrefixes Prefixes(uint64_t first, size_t count) {
  std::vector<PrefixName> names(count);
  std::iota(names.begin(), names.end(), PrefixNameOf(Hashes(first, 1)[0]));
  return std::make_shared<const std::vector<PrefixName>>(std::move(names));
}

QueryAnswer Worker(uint32_t id, int64_t reusable, int64_t with_cpu = 0,
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

Query Prompt(const std::string& id = "") {
  Query query;
  query.prompt_tokens = kPrompt;
  query.request_id = id;
  return query;
}

Feedback Said(Feedback::Event event, const std::string& id, int64_t reused = 0) {
  return {.event = event, .request_id = id, .reused_tokens = reused};
}

struct RequestRouterTest : ::testing::Test {
  static RouteDecision Decide(RequestRouter& at, std::vector<QueryAnswer> answers,
                              const Query& query = Prompt(), int64_t now_ms = 0) {
    auto decision = at.Decide(query, std::move(answers), now_ms);
    EXPECT_TRUE(decision.ok()) << decision.status().ToString();
    return std::move(decision).value();
  }
  static std::string Chosen(const RouteDecision& decision) {
    return decision.candidates[decision.chosen].answer.name;
  }

  RoutingConfig config;
  double drawn = 0;
  RequestRouter request_router{config, [this] { return drawn; }};
};

TEST_F(RequestRouterTest, CostsAreThoseOfTheTable) {
  QueryAnswer answer = Worker(1, 400, 600);
  answer.match.per_group_tokens = {900, 400};
  request_router.SetQueue(WorkerId(1), 7);
  const RouteDecision decision = Decide(request_router, {answer});
  // 400 tokens computed, 200 loaded at a tenth of the cost, 300 more held by one group.
  EXPECT_DOUBLE_EQ(decision.candidates[0].cost, 400 + 0.1 * 200 - 0.9 * 300);
  config.weights.queued_request = 10;
  RequestRouter other(config, [] { return 0.0; });
  other.SetQueue(WorkerId(1), 7);
  EXPECT_DOUBLE_EQ(Decide(other, {answer}).candidates[0].cost, 400 + 20 - 270 + 70);
}

TEST_F(RequestRouterTest, LoadOutweighsASmallHit) {
  const std::vector<QueryAnswer> answers = {Worker(0, 160), Worker(1, 0)};
  Query booked = Prompt("first");
  EXPECT_EQ(Chosen(Decide(request_router, answers, booked)), "w0");
  EXPECT_EQ(request_router.load(WorkerId(0)).active_prefill_tokens, 840);
  config.speculative.lifetime_ms = 0;
  RequestRouter plain(config, [] { return 0.0; });
  EXPECT_EQ(Chosen(Decide(plain, answers)), "w0");
  const RouteDecision second = Decide(plain, answers);
  EXPECT_EQ(Chosen(second), "w1");
  EXPECT_EQ(second.reason,
            "0 of 1000 tokens reusable; cost 1000, the lowest; next is w0 with 1680");
}

TEST_F(RequestRouterTest, SiblingsFollowTheFirstOfTheBurst) {
  const std::vector<QueryAnswer> answers = {Worker(0, 0), Worker(1, 0), Worker(2, 0)};
  EXPECT_EQ(Chosen(Decide(request_router, answers)), "w0");
  const RouteDecision second = Decide(request_router, answers, Prompt(), 10);
  EXPECT_EQ(Chosen(second), "w0") << "on another worker the prefix would be computed twice";
  const RouteCandidate& first = second.candidates[0];
  EXPECT_EQ(first.speculative_tokens, 62 * 16);
  // 8 tokens of this request, plus 1000 tokens that the worker still computes, minus half of the
  // 992 tokens that both requests need.
  EXPECT_DOUBLE_EQ(first.cost, 8 + 1000 - 0.5 * 992);
  EXPECT_EQ(request_router.load(WorkerId(0)).active_prefill_tokens, 1008);
  // Another prompt at the same time goes to the other worker.
  QueryAnswer other = Worker(0, 0);
  other.prefixes = Prefixes(500, 62);
  EXPECT_EQ(Chosen(Decide(request_router, {other, Worker(1, 0)}, Prompt(), 20)), "w1");
}

TEST_F(RequestRouterTest, ExpectedPrefixesEndWithEventsResetsAndTime) {
  const std::vector<QueryAnswer> answers = {Worker(0, 0)};
  const auto expected = [&](int64_t now_ms) {
    Query query = Prompt();
    query.book = false;
    return Decide(request_router, answers, query, now_ms).candidates[0].speculative_tokens;
  };
  Decide(request_router, answers);
  EXPECT_EQ(expected(1), 992);
  request_router.OnBatch(WorkerId(0), Batch(StoreFull(Hashes(1, 62), 0)));
  EXPECT_EQ(expected(2), 0) << "the index holds these blocks";
  Decide(request_router, answers, Prompt(), 3);
  request_router.OnReset(WorkerId(0));
  EXPECT_EQ(expected(4), 0);
  Decide(request_router, answers, Prompt(), 5);
  EXPECT_EQ(expected(2004), 992);
  EXPECT_EQ(expected(2005), 0);
}

TEST_F(RequestRouterTest, ExpectedHashesOfOnePromptAreBounded) {
  QueryAnswer answer = Worker(0, 0);
  answer.prefixes = Prefixes(1, 10000);
  Query query;
  query.prompt_tokens = 160001;
  Decide(request_router, {answer}, query);
  EXPECT_LE(request_router.counters().speculative_hashes, 64u);
  query.book = false;
  EXPECT_EQ(Decide(request_router, {answer}, query).candidates[0].speculative_tokens, 160000);
}

TEST_F(RequestRouterTest, BookingsFollowTheFeedback) {
  Decide(request_router, {Worker(0, 160)}, Prompt("r"));
  EXPECT_TRUE(request_router.Admit("r", 100).ok());
  EXPECT_TRUE(request_router.Admit("r", 100).ok()) << "a repeated report is accepted";
  EXPECT_TRUE(request_router.Take(Said(Feedback::Event::kFirstToken, "r")).ok());
  EXPECT_EQ(request_router.load(WorkerId(0)).active_prefill_tokens, 0);
  EXPECT_EQ(request_router.load(WorkerId(0)).decode_blocks, 63);
  EXPECT_TRUE(request_router.Take(Said(Feedback::Event::kFinished, "r")).ok());
  EXPECT_EQ(request_router.load(WorkerId(0)).decode_blocks, 0);
  EXPECT_EQ(request_router.Take(Said(Feedback::Event::kFinished, "r")).code(),
            StatusCode::kNotFound);
  const RoutingCounters counters = request_router.counters();
  EXPECT_EQ(counters.compared, 1u);
  EXPECT_EQ(counters.equal, 0u);
  EXPECT_EQ(counters.over_tokens, 60u);
  EXPECT_EQ(counters.under_tokens, 0u);
}

// An admission states whether the request's answer and its reuse are comparable, and at which
// sequence number the answer was given.
TEST_F(RequestRouterTest, AnAdmissionSaysWhetherTheAnswerWasExactAndWhen) {
  QueryAnswer exact = Worker(0, 480);
  exact.exact = true;
  exact.next_seq = 7;
  Decide(request_router, {exact}, Prompt("exact"));
  const auto admission = request_router.Admit("exact", 464);
  ASSERT_TRUE(admission.ok());
  EXPECT_TRUE(admission->comparable);
  EXPECT_EQ(admission->next_seq, 7u);
  EXPECT_FALSE(request_router.Admit("exact", 464)->comparable)
      << "only the first admission is comparable";
  QueryAnswer guess = exact;
  guess.exact = false;
  Decide(request_router, {guess}, Prompt("guess"));
  EXPECT_FALSE(request_router.Admit("guess", 464)->comparable);
  guess.reuse_contradicts = true;
  Decide(request_router, {guess}, Prompt("contradicted"));
  EXPECT_TRUE(request_router.Admit("contradicted", 464)->comparable);
}

TEST_F(RequestRouterTest, BookingsEndByThemselves) {
  config.bookings_max = 2;
  config.booking_lifetime_ms = 100;
  RequestRouter small(config, [] { return 0.0; });
  for (const char* id : {"a", "b", "c", "d"}) Decide(small, {Worker(0, 0)}, Prompt(id), 0);
  EXPECT_LE(small.counters().bookings, 3u);
  Query query = Prompt();
  query.book = false;
  Decide(small, {Worker(0, 0)}, query, 100);
  EXPECT_EQ(small.counters().bookings, 0u);
  EXPECT_EQ(small.load(WorkerId(0)).active_prefill_tokens, 0);
  EXPECT_EQ(small.counters().expired_bookings, 4u);
}

TEST_F(RequestRouterTest, FinishedRequestsDoNotEndOtherBookings) {
  config.bookings_max = 2;
  RequestRouter small(config, [] { return 0.0; });
  Decide(small, {Worker(0, 0)}, Prompt("long"), 0);
  for (int i = 0; i < 100; ++i) {
    const std::string id = "short" + std::to_string(i);
    Decide(small, {Worker(0, 0)}, Prompt(id), 0);
    EXPECT_TRUE(small.Take(Said(Feedback::Event::kFinished, id)).ok());
  }
  EXPECT_EQ(small.counters().bookings, 1u);
  EXPECT_EQ(small.counters().expired_bookings, 0u);
  EXPECT_TRUE(small.Take(Said(Feedback::Event::kFinished, "long")).ok());
}

TEST_F(RequestRouterTest, TheSameRequestTwiceIsBookedOnce) {
  Decide(request_router, {Worker(0, 0)}, Prompt("r"), 0);
  Decide(request_router, {Worker(1, 0)}, Prompt("r"), 50);
  EXPECT_EQ(request_router.load(WorkerId(0)).active_prefill_tokens, 0);
  EXPECT_EQ(request_router.load(WorkerId(1)).active_prefill_tokens, kPrompt);
  EXPECT_EQ(request_router.counters().bookings, 1u);
}

TEST_F(RequestRouterTest, AWorkerThatLeftIsForgotten) {
  Decide(request_router, {Worker(0, 0)}, Prompt("r"));
  request_router.OnRemoved(WorkerId(0));
  EXPECT_EQ(request_router.counters().bookings, 0u);
  EXPECT_EQ(request_router.load(WorkerId(0)).active_prefill_tokens, 0);
  EXPECT_FALSE(request_router.Take(Said(Feedback::Event::kFinished, "r")).ok());
}

TEST_F(RequestRouterTest, ConnectingWorkersAreTheLastChoice) {
  const RouteDecision decision =
      Decide(request_router, {Worker(0, 900, 0, SourceState::kConnecting), Worker(1, 0)});
  EXPECT_EQ(Chosen(decision), "w1");
  EXPECT_FALSE(decision.candidates[0].eligible);
  EXPECT_EQ(decision.candidates[0].reason, "connecting");
  EXPECT_EQ(Chosen(Decide(request_router, {Worker(0, 900, 0, SourceState::kConnecting)})), "w0");
}

TEST_F(RequestRouterTest, HitsOfASuspectSourceCountByItsWeight) {
  EXPECT_EQ(
      Chosen(Decide(request_router, {Worker(0, 900, 0, SourceState::kSuspect), Worker(1, 480)})),
      "w1");
}

TEST_F(RequestRouterTest, TemperatureDrawsByCost) {
  Query query = Prompt();
  query.book = false;
  query.temperature = 0.5;
  const std::vector<QueryAnswer> answers = {Worker(0, 1000), Worker(1, 500)};
  // Odds 1 : exp(-500 / (0.5 * 1000)) = 1 : 1/e.
  const double border = 1 / (1 + std::exp(-1));
  drawn = border - 1e-6;
  EXPECT_EQ(Chosen(Decide(request_router, answers, query)), "w0");
  drawn = border + 1e-6;
  EXPECT_EQ(Chosen(Decide(request_router, answers, query)), "w1");
  drawn = 0.999999;
  const std::vector<QueryAnswer> one_connects = {Worker(0, 0),
                                                 Worker(1, 999, 0, SourceState::kConnecting)};
  EXPECT_EQ(Chosen(Decide(request_router, one_connects, query)), "w0");
}

TEST_F(RequestRouterTest, RoundRobinTakesWorkersInTurnAndBooksThem) {
  config.policy = RoutingPolicy::kRoundRobin;
  RequestRouter in_turn(config, [] { return 0.0; });
  const std::vector<QueryAnswer> answers = {
      Worker(2, 0), Worker(0, 900), Worker(3, 900, 0, SourceState::kConnecting), Worker(1, 0)};
  for (const char* name : {"w0", "w1", "w2", "w0"}) {
    const RouteDecision decision = Decide(in_turn, answers);
    EXPECT_EQ(Chosen(decision), name);
    EXPECT_EQ(decision.reason, "round robin");
  }
  EXPECT_EQ(in_turn.counters().bookings, 4u);
}

TEST_F(RequestRouterTest, NobodyToChooseIsUnavailable) {
  EXPECT_EQ(request_router.Decide(Prompt(), {}, 0).status().code(), StatusCode::kUnavailable);
}

TEST(ParseFeedback, ErrorsNameTheMember) {
  const std::pair<const char*, const char*> wrong[] = {
      {"{", "body: not JSON"},
      {"{}", "event: must be admitted, first_token, finished or load"},
      {R"({"event": "lost", "request_id": "r"})",
       "event: must be admitted, first_token, finished or load"},
      {R"({"event": "finished"})",
       "event load requires worker, all other events require request_id"},
      {R"({"event": "load", "request_id": "r"})",
       "event load requires worker, all other events require request_id"},
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
      {R"({"event": "finished", "request_id": "r", "x": 1})", "unknown member: x"}};
  for (const auto& [body, message] : wrong) {
    EXPECT_EQ(ParseFeedback(body).status().message(), message) << body;
  }
}

}  // namespace
}  // namespace kvcast::router
