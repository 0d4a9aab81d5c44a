// Tests of the rules that compare the cached prefix with the load. The inputs show the formulas and
// thresholds of the rules. The prompt has 1000 tokens in blocks of 10 tokens.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "tests/apps/simulate/rule_input.h"

namespace kvcast::simulate {
namespace {

// Two engines with these numbers of requests. Engine 1 has `hit` cached tokens.
TestInput Two(int64_t hit, int64_t requests_0, int64_t requests_1) {
  TestInput input(2);
  input.engines[1].hit_tokens = hit;
  input.engines[0].load.requests = requests_0;
  input.engines[1].load.requests = requests_1;
  return input;
}

TEST(Sglang, CachedPrefixCountsAboveTheThreshold) {
  EXPECT_EQ(Two(310, 0, 5).Choose("sglang"), 1u);
  EXPECT_EQ(Two(300, 0, 5).Choose("sglang"), 0u);
  EXPECT_EQ(Two(300, 0, 5).Choose("sglang:cache_threshold=0.2"), 1u);
}

TEST(Sglang, ChoosesTheLeastLoadedEngineIfTheLoadsExceedBothThresholds) {
  EXPECT_EQ(Two(1000, 0, 64).Choose("sglang"), 1u);
  EXPECT_EQ(Two(1000, 0, 65).Choose("sglang"), 0u);
  EXPECT_EQ(Two(1000, 200, 300).Choose("sglang"), 1u);  // 300 is not above 1.5 * 200
  EXPECT_EQ(Two(1000, 200, 301).Choose("sglang"), 0u);
  EXPECT_EQ(Two(1000, 0, 65).Choose("sglang:balance_abs=100"), 1u);
  EXPECT_EQ(Two(1000, 200, 301).Choose("sglang:balance_rel=2"), 1u);
}

TEST(Sglang, ChoosesTheLeastLoadedOfEnginesWithEqualPrefixes) {
  TestInput input = Two(500, 0, 3);
  input.engines[0].hit_tokens = 500;
  EXPECT_EQ(input.Choose("sglang"), 0u);
  input.engines[0].load.requests = 4;
  EXPECT_EQ(input.Choose("sglang"), 1u);
}

TEST(DynamoTwoTier, DiffersFromSglangInTheThresholds) {
  EXPECT_EQ(Two(510, 0, 5).Choose("dynamo_two_tier"), 1u);
  EXPECT_EQ(Two(500, 0, 5).Choose("dynamo_two_tier"), 0u);
  EXPECT_EQ(Two(1000, 0, 32).Choose("dynamo_two_tier"), 1u);
  EXPECT_EQ(Two(1000, 0, 33).Choose("dynamo_two_tier"), 0u);
  EXPECT_EQ(Two(1000, 1000, 1100).Choose("dynamo_two_tier"), 1u);
  EXPECT_EQ(Two(1000, 1000, 1101).Choose("dynamo_two_tier"), 0u);
}

TEST(Smg, ChoosesTheWarmEngineUnlessItsLoadIsFarAboveTheMean) {
  EXPECT_EQ(Two(10, 0, 64).Choose("smg"), 1u);  // the mean is 32
  EXPECT_EQ(Two(10, 0, 66).Choose("smg"), 0u);
  EXPECT_EQ(Two(10, 400, 480).Choose("smg"), 1u);  // 480 is not above 1.1 * 440
  EXPECT_EQ(Two(10, 400, 492).Choose("smg"), 0u);
  EXPECT_EQ(Two(10, 0, 66).Choose("smg:balance_abs=50"), 1u);
  EXPECT_EQ(Two(10, 400, 492).Choose("smg:balance_rel=1.2"), 1u);
}

TEST(Smg, WithoutACachedPrefixChoosesTheLeastLoadedEngine) {
  EXPECT_EQ(Two(0, 5, 4).Choose("smg"), 1u);
}

TEST(Dynamo, AddsUncachedBlocksAndBlocksInUse) {
  TestInput input = Two(509, 0, 0);  // engine 1 has 50 of the 100 blocks in its cache
  input.engines[0].blocks_with_request = 0;
  input.engines[1].blocks_with_request = 49;
  EXPECT_EQ(input.Choose("dynamo"), 1u);
  input.engines[1].blocks_with_request = 51;
  EXPECT_EQ(input.Choose("dynamo"), 0u);
  EXPECT_EQ(input.Choose("dynamo:overlap_weight=2"), 1u);
  EXPECT_EQ(input.Choose("dynamo:overlap_weight=0"), 0u);
}

TEST(Dynamo, AddsQueuedPrefill) {
  TestInput input = Two(500, 0, 0);
  input.engines[1].load.prefill_tokens = 490;
  EXPECT_EQ(input.Choose("dynamo"), 1u);
  input.engines[1].load.prefill_tokens = 510;
  EXPECT_EQ(input.Choose("dynamo"), 0u);
}

TEST(Dynamo, HostMemoryCountsByItsWeight) {
  TestInput input = Two(200, 0, 0);
  input.engines[0].hit_with_cpu_tokens = 400;  // 0.75 * 40 host blocks against 20 GPU blocks
  EXPECT_EQ(input.Choose("dynamo"), 0u);
  EXPECT_EQ(input.Choose("dynamo:host_weight=0.4"), 1u);
}

TEST(LMetric, MultipliesUncachedTokensByRequests) {
  EXPECT_EQ(Two(800, 0, 3).Choose("lmetric"), 1u);  // 200 tokens * 4 requests against 1000 * 1
  EXPECT_EQ(Two(800, 0, 5).Choose("lmetric"), 0u);
  EXPECT_EQ(Two(1000, 0, 5).Choose("lmetric"), 1u);  // at least 1 token
}

TEST(LMetric, QueuedPrefillCountsIfItsParameterIsSet) {
  TestInput input = Two(800, 0, 0);
  input.engines[1].load.prefill_tokens = 900;
  EXPECT_EQ(input.Choose("lmetric"), 0u);
  EXPECT_EQ(input.Choose("lmetric:queued_prefill=0"), 1u);
}

// Sends one request with another prefix, then four requests with the hot prefix, which engine 0 of
// four engines holds. Returns the engines that the rule chose for the four requests.
std::vector<size_t> HotPrompt(const char* rule_text) {
  TestInput input(4);
  const auto rule = TestInput::Make(rule_text, 4);
  const std::vector<PrefixNumber> hot = input.prefixes;
  for (PrefixNumber& prefix : input.prefixes) prefix += 500;
  input.Choose(*rule);
  input.prefixes = hot;
  input.engines[0].hit_tokens = 1000;
  std::vector<size_t> chosen;
  for (int k = 0; k < 4; ++k) chosen.push_back(input.Choose(*rule));
  return chosen;
}

TEST(LMetric, GuardSendsTheThirdRequestOfAHotPromptElsewhere) {
  EXPECT_EQ(HotPrompt("lmetric"), (std::vector<size_t>{0, 0, 1, 0}));
  EXPECT_EQ(HotPrompt("lmetric:guard=0"), (std::vector<size_t>{0, 0, 0, 0}));
}

// Returns the two engines that the rule considers for the prompt, in the order of the rule.
std::vector<size_t> HomesOf(const TestInput& base) {
  std::vector<size_t> homes = {TestInput(base).Choose("dualmap")};
  for (size_t e = 0; e < base.engines.size(); ++e) {
    TestInput input = base;
    input.engines[e].hit_tokens = 500;
    if (e != homes[0] && input.Choose("dualmap") == e) homes.push_back(e);
  }
  return homes;
}

TEST(DualMap, ChoosesTheWarmerOfTwoEnginesUnlessItHasTooMuchWork) {
  TestInput input(5);
  const std::vector<size_t> homes = HomesOf(input);
  ASSERT_EQ(homes.size(), 2u);
  RuleEngine& first = input.engines[homes[0]];
  RuleEngine& second = input.engines[homes[1]];
  first.load.prefill_tokens = 65536 - 1000;
  EXPECT_EQ(input.Choose("dualmap"), homes[0]);
  ++first.load.prefill_tokens;
  EXPECT_EQ(input.Choose("dualmap"), homes[1]);
  EXPECT_EQ(input.Choose("dualmap:limit_tokens=70000"), homes[0]);
  second.load.prefill_tokens = 70000;  // above the limit too; `first` has less work
  EXPECT_EQ(input.Choose("dualmap"), homes[0]);
}

TEST(DualMap, ARarePrefixKeepsItsEngineAndAFrequentPrefixGetsMoreEngines) {
  TestInput input(8);
  const auto rule = TestInput::Make("dualmap", 8);
  std::set<size_t> rare;
  std::set<size_t> frequent;
  PrefixNumber next = 1000;
  const auto send = [&](PrefixNumber start) {
    for (PrefixNumber p = 0; p < 100; ++p) input.prefixes[p] = p < 4 ? start + p : next++;
    return input.Choose(*rule);
  };
  for (int k = 0; k < 100; ++k) {
    const PrefixNumber start = next += 10;
    send(start);
    if (k % 10 == 9) rare.insert(send(100));
  }
  for (int k = 0; k < 300; ++k) frequent.insert(send(200));
  EXPECT_EQ(rare.size(), 1u);
  EXPECT_GT(frequent.size(), 2u);
}

}  // namespace
}  // namespace kvcast::simulate
