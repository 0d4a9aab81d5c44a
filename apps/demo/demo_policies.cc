// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_policies.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include "apps/engine/engine_setup.h"
#include "apps/simulate/workload_sources.h"

namespace kvcast::tools {
namespace {

using simulate::IndexKind;

struct Policy {
  const char* rule;
  IndexKind index;
  const char* title;
  bool reads_index = true;
};
constexpr std::array<Policy, 6> kPolicies = {
    {{"kvcast", IndexKind::kExact, "kvcast"},
     {"kvcast", IndexKind::kFullOnly, "kvcast"},
     {"dynamo", IndexKind::kFullOnly, "Dynamo's cost"},
     {"dynamo:overlap_weight=4", IndexKind::kFullOnly, "Dynamo's cost, overlap weight 4"},
     {"least_loaded", IndexKind::kExact, "least loaded", false},
     {"round_robin", IndexKind::kExact, "round robin", false}}};

Status RunPolicy(const simulate::SliceSetup& setup, const simulate::FleetOptions& fleet,
                 const Policy& policy, PolicyResult& result) {
  const auto rule = simulate::ParseRule(policy.rule);
  if (!rule.ok()) return rule.status();
  auto run = simulate::RunFleet(setup, fleet, *rule, policy.index);
  if (!run.ok()) return run.status();
  result = {.rule = policy.rule,
            .index = std::string(IndexKindName(policy.index)),
            .title = policy.title,
            .reads_index = policy.reads_index,
            .run = std::move(run).value()};
  return {};
}

// Runs as many policies at a time as there are cores. The result does not depend on this number.
Result<PolicyComparison> RunPolicies(const simulate::SliceSetup& setup,
                                     const simulate::FleetOptions& fleet) {
  PolicyComparison comparison;
  comparison.policies.resize(kPolicies.size());
  std::array<Status, kPolicies.size()> statuses;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < kPolicies.size(); i = next++) {
      statuses[i] = RunPolicy(setup, fleet, kPolicies[i], comparison.policies[i]);
    }
  };
  const size_t cores = std::min<size_t>(std::thread::hardware_concurrency(), kPolicies.size());
  std::vector<std::thread> threads;
  for (size_t t = 1; t < cores; ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return comparison;
}

}  // namespace

bool PolicyComparison::exact() const {
  return std::ranges::all_of(policies, [](const PolicyResult& policy) {
    return policy.run.exact_checked > 0 && policy.run.exact_equal == policy.run.exact_checked;
  });
}

Result<PolicyComparison> ComparePolicies(const DemoOptions& options,
                                         const std::vector<TraceRequest>& trace) {
  if (options.cache.draft_tokens > 0) {
    PolicyComparison none;
    none.left_out = "the simulation has no draft tokens";
    return none;
  }
  const auto cache = MakeCacheConfig(options.cache);
  if (!cache.ok()) return cache.status();
  const auto offload = MakeOffloadKind(options.cache);
  if (!offload.ok()) return offload.status();
  // XXH3 is the fastest of the engines' hash functions; the results do not depend on the hash.
  auto hasher = MakeHasher("xxhash", {});
  if (!hasher.ok()) return hasher.status();
  const simulate::Slice slice = simulate::SliceOfTrace(trace);
  const simulate::Prompts prompts(slice, cache->hash_block_size, std::move(hasher).value());
  const SimEngineConfig engine = MakeSimConfig(options.cache);
  const simulate::SimModel model{.name = options.cache.model,
                                 .groups = cache->groups,
                                 .time = engine.step,
                                 .load_tokens_per_s = engine.load_tokens_per_s};
  return RunPolicies({.model = model,
                      .slice = slice,
                      .prompts = prompts,
                      .cache = *cache,
                      .max_batched_tokens = engine.max_batched_tokens},
                     {.engines = options.engines,
                      .cpu_blocks = options.cache.cpu_blocks,
                      .offload = *offload,
                      .blocks_per_chunk = options.cache.blocks_per_chunk});
}

}  // namespace kvcast::tools
