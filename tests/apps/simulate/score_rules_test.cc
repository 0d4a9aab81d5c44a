// Tests of the rules that combine several signals. The inputs show the formulas and thresholds of
// the rules. The prompt has 1000 tokens.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/apps/simulate/rule_input.h"

namespace kvcast::simulate {
namespace {

TEST(Llmd, AddsTheScoresOfPrefixQueueAndUsage) {
  TestInput input(2);
  input.engines[0].waiting = 10;
  input.engines[1].hit_tokens = 600;  // 3 * 0.6 for the prefix, and 2 for the shorter queue
  EXPECT_EQ(input.Choose("llmd"), 1u);
  std::swap(input.engines[0].waiting, input.engines[1].waiting);
  EXPECT_EQ(input.Choose("llmd"), 0u);  // 3 * 0.6 is below 2
  EXPECT_EQ(input.Choose("llmd:prefix=4"), 1u);
  input.engines[0].cache_usage = 0.2;  // 2 + 2 * 0.8 against 1.8 + 2
  EXPECT_EQ(input.Choose("llmd"), 1u);
  EXPECT_EQ(input.Choose("llmd:kv_usage=0"), 0u);
  EXPECT_EQ(input.Choose("llmd:queue=1:kv_usage=0"), 1u);
}

TEST(Llmd, QueueScoreIsLinearBetweenTheShortestAndTheLongest) {
  TestInput input(3);
  input.engines[0].waiting = 10;
  input.engines[1].waiting = 5;         // 2 * 0.5 = 1 for the queue
  input.engines[1].hit_tokens = 350;    // 3 * 0.35 = 1.05 for the prefix
  EXPECT_EQ(input.Choose("llmd"), 1u);  // 2.05 against 2
  input.engines[1].hit_tokens = 300;    // 3 * 0.3 = 0.9 for the prefix
  EXPECT_EQ(input.Choose("llmd"), 2u);
}

TEST(LlmdSticky, ChoosesAnEngineWithMostOfThePromptUnlessItsQueueIsTooLong) {
  TestInput input(2);
  input.engines[1].hit_tokens = 800;
  input.engines[1].load.prefill_tokens = 18 * 15928;
  EXPECT_EQ(input.Choose("llmd_sticky"), 1u);
  input.engines[1].load.prefill_tokens += 1;
  EXPECT_EQ(input.Choose("llmd_sticky"), 0u);
  EXPECT_EQ(input.Choose("llmd_sticky:patience_s=19"), 1u);
  EXPECT_EQ(input.Choose("llmd_sticky:tokens_per_s=20000"), 1u);
}

TEST(LlmdSticky, OtherwiseTheEngineWithTheFewestTokensToCompute) {
  TestInput input(2);
  input.engines[1].hit_tokens = 799;
  input.engines[1].load.prefill_tokens = 700;  // 901 tokens against 1000
  EXPECT_EQ(input.Choose("llmd_sticky"), 1u);
  input.engines[1].load.prefill_tokens = 900;
  EXPECT_EQ(input.Choose("llmd_sticky"), 0u);
  EXPECT_EQ(input.Choose("llmd_sticky:share=0.7"), 1u);
}

TEST(Aibrix, ChoosesTheBestShareUpToTheMeanLoadPlusOneDeviation) {
  TestInput input(3);
  input.engines[0].hit_tokens = 1000;
  input.engines[1].hit_tokens = 300;
  input.engines[2].hit_tokens = 500;
  input.engines[0].load.requests = 5;  // the mean is 1.67, the deviation 2.36
  EXPECT_EQ(input.Choose("aibrix"), 2u);
  input.engines[1].load.requests = 4;  // the mean is 3, the deviation 2.16
  input.engines[2].load.requests = 0;
  EXPECT_EQ(input.Choose("aibrix"), 0u);
}

TEST(Aibrix, ChoosesTheLeastLoadedEngineIfLoadsDifferMuch) {
  TestInput input(2);
  input.engines[0].hit_tokens = 1000;
  input.engines[0].load.requests = 8;
  EXPECT_EQ(input.Choose("aibrix"), 0u);
  input.engines[0].load.requests = 9;
  EXPECT_EQ(input.Choose("aibrix"), 1u);
  EXPECT_EQ(input.Choose("aibrix:imbalance=9"), 0u);
}

TEST(Preble, ChoosesTheLongestPrefixAboveTheShare) {
  TestInput input(2);
  input.engines[1].hit_tokens = 510;
  input.engines[1].load.requests = 100;
  EXPECT_EQ(input.Choose("preble"), 1u);
  input.engines[1].hit_tokens = 500;
  EXPECT_EQ(input.Choose("preble"), 0u);
  EXPECT_EQ(input.Choose("preble:share=0.4"), 1u);
}

TEST(Preble, OtherwiseAddsPrefillTimeAndATimePerRequest) {
  TestInput input(2);
  input.engines[1].hit_tokens = 500;  // 0.5 s against 1 s
  input.engines[1].load.requests = 3;
  EXPECT_EQ(input.Choose("preble"), 1u);  // 0.95 s against 1 s
  input.engines[1].load.requests = 4;
  EXPECT_EQ(input.Choose("preble"), 0u);
  EXPECT_EQ(input.Choose("preble:tpot_s=0.1"), 1u);
}

TEST(Preble, WorkCountsForTheWindow) {
  for (const auto& [text, window_s] : {std::pair{"preble", 180.0}, {"preble:window_s=20", 20.0}}) {
    TestInput input(2);
    input.engines[1].hit_tokens = 400;
    const auto rule = TestInput::Make(text, 2);
    EXPECT_EQ(input.Choose(*rule), 1u);  // 0.6 s against 1 s
    input.now_s = window_s;
    EXPECT_EQ(input.Choose(*rule), 0u);  // 1.2 s against 1 s
    input.now_s = 2.1 * window_s;
    EXPECT_EQ(input.Choose(*rule), 1u);
  }
}

TEST(Kvcast, TakesTheWarmOfTwoIdleEnginesAndPredictsATime) {
  for (size_t warm = 0; warm < 2; ++warm) {
    TestInput input(2);
    input.engines[warm].hit_tokens = 990;
    const auto rule = TestInput::Make("kvcast", 2);
    EXPECT_EQ(input.Choose(*rule), warm);
    ASSERT_TRUE(rule->PredictedFirstToken().has_value());
    EXPECT_GT(*rule->PredictedFirstToken(), 0);
    EXPECT_EQ(rule->KeepPrefixTokens(), 0);  // hints are off
    EXPECT_EQ(rule->WillNotReturnAfter(), std::nullopt);
  }
}

}  // namespace
}  // namespace kvcast::simulate
