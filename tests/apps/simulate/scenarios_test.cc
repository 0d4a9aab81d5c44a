// Faults and workloads that make some rules slow. In each scenario, the mean time to first token
// with kvcast's rule is at most the mean time with the rule least_loaded.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/simulate/fleet_simulation.h"
#include "apps/simulate/random.h"
#include "apps/simulate/workload_sources.h"
#include "src/base/sanitizers.h"

namespace kvcast::simulate {
namespace {

constexpr int64_t kBlock = 64;

// Appends `count` blocks. Only prompts with the same `owner` have them.
void AppendPrivate(uint64_t owner, int64_t count, std::vector<uint64_t>& blocks) {
  for (int64_t b = 0; b < count; ++b) {
    blocks.push_back(Mix(owner, static_cast<uint64_t>(std::ssize(blocks))));
  }
}

// All prompts share one prefix, which is 26 % of each prompt. Requests arrive faster than one
// engine can serve them.
Workload HotPrefix() {
  Workload workload{.name = "hot prefix", .slices = {}, .fleet_tokens = 2'000'000, .load = 0.8};
  Slice slice{.block_tokens = kBlock, .requests = {}};
  Random random(1);
  double time = 0;
  for (int64_t r = 0; r < 600; ++r) {
    WorkloadRequest request{.delay_s = time, .session = r, .output_tokens = 100};
    for (int64_t b = 0; b < 32; ++b) request.blocks.push_back(Mix(7, static_cast<uint64_t>(b)));
    AppendPrivate(Mix(8, static_cast<uint64_t>(r)), 91, request.blocks);
    request.prompt_tokens = std::ssize(request.blocks) * kBlock;
    slice.requests.push_back(std::move(request));
    time += random.Exponential(1);
  }
  workload.slices.push_back(std::move(slice));
  return workload;
}

// 24 conversations with long prompts. The first requests come at the same time. A rule that follows
// the cache alone keeps each conversation on the engine of its first request.
Workload LongSessions() {
  Workload workload{.name = "long sessions", .slices = {}, .fleet_tokens = 1'500'000, .load = {}};
  Slice slice{.block_tokens = kBlock, .requests = {}};
  for (int64_t c = 0; c < 24; ++c) {
    for (int64_t turn = 0; turn < 12; ++turn) {
      WorkloadRequest request{.delay_s = turn == 0 ? 0.0 : 2.0,
                              .after = turn == 0 ? kNoRequest : std::ssize(slice.requests) - 1,
                              .session = c,
                              .output_tokens = 64};
      AppendPrivate(Mix(9, static_cast<uint64_t>(c)), 600 + 20 * turn, request.blocks);
      request.prompt_tokens = std::ssize(request.blocks) * kBlock;
      if (turn > 0) slice.requests.back().next = std::ssize(slice.requests);
      slice.requests.push_back(std::move(request));
    }
  }
  workload.slices.push_back(std::move(slice));
  return workload;
}

double MeanOf(const Workload& workload, const std::string& rule, const FleetOptions& options) {
  const SimModel model = *FindSimModel("hybrid");
  const Slice& slice = workload.slices.front();
  int64_t longest = 0;
  int64_t sum = 0;
  for (const WorkloadRequest& request : slice.requests) {
    longest = std::max(longest, request.prompt_tokens + request.output_tokens);
    sum += request.prompt_tokens;
  }
  const auto cache = MakeSimCache(model,
                                  {.fleet_tokens = workload.fleet_tokens,
                                   .mean_tokens = sum / std::ssize(slice.requests),
                                   .engines = options.engines,
                                   .requests = std::ssize(slice.requests)},
                                  longest);
  EXPECT_TRUE(cache.ok()) << cache.status().ToString();
  auto hasher = BlockHasher::FromSeed(HashAlgorithm::kXxhash, kDefaultHashSeed);
  const Prompts prompts(slice, cache->hash_block_size, std::move(hasher).value());
  const SliceSetup setup{model, slice, prompts, *cache,
                         TimeScale(workload, slice, model, options.engines)};
  const auto result = RunFleet(setup, options, *ParseRule(rule), IndexKind::kExact);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->exact_equal, result->exact_checked);
  EXPECT_FALSE(result->first_token_s.empty());
  return result->mean_first_token_s();
}

struct Scenario {
  std::string name;
  Workload workload;
  FleetOptions options;
};

std::vector<Scenario> Scenarios() {
  std::vector<Scenario> scenarios = {
      {"one hot prefix", HotPrefix(), {}},
      {"long sessions", LongSessions(), {}},
  };
  const Workload shared = GenerateShared({.slices = 1, .requests = 500, .seed = 3});
  scenarios.push_back({"an engine that ends", shared, {.kill_at_s = 5}});
  scenarios.push_back({"an engine three times slower", shared, {.slow_factor = 3}});
  scenarios.push_back({"events 5 s late", shared, {.delay_s = 5}});
  scenarios.push_back({"1 % of the batches lost", shared, {.loss = 0.01}});
  return scenarios;
}

TEST(Scenarios, KvcastsRuleIsNotWorseThanTheRuleLeastLoaded) {
  std::vector<std::string> rules = {"kvcast:hints=1"};
  if (!kSanitized) rules.push_back("kvcast");
  for (const Scenario& scenario : Scenarios()) {
    const double least_loaded = MeanOf(scenario.workload, "least_loaded", scenario.options);
    for (const std::string& rule : rules) {
      const double mean = MeanOf(scenario.workload, rule, scenario.options);
      EXPECT_LE(mean, least_loaded) << scenario.name << ", " << rule;
    }
  }
}

// The comparison can fail: with one hot prefix, a rule that follows the cache alone is worse.
TEST(Scenarios, ARuleThatFollowsTheCacheAloneIsWorse) {
  const FleetOptions options;
  EXPECT_GT(MeanOf(HotPrefix(), "smg:balance_abs=1000000", options),
            MeanOf(HotPrefix(), "least_loaded", options));
}

}  // namespace
}  // namespace kvcast::simulate
