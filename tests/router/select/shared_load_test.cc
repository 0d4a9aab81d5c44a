// The load of other routers changes the predictions in the same way as the router's own load.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "router/select/engine_clock.h"
#include "router/select/fleet_forecast.h"

namespace kvcast {
namespace {

// The costs of an 8B model on one H100, about.
constexpr StepCost kCost{{0.01, 5e-5, 5e-10, 5e-5, 3e-8}};
constexpr int64_t kBudget = 8192;  // tokens of a step

struct SharedLoadTest : ::testing::Test {
  static double FirstTokenSeconds(const EngineClock& clock, double now_s, int64_t tokens = 500) {
    return clock.Predict(now_s, 100, tokens, kCost).first_token_s;
  }
  // Sends equal prompts to both clocks.
  void SendTo(EngineClock& router, int64_t prompts, double now_s) {
    for (int64_t i = 0; i < prompts; ++i, ++next) {
      router.Sent(next, now_s, 300, 1000, kCost);
      one.Sent(next, now_s, 300, 1000, kCost);
    }
  }

  EngineClock one{kBudget};  // of a router that has sent all requests
  EngineClock a{kBudget};
  EngineClock b{kBudget};
  uint64_t next = 1;
};

TEST_F(SharedLoadTest, TheLoadOfTheOthersIsPredictedLikeTheOwnLoad) {
  SendTo(a, 3, 0);
  SendTo(b, 5, 0);
  EXPECT_LT(FirstTokenSeconds(a, 0), FirstTokenSeconds(one, 0));
  a.SetOthers(b.Own(0, kCost), 0, kCost);
  b.SetOthers(a.Own(0, kCost), 0, kCost);
  EXPECT_DOUBLE_EQ(FirstTokenSeconds(a, 0), FirstTokenSeconds(one, 0));
  EXPECT_DOUBLE_EQ(FirstTokenSeconds(b, 0), FirstTokenSeconds(one, 0));
  EXPECT_DOUBLE_EQ(FirstTokenSeconds(a, 0.2), FirstTokenSeconds(one, 0.2))
      << "the engine works on the load";
}

TEST_F(SharedLoadTest, RequestsInDecodeSlowTheStepsOfTheOtherRouter) {
  SendTo(b, 4, 0);
  for (uint64_t request = 1; request <= 4; ++request) {
    b.FirstToken(request, 0.3, kCost);
    one.FirstToken(request, 0.3, kCost);
  }
  const InFlight load = b.Own(0.3, kCost);
  EXPECT_EQ(load, (InFlight{0, 0, 0, 4, 4 * 1300}));
  a.SetOthers(load, 0.3, kCost);
  EXPECT_EQ(a.decodes(), 4u);
  EXPECT_DOUBLE_EQ(FirstTokenSeconds(a, 0.3), FirstTokenSeconds(one, 0.3));
  a.SetOthers({}, 0.3, kCost);
  EXPECT_EQ(a.decodes(), 0u);
  EXPECT_DOUBLE_EQ(FirstTokenSeconds(a, 0.3), FirstTokenSeconds(EngineClock(kBudget), 0.3));
}

// The prompts of the routers follow each other in the queue, and the engine reports the first token
// of each prompt to its own router only.
TEST_F(SharedLoadTest, AReportToOneRouterIsAReportToTheOthers) {
  for (EngineClock* const clock : {&one, &a, &b}) {  // the engine sends reports
    clock->Sent(99, -5, 0, 10, kCost);
    clock->FirstToken(99, -4, kCost);
    clock->Ended(99);
  }
  SendTo(b, 20, 0);
  a.SetOthers(b.Own(0, kCost), 0, kCost);
  SendTo(a, 20, 0.001);
  b.SetOthers(a.Own(0.001, kCost), 0.001, kCost);
  EXPECT_DOUBLE_EQ(FirstTokenSeconds(a, 0.001), FirstTokenSeconds(one, 0.001));
  double now_s = 0.1;
  for (uint64_t request = 1; request <= 20; ++request, now_s += 0.09) {
    b.FirstToken(request, now_s, kCost);
    one.FirstToken(request, now_s, kCost);
    a.SetOthers(b.Own(now_s, kCost), now_s, kCost);
    EXPECT_NEAR(FirstTokenSeconds(a, now_s), FirstTokenSeconds(one, now_s),
                0.03 * FirstTokenSeconds(one, now_s))
        << request;
    EXPECT_NEAR(FirstTokenSeconds(b, now_s), FirstTokenSeconds(one, now_s),
                0.03 * FirstTokenSeconds(one, now_s))
        << request;
  }
  EXPECT_EQ(a.Own(now_s, kCost).prompts, 20);
  EXPECT_EQ(b.Own(now_s, kCost).decodes, 20);
}

TEST_F(SharedLoadTest, TheOwnLoadHasNoLoadOfOthers) {
  a.Sent(1, 0, 200, 1000, kCost);
  a.Sent(2, 0, 0, 50, kCost);
  const InFlight own = a.Own(0, kCost);
  EXPECT_EQ(own, (InFlight{2, 1050, 1000 * 700 + 50 * 25, 0, 0}));
  a.SetOthers({.prompts = 7, .prompt_tokens = 9000, .decodes = 3, .decode_context = 99}, 0, kCost);
  EXPECT_EQ(a.Own(0, kCost), own);
  a.FirstToken(1, 0.1, kCost);
  EXPECT_EQ(a.Own(0.1, kCost).decodes, 1);
  EXPECT_EQ(a.Own(0.1, kCost).decode_context, 1200);
}

// After many changes, the same load gives the same prediction as in a new clock: nothing of earlier
// loads is left.
TEST_F(SharedLoadTest, TheLatestLoadReplacesAllEarlierLoads) {
  std::mt19937_64 random(1);
  const auto upto = [&random](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  double now_s = 0;
  for (int i = 0; i < 500; ++i, now_s += 0.01) {
    const int64_t prompts = upto(i % 10 == 0 ? 200 : 5);
    const int64_t tokens = prompts * (1 + upto(4000));
    a.SetOthers({.prompts = prompts,
                 .prompt_tokens = tokens,
                 .prompt_pairs = tokens * (2000 + upto(1000)),
                 .decodes = upto(50),
                 .decode_context = upto(100000)},
                now_s, kCost);
    if (i % 3 == 0) {
      a.Sent(static_cast<uint64_t>(i), now_s, upto(500), 1 + upto(500), kCost);
      a.Ended(static_cast<uint64_t>(i - 9));
    }
  }
  for (uint64_t request = 0; request < 500; ++request) a.Ended(request);
  a.SetOthers({}, now_s, kCost);
  EXPECT_TRUE(a.Own(now_s, kCost).empty());
  EXPECT_EQ(a.prefills(), 0u);
  EXPECT_EQ(a.decodes(), 0u);
  EXPECT_DOUBLE_EQ(FirstTokenSeconds(a, now_s + 100),
                   FirstTokenSeconds(EngineClock(kBudget), now_s + 100));
}

TEST_F(SharedLoadTest, AnEqualLoadKeepsItsProgress) {
  const InFlight load{.prompts = 1, .prompt_tokens = 8000, .prompt_pairs = 32'000'000};
  a.SetOthers(load, 0, kCost);
  const double at_first = FirstTokenSeconds(a, 0);
  const double later = FirstTokenSeconds(a, 0.2);
  EXPECT_NEAR(at_first - later, 0.2, 1e-9);
  a.SetOthers(load, 0.2, kCost);
  EXPECT_DOUBLE_EQ(FirstTokenSeconds(a, 0.2), later);
}

TEST_F(SharedLoadTest, ManyPromptsOfOthersKeepTheirSums) {
  for (const int64_t prompts : {1, 13, 64, 65, 1000}) {
    EngineClock shared(kBudget);
    EngineClock whole(kBudget);
    for (int64_t i = 0; i < prompts; ++i) {
      whole.Sent(static_cast<uint64_t>(i + 1), 0, 40000, 100, kCost);
    }
    shared.SetOthers(whole.Own(0, kCost), 0, kCost);
    EXPECT_NEAR(FirstTokenSeconds(shared, 0), FirstTokenSeconds(whole, 0),
                0.02 * FirstTokenSeconds(whole, 0))
        << prompts;
  }
}

TEST_F(SharedLoadTest, APromptBesideThePromptsOfOthersTeachesNothing) {
  a.Sent(1, 0, 0, 1000, kCost);
  a.SetOthers({.prompts = 1, .prompt_tokens = 10}, 0.01, kCost);
  EXPECT_FALSE(a.FirstToken(1, 1, kCost)) << "the prompt was not alone";
  a.SetOthers({}, 1, kCost);
  a.Sent(2, 2, 0, 1000, kCost);
  EXPECT_TRUE(a.FirstToken(2, 3, kCost));
}

TEST_F(SharedLoadTest, AnEngineWithoutReportsHasItsPromptsInDecodeLater) {
  a.Sent(1, 0, 0, 1000, kCost);
  EXPECT_EQ(a.Own(0.5, kCost).prompts, 1);
  const InFlight later = a.Own(5, kCost);
  EXPECT_EQ(later, (InFlight{0, 0, 0, 1, 1000}));
}

FleetForecast::Facts FactsOn(uint32_t worker) {
  return {.worker = WorkerId(worker), .model = "m", .prompt_tokens = 2000, .tokens_per_prefix = 16};
}

TEST(SharedForecast, TheLoadOfOthersCountsForKnownAndNewWorkers) {
  FleetForecast forecast;
  const std::vector<PrefixName> prompt = {1, 2};
  const auto queue_s = [&](uint32_t worker) {
    forecast.Begin(prompt, 1);
    return forecast.Weigh(FactsOn(worker), {}).queue_s;
  };
  const double idle_s = queue_s(1);
  const InFlight load{.prompts = 4, .prompt_tokens = 40000, .prompt_pairs = 200'000'000};
  FleetInFlight others;
  others.workers = {{WorkerId(1), load}, {WorkerId(2), load}};
  forecast.SetOthers(others, 1);
  EXPECT_GT(queue_s(1), idle_s + 1);
  EXPECT_DOUBLE_EQ(queue_s(2), queue_s(1)) << "the clock of worker 2 is new";
  EXPECT_EQ(forecast.others(WorkerId(2)), load);
  forecast.SetOthers({}, 1);
  EXPECT_DOUBLE_EQ(queue_s(1), idle_s);
  EXPECT_DOUBLE_EQ(queue_s(2), idle_s);
  EXPECT_TRUE(forecast.others(WorkerId(2)).empty());
}

TEST(SharedForecast, TheDelayFollowsTheArrivalsOfAllRouters) {
  FleetForecast one;
  FleetForecast half;
  const std::vector<PrefixName> prompt = {1, 2};
  for (uint64_t request = 0; request < 200; ++request) {
    const double now_s = 0.1 * static_cast<double>(request);
    for (FleetForecast* const router : {&one, &half}) {
      if (router == &half && request % 2 == 1) continue;
      router->Begin(prompt, now_s);
      router->Weigh(FactsOn(1), {});
      router->Routed(request, FactsOn(1));
      router->Ended(request, now_s);
    }
  }
  half.Begin(prompt, 20);
  one.Begin(prompt, 20);
  EXPECT_LT(half.delay(), 0.6 * one.delay());
  const FleetInFlight own = half.Own(20);
  EXPECT_TRUE(own.workers.empty());
  half.SetOthers(
      {.workers = {}, .arrivals_per_s = own.arrivals_per_s, .work_s_per_s = own.work_s_per_s}, 20);
  half.Begin(prompt, 20);
  EXPECT_NEAR(half.delay(), one.delay(), 0.01 * one.delay());
}

// While another router reports an absurdly large load, the sums of the router's own prompts lose
// precision. The sums must be exact again when no prompt waits.
TEST_F(SharedLoadTest, AnAbsurdLoadLeavesNothingBehind) {
  constexpr int64_t kTokens = int64_t{1} << 52;
  a.SetOthers({.prompts = 1, .prompt_tokens = kTokens, .prompt_pairs = kTokens}, 0, kCost);
  a.Sent(1, 0, 300, 1000, kCost);
  a.SetOthers({}, 0, kCost);
  a.Ended(1);
  for (uint64_t request = 2; request < 22; ++request) {
    a.Sent(request, 0, 300, 1000, kCost);
    one.Sent(request, 0, 300, 1000, kCost);
  }
  EXPECT_DOUBLE_EQ(FirstTokenSeconds(a, 0), FirstTokenSeconds(one, 0));
}

}  // namespace
}  // namespace kvcast
