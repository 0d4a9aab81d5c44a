// The comparison of policies is deterministic and uses the demo's caches and times. In the
// comparison, the hits of the index equal the hits of the engines' own lookups.
// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_policies.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "src/base/sanitizers.h"

namespace kvcast::tools {
namespace {

// Conversations of several turns. Each turn repeats the prompt of the previous turn, and adds
// blocks.
std::vector<TraceRequest> Conversations(int64_t requests) {
  constexpr int64_t kOpen = 12;
  std::vector<TraceRequest> trace;
  for (int64_t r = 0; r < requests; ++r) {
    const int64_t conversation = r % kOpen;
    const int64_t blocks = 3 + 2 * (r / kOpen) + conversation % 3;
    TraceRequest request;
    request.arrival_s = 0.2 * static_cast<double>(r);
    request.input_length = blocks * kTraceBlockTokens + 100;
    request.output_length = 20;
    for (int64_t b = 0; b <= blocks; ++b) request.block_ids.push_back(1000 * conversation + b);
    trace.push_back(std::move(request));
  }
  return trace;
}

// Pools that are too small for all conversations.
DemoOptions SmallPools() {
  DemoOptions options;
  options.engines = 3;
  options.cache.blocks = 4000;
  return options;
}

PolicyComparison Compare(const DemoOptions& options, int64_t requests = kSanitized ? 60 : 120) {
  auto comparison = ComparePolicies(options, Conversations(requests));
  EXPECT_TRUE(comparison.ok()) << comparison.status().message();
  return std::move(comparison).value();
}

const PolicyResult& Find(const PolicyComparison& comparison, const std::string& rule,
                         const std::string& index) {
  for (const PolicyResult& policy : comparison.policies) {
    if (policy.rule == rule && policy.index == index) return policy;
  }
  ADD_FAILURE() << rule << "/" << index << " is missing";
  return comparison.policies.front();
}

TEST(DemoPolicies, NamesEveryPolicy) {
  std::vector<std::tuple<std::string, std::string, bool>> names;
  std::set<std::pair<std::string, std::string>> rows;
  for (const PolicyResult& policy : Compare(SmallPools()).policies) {
    names.emplace_back(policy.rule, policy.index, policy.reads_index);
    rows.emplace(policy.title, policy.index);
    EXPECT_FALSE(policy.title.empty());
  }
  const std::vector<std::tuple<std::string, std::string, bool>> expected = {
      {"kvcast", "exact", true},        {"kvcast", "full", true},
      {"dynamo", "full", true},         {"dynamo:overlap_weight=4", "full", true},
      {"least_loaded", "exact", false}, {"round_robin", "exact", false}};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(rows.size(), expected.size()) << "two rows of the table have equal names";
}

TEST(DemoPolicies, EqualArgumentsGiveEqualResults) {
  const PolicyComparison a = Compare(SmallPools());
  const PolicyComparison b = Compare(SmallPools());
  ASSERT_EQ(a.policies.size(), b.policies.size());
  for (size_t i = 0; i < a.policies.size(); ++i) {
    const simulate::RunResult& first = a.policies[i].run;
    const simulate::RunResult& second = b.policies[i].run;
    EXPECT_EQ(first.first_token_s, second.first_token_s) << a.policies[i].rule;
    EXPECT_EQ(first.by_engine, second.by_engine) << a.policies[i].rule;
    EXPECT_EQ(first.reused_tokens, second.reused_tokens) << a.policies[i].rule;
    EXPECT_EQ(first.wrong_promise_tokens, second.wrong_promise_tokens) << a.policies[i].rule;
    EXPECT_EQ(first.seconds, second.seconds) << a.policies[i].rule;
  }
}

TEST(DemoPolicies, IndexEqualsTheEnginesLookup) {
  const PolicyComparison comparison = Compare(SmallPools());
  EXPECT_TRUE(comparison.exact());
  for (const PolicyResult& policy : comparison.policies) {
    EXPECT_GT(policy.run.exact_checked, 30) << policy.rule;
    EXPECT_EQ(policy.run.exact_equal, policy.run.exact_checked) << policy.rule;
    EXPECT_EQ(policy.run.refused, 0) << policy.rule;
  }
}

TEST(DemoPolicies, OnlyTheFullAttentionIndexPromisesEvictedWindows) {
  DemoOptions options = SmallPools();
  options.cache.retention = "0";
  const PolicyComparison comparison = Compare(options);
  EXPECT_GT(Find(comparison, "kvcast", "full").run.wrong_promise_tokens,
            10 * Find(comparison, "kvcast", "exact").run.wrong_promise_tokens);
}

TEST(DemoPolicies, ThePoliciesUseTheCacheAndTheTimesOfTheDemo) {
  const PolicyComparison small = Compare(SmallPools());
  DemoOptions options = SmallPools();
  options.cache.blocks = 40000;
  const PolicyComparison large = Compare(options);
  options = SmallPools();
  options.cache.prefill_rate *= 2;
  const PolicyComparison fast = Compare(options);
  options = SmallPools();
  options.cache.max_batched_tokens = 1024;
  const PolicyComparison chunked = Compare(options);
  const auto of = [](const PolicyComparison& comparison) -> const simulate::RunResult& {
    return Find(comparison, "kvcast", "exact").run;
  };
  EXPECT_GT(of(large).reused_tokens, of(small).reused_tokens);
  EXPECT_LT(of(fast).mean_first_token_s(), of(small).mean_first_token_s());
  EXPECT_GT(of(chunked).mean_first_token_s(), of(small).mean_first_token_s());
  EXPECT_EQ(of(small).by_engine.size(), 3u);
}

TEST(DemoPolicies, HostMemoryLoadsEvictedBlocks) {
  std::vector<std::string> kinds = {"connector"};
  if (!kSanitized) kinds.insert(kinds.end(), {"eager", "lazy"});
  for (const std::string& offload : kinds) {
    DemoOptions options = SmallPools();
    options.cache.cpu_blocks = 20000;
    options.cache.offload = offload;
    const PolicyComparison comparison = Compare(options, 120);
    EXPECT_TRUE(comparison.exact()) << offload;
    for (const PolicyResult& policy : comparison.policies) {
      EXPECT_GT(policy.run.loaded_tokens, 0) << offload << ", " << policy.rule;
      EXPECT_EQ(policy.computed_tokens(),
                policy.run.prompt_tokens - policy.run.reused_tokens - policy.run.loaded_tokens);
    }
  }
}

TEST(DemoPolicies, WithDraftTokensNoPolicyIsCompared) {
  DemoOptions options = SmallPools();
  options.cache.draft_tokens = 2;
  const PolicyComparison comparison = Compare(options);
  EXPECT_TRUE(comparison.policies.empty());
  EXPECT_FALSE(comparison.left_out.empty());
  EXPECT_TRUE(comparison.exact());
}

TEST(DemoPolicies, ADifferenceOrNoCheckIsNotExact) {
  PolicyComparison comparison;
  comparison.policies.resize(2);
  comparison.policies[0].run.exact_checked = comparison.policies[0].run.exact_equal = 5;
  EXPECT_FALSE(comparison.exact()) << "the second policy has no checked admission";
  comparison.policies[1].run.exact_checked = comparison.policies[1].run.exact_equal = 5;
  EXPECT_TRUE(comparison.exact());
  comparison.policies[1].run.exact_equal = 4;
  EXPECT_FALSE(comparison.exact());
}

}  // namespace
}  // namespace kvcast::tools
