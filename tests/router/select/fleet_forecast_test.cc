// FleetForecast predicts the parts of a worker's cost, and learns from reports.
// SPDX-License-Identifier: Apache-2.0
#include "router/select/fleet_forecast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace kvcast {
namespace {

// A step takes 1 s, and 1 ms more for each token of a prompt. A step has up to 1000 tokens.
ForecastConfig Plain() {
  ForecastConfig config;
  config.step_tokens = 1000;
  config.start = {{1, 0.001, 0, 0, 0}};
  return config;
}

constexpr int64_t kBlock = 100;  // tokens per prefix

std::vector<PrefixName> Prompt(PrefixName first, size_t blocks) {
  std::vector<PrefixName> names(blocks);
  std::iota(names.begin(), names.end(), first);
  return names;
}

FleetForecast::Facts On(uint32_t worker, int64_t prompt_tokens) {
  return {.worker = WorkerId(worker),
          .model = "m",
          .prompt_tokens = prompt_tokens,
          .tokens_per_prefix = kBlock};
}

struct FleetForecastTest : ::testing::Test {
  // Sends a prompt to the worker of the facts.
  uint64_t Send(const std::vector<PrefixName>& prompt, const FleetForecast::Facts& facts,
                double now_s) {
    forecast.Begin(prompt, now_s);
    forecast.Weigh(facts, {});
    forecast.Routed(next, facts);
    return next++;
  }
  Candidate Weigh(const std::vector<PrefixName>& prompt, const FleetForecast::Facts& facts,
                  double now_s, const CostWeights& weights = {}) {
    forecast.Begin(prompt, now_s);
    return forecast.Weigh(facts, weights);
  }
  int64_t Hint(const std::vector<PrefixName>& prompt, const FleetForecast::Facts& facts) {
    Weigh(prompt, facts, 0);
    return forecast.KeepPrefixTokens(facts);
  }

  FleetForecast forecast{Plain()};
  uint64_t next = 1;
};

TEST_F(FleetForecastTest, ComputesTheTokensThatTheWorkerDoesNotHoldOrLoad) {
  FleetForecast::Facts facts = On(1, 500);
  facts.reusable_tokens = 200;
  facts.from_cpu_tokens = 100;
  facts.from_storage_tokens = 50;
  facts.load_costs = {.cpu = 0.1, .storage = 0.5};
  Candidate parts = Weigh(Prompt(1, 5), facts, 0);
  EXPECT_EQ(parts.worker, WorkerId(1));
  EXPECT_EQ(parts.reusable_tokens, 200);
  EXPECT_DOUBLE_EQ(parts.queue_s, 0);
  EXPECT_DOUBLE_EQ(parts.compute_s, 1 + 0.001 * 150);
  EXPECT_DOUBLE_EQ(parts.load_s, 0.001 * (0.1 * 100 + 0.5 * 50));
  facts.speculative_tokens = 300;
  parts = Weigh(Prompt(1, 5), facts, 0);
  EXPECT_EQ(parts.speculative_tokens, 300);
  EXPECT_DOUBLE_EQ(parts.compute_s, 1 + 0.001 * 50) << "expected tokens count as held";
  EXPECT_DOUBLE_EQ(forecast.PromptSeconds("m", 500), 0.5);
}

TEST_F(FleetForecastTest, TheQueueIsThePredictedEndOfTheEarlierPrompts) {
  const uint64_t request = Send(Prompt(1, 10), On(1, 1000), 0);
  EXPECT_DOUBLE_EQ(Weigh(Prompt(50, 5), On(1, 500), 0.5).queue_s, 1.5);
  EXPECT_DOUBLE_EQ(Weigh(Prompt(50, 5), On(2, 500), 0.5).queue_s, 0);
  forecast.Admitted(request, 600);
  EXPECT_DOUBLE_EQ(Weigh(Prompt(50, 5), On(1, 500), 0.5).queue_s, 0.9) << "400 tokens are left";
  forecast.Ended(request, 0.5);
  EXPECT_DOUBLE_EQ(Weigh(Prompt(50, 5), On(1, 500), 0.5).queue_s, 0);
}

TEST_F(FleetForecastTest, AnAdmissionReportsTokensOnTheGpuOnly) {
  FleetForecast::Facts facts = On(1, 1000);
  facts.from_cpu_tokens = 300;
  const uint64_t request = Send(Prompt(1, 10), facts, 0);
  EXPECT_DOUBLE_EQ(Weigh(Prompt(50, 5), On(1, 500), 0.5).queue_s, 1.7 - 0.5);
  forecast.Admitted(request, 200);
  EXPECT_DOUBLE_EQ(Weigh(Prompt(50, 5), On(1, 500), 0.5).queue_s, 1.5 - 0.5);
}

TEST_F(FleetForecastTest, ASlowWorkerIsLearnedAndTheOthersAreNot) {
  double now_s = 0;
  PrefixName name = 1;
  for (int round = 0; round < 60; ++round, now_s += 100) {
    for (const uint32_t worker : {1u, 2u, 3u}) {
      const int64_t tokens = 100 + 137 * round % 900;
      const uint64_t request = Send(Prompt(name += 50, 3), On(worker, tokens), now_s);
      const double seconds = 1 + 0.001 * static_cast<double>(tokens);
      forecast.FirstToken(request, now_s + (worker == 2 ? 3 : 1) * seconds);
      forecast.Ended(request, now_s + 50);
    }
  }
  EXPECT_NEAR(Weigh(Prompt(name += 50, 3), On(1, 1000), now_s).compute_s, 2, 0.1);
  EXPECT_NEAR(Weigh(Prompt(name += 50, 3), On(2, 1000), now_s).compute_s, 6, 0.6);
  EXPECT_NEAR(Weigh(Prompt(name += 50, 3), On(3, 1000), now_s).compute_s, 2, 0.1);
}

TEST_F(FleetForecastTest, ModelsAreLearnedApart) {
  FleetForecast::Facts small = On(1, 1000);
  FleetForecast::Facts large = On(2, 1000);
  large.model = "large";
  Weigh(Prompt(1, 10), small, 0);
  PrefixName name = 1;
  double now_s = 0;
  for (int round = 0; round < 60; ++round, now_s += 100) {
    const uint64_t request = Send(Prompt(name += 50, 10), large, now_s);
    forecast.FirstToken(request, now_s + 6);
    forecast.Ended(request, now_s + 50);
  }
  EXPECT_NEAR(Weigh(Prompt(name += 50, 10), large, now_s).compute_s, 6, 0.1);
  EXPECT_DOUBLE_EQ(Weigh(Prompt(name += 50, 10), small, now_s).compute_s, 2);
}

TEST_F(FleetForecastTest, AWorkerWithoutRoomMustEvictWhatOthersNeedAgain) {
  Send(Prompt(100, 50), On(1, 5000), 0);  // the conversation goes on
  FleetForecast::Facts facts = On(1, 2000);
  const auto evicted = [&](const std::vector<PrefixName>& prompt, const CostWeights& weights = {}) {
    return Weigh(prompt, facts, 0, weights).eviction_s;
  };
  EXPECT_EQ(evicted(Prompt(1, 20)), 0) << "the size of the cache is not known";
  facts.cache_tokens = 10000;
  // By default, 60 % of the cache (6000 tokens) serves conversations.
  EXPECT_DOUBLE_EQ(evicted(Prompt(1, 20)), 0.001 * (5000 + 2000 - 6000));
  EXPECT_DOUBLE_EQ(evicted(Prompt(1, 20), {.cache_share = 1}), 0);
  EXPECT_DOUBLE_EQ(evicted(Prompt(1, 20), {.cache_share = 0}), 0.001 * 2000)
      << "a prompt evicts at most its own number of tokens";
  facts.prompt_tokens = 5100;
  EXPECT_DOUBLE_EQ(evicted(Prompt(100, 51)), 0) << "the conversation itself has its room";
  facts.worker = WorkerId(2);
  EXPECT_DOUBLE_EQ(evicted(Prompt(1, 51)), 0) << "no conversation is on this worker";
}

TEST_F(FleetForecastTest, ConversationsOfARemovedWorkerNeedNoRoom) {
  Send(Prompt(100, 50), On(1, 5000), 0);
  FleetForecast::Facts facts = On(1, 2000);
  facts.cache_tokens = 10000;
  forecast.Removed(WorkerId(1));
  const Candidate parts = Weigh(Prompt(1, 20), facts, 0);
  EXPECT_EQ(parts.eviction_s, 0);
  EXPECT_EQ(parts.queue_s, 0);
  forecast.Admitted(1, 0);
  forecast.FirstToken(1, 3);
  forecast.Ended(1, 4);  // late reports
}

TEST_F(FleetForecastTest, AConversationThatMovedHasNoRequestOnTheRemovedWorker) {
  Send(Prompt(100, 50), On(1, 5000), 0);
  const uint64_t again = Send(Prompt(100, 50), On(2, 5000), 0);
  forecast.Removed(WorkerId(1));
  forecast.Ended(again, 1);
  FleetForecast::Facts facts = On(2, 2000);
  facts.cache_tokens = 10000;
  // The conversation is idle for a long time. It goes on with a low probability.
  EXPECT_LT(Weigh(Prompt(1, 20), facts, 100000, {.cache_share = 0.2}).eviction_s, 2);
}

TEST_F(FleetForecastTest, PromptsWithoutNamesBelongToNoConversation) {
  const uint64_t first = Send({}, On(1, 5000), 0);
  Send({}, On(2, 5000), 0);
  for (const uint32_t worker : {1u, 2u}) {
    FleetForecast::Facts facts = On(worker, 2000);
    facts.cache_tokens = 10000;
    EXPECT_EQ(Weigh(Prompt(1, 20), facts, 0).eviction_s, 0) << worker;
  }
  forecast.Ended(first, 1);
  forecast.Removed(WorkerId(2));
}

TEST_F(FleetForecastTest, TokensOfOneGroupCountByTheChanceOfAnotherPrompt) {
  FleetForecast::Facts facts = On(1, 1000);
  facts.reusable_tokens = 200;
  facts.resident_tokens = 850;  // eight whole blocks
  EXPECT_DOUBLE_EQ(Weigh(Prompt(1, 10), facts, 0).partial_s, 0.001 * (800 - 200) * 0.5)
      << "without data, another prompt is as probable as not";
  facts.resident_tokens = 200;
  EXPECT_EQ(Weigh(Prompt(1, 10), facts, 0).partial_s, 0);
  facts.resident_tokens = 5000;
  EXPECT_DOUBLE_EQ(Weigh(Prompt(1, 10), facts, 0).partial_s, 0.001 * (1000 - 200) * 0.5);
  facts.tokens_per_prefix = 0;
  EXPECT_EQ(Weigh(Prompt(1, 10), facts, 0).partial_s, 0) << "the blocks have no names";
}

TEST_F(FleetForecastTest, TheLastPromptOfTheOwnConversationIsNoPrefixOfOneGroup) {
  Send(Prompt(1, 7), On(1, 700), 0);
  FleetForecast::Facts facts = On(1, 1000);
  facts.resident_tokens = 800;
  EXPECT_DOUBLE_EQ(Weigh(Prompt(1, 10), facts, 0).partial_s, 0.001 * (800 - 700) * 0.5);
  facts.worker = WorkerId(2);
  EXPECT_DOUBLE_EQ(Weigh(Prompt(1, 10), facts, 0).partial_s, 0.001 * 800 * 0.5);
}

TEST_F(FleetForecastTest, AHintNamesABoundaryThatOthersWillHave) {
  FleetForecast::Facts facts = On(1, 1000);
  EXPECT_EQ(Hint(Prompt(1, 10), facts), 0) << "no worker holds a prefix";
  facts.resident_tokens = 550;
  EXPECT_EQ(Hint(Prompt(1, 10), facts), 500);
  facts.reusable_tokens = 500;
  EXPECT_EQ(Hint(Prompt(1, 10), facts), 0) << "the hit ends at the boundary";
  // Adds eight boundaries that occur in no third prompt.
  for (PrefixName first = 1000; first < 9000; first += 1000) {
    FleetForecast::Facts once = On(1, 600);
    once.resident_tokens = 500;
    Send(Prompt(first, 6), once, 0);
  }
  facts.reusable_tokens = 0;
  EXPECT_EQ(Hint(Prompt(1, 10), facts), 0);
}

TEST_F(FleetForecastTest, TheHintIsTheLongestPrefixOnAnyWorker) {
  FleetForecast::Facts chosen = On(1, 1000);
  chosen.resident_tokens = 300;
  FleetForecast::Facts other = On(2, 1000);
  other.resident_tokens = 700;
  const auto prompt = Prompt(1, 10);
  forecast.Begin(prompt, 0);
  forecast.Weigh(chosen, {});
  forecast.Weigh(other, {});
  EXPECT_EQ(forecast.KeepPrefixTokens(chosen), 700);
}

TEST_F(FleetForecastTest, TheEndOfTheOwnConversationIsNoBoundary) {
  Send(Prompt(1, 7), On(1, 700), 0);
  FleetForecast::Facts facts = On(1, 1000);
  facts.resident_tokens = 700;
  EXPECT_EQ(Hint(Prompt(1, 10), facts), 0);
}

// Prompts of 10 blocks. The prompts share the first 5 blocks, which worker 1 holds. One prompt is
// sent per second.
struct ReturnHintTest : FleetForecastTest {
  static std::vector<PrefixName> Single(PrefixName number) {
    std::vector<PrefixName> prompt = Prompt(1, 5);
    for (const PrefixName name : Prompt(1000 * number, 5)) prompt.push_back(name);
    return prompt;
  }
  static FleetForecast::Facts Shared(int64_t blocks = 5) {
    FleetForecast::Facts facts = On(1, 1000);
    facts.resident_tokens = blocks * kBlock;
    return facts;
  }
  void SendSingles(PrefixName count) {
    for (PrefixName i = 0; i < count; ++i) Send(Single(next_number++), Shared(), now_s += 1);
    now_s += 100;
  }
  std::optional<int64_t> ReturnHint(const std::vector<PrefixName>& prompt,
                                    const FleetForecast::Facts& facts = Shared()) {
    Weigh(prompt, facts, now_s);
    return forecast.WillNotReturnAfter(facts);
  }

  double now_s = 0;
  PrefixName next_number = 1;
};

TEST_F(ReturnHintTest, TailsOfSinglePromptsWillNotReturn) {
  SendSingles(30);  // the boundary is known from the second prompt on
  EXPECT_EQ(ReturnHint(Single(999)), std::nullopt)
      << "29 tails prove only a chance of at most 3 in 29";
  SendSingles(1);
  EXPECT_EQ(ReturnHint(Single(999)), 500);
  EXPECT_EQ(ReturnHint(Single(999), Shared(0)), std::nullopt) << "no worker holds the boundary";
  EXPECT_EQ(ReturnHint(Single(999), Shared(4)), std::nullopt)
      << "no earlier prompt branched off there";
}

TEST_F(ReturnHintTest, ConversationsThatContinueReturn) {
  SendSingles(60);
  ASSERT_EQ(ReturnHint(Single(999)), 500);
  for (PrefixName number = 1; number <= 10; ++number) {
    auto prompt = Single(number);
    prompt.push_back(1000 * number + 500);
    Send(prompt, Shared(), now_s);
  }
  EXPECT_EQ(ReturnHint(Single(999)), std::nullopt);
}

TEST_F(ReturnHintTest, ASecondTurnIsLearnedApart) {
  SendSingles(60);
  auto prompt = Single(1);
  prompt.push_back(7);
  EXPECT_EQ(ReturnHint(prompt), std::nullopt);
}

TEST_F(ReturnHintTest, TailsThatOtherConversationsShareReturn) {
  SendSingles(60);
  for (PrefixName number = 1; number <= 10; ++number) {
    auto prompt = Single(number);  // the first seven blocks are the same
    for (size_t block = 7; block < 10; ++block) prompt[block] += 100;
    Send(prompt, Shared(7), now_s);
  }
  EXPECT_EQ(ReturnHint(Single(999)), std::nullopt);
}

TEST_F(FleetForecastTest, TheDelayFollowsArrivalsAndUtilisation) {
  forecast.Begin({}, 0);
  EXPECT_EQ(forecast.delay(), 0);
  Weigh({}, On(1, 500), 0);
  Weigh({}, On(2, 500), 0);
  // One request per second with half a second of work, for two workers.
  double now_s = 0;
  for (PrefixName name = 1; name <= 600; ++name) {
    now_s += 1;
    forecast.Ended(Send(Prompt(50 * name, 5), On(1, 500), now_s), now_s);
  }
  forecast.Begin({}, now_s);
  EXPECT_NEAR(forecast.delay(), 0.5 / (2 * (1 - 0.25)), 0.01);
  forecast.Begin({}, now_s + 600);
  EXPECT_NEAR(forecast.delay(), 0, 0.001) << "the fleet has no work";
}

}  // namespace
}  // namespace kvcast
