// No answer about loads that is marked exact is wrong. Engines of random configurations have host
// memory behind the GPU. A source follows each engine. The registration of the source is complete,
// hides properties of the engine, or states a property wrongly.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>

#include "tests/router/exactness/engine_follower.h"
#include "tests/support/setting.h"

namespace kvcast::engine {
namespace {

constexpr int kLoadSteps = 40;
constexpr int kLoadProbes = 4;  // per step
constexpr int kRules = 3;
constexpr const char* kRuleNames[kRules] = {"connector", "offload_scheduler", "mirrored_pool"};

struct DrawnHost {
  OffloadRule rule = OffloadRule::kConnector;
  int64_t blocks_per_chunk = 1;
  int64_t chunks = 0;  // capacity in chunks; in blocks for a mirrored pool
  bool described = true;
  bool prompt_only = false;
  bool request_level = false;
  bool arc = false;
  bool lazy = false;
  bool told = true;  // the registration contains the offload rule
};

DrawnHost DrawHost(Random& random) {
  DrawnHost host;
  host.rule = static_cast<OffloadRule>(Pick(random, 0, kRules - 1));
  const bool mirrored = host.rule == OffloadRule::kMirroredPool;
  host.blocks_per_chunk = mirrored ? 1 : Pick(random, 1, 3);
  host.chunks = Pick(random, 40, 400);
  host.described = Pick(random, 0, 3) > 0;
  host.prompt_only = Pick(random, 0, 3) == 0;
  host.request_level = Pick(random, 0, 3) == 0;
  host.arc = Pick(random, 0, 2) == 0;
  host.lazy = Pick(random, 0, 2) == 0;
  host.told = Pick(random, 0, 9) > 0;
  return host;
}

OffloadSchedulerConfig ConnectorOf(const DrawnHost& host, const Drawn& drawn,
                                   const CacheConfig& cache) {
  OffloadSchedulerConfig config;
  config.layout = {.groups = cache.groups,
                   .tokens_per_hash = cache.hash_block_size,
                   .blocks_per_chunk = host.blocks_per_chunk,
                   .decode_context_parallel = cache.decode_context_parallel,
                   .retention_interval = cache.retention_interval};
  config.memory.page_bytes = 16;
  config.memory.chunk_bytes.assign(cache.groups.size(), 16);
  config.memory.capacity_bytes = 16 * host.chunks;
  if (host.arc) config.memory.policy = EvictionPolicyKind::kArc;
  config.rules = cache.rules;
  if (host.request_level) config.policy = OffloadPolicy::kRequestLevel;
  config.prompt_only = host.prompt_only;
  config.max_pending_ms = 30;
  config.late_load_ms = int64_t{1} << 40;
  config.hash_form = drawn.events.hash_form;
  config.self_describing_events = host.described;
  config.compatible = host.rule == OffloadRule::kConnector;
  return config;
}

SimpleOffloadConfig MirrorOf(const DrawnHost& host, const Drawn& drawn, const CacheConfig& cache) {
  return {.cache = cache,
          .num_cpu_blocks = host.chunks,
          .mode = host.lazy ? StoreMode::kLazy : StoreMode::kEager,
          .events = drawn.events};
}

struct LoadCounts {
  int64_t answers = 0;
  int64_t loads = 0;    // answers for which the engine would load
  int64_t waiting = 0;  // lookups of the engine that wait for copies without a time limit
  int64_t exact = 0;
  int64_t exact_loads = 0;
  int64_t equal = 0;  // answers equal to the engine's lookup
};

// Only the dialect kvcast-1 names the tier of a clear. vLLM's connector sends no clear.
Dialect DialectOf(const DrawnHost& host, const Drawn& drawn) {
  return host.rule == OffloadRule::kConnector ? DialectOf(drawn) : Dialect::kKvcast1;
}

// If the configuration of the host memory is refused, the engine gets no source.
void AttachHost(Random& random, const Drawn& drawn, const DrawnHost& host, const CacheConfig& cache,
                Change change, EngineFollower& follower) {
  RandomEngine& engine = follower.engine();
  auto memory = host.rule == OffloadRule::kMirroredPool
                    ? HostMemory::Make(random, engine.cache(), MirrorOf(host, drawn, cache))
                    : HostMemory::Make(random, engine.cache(), ConnectorOf(host, drawn, cache));
  if (memory == nullptr) return;
  engine.set_host(std::move(memory));
  router::WorkerRegistration told = SourceOf(drawn, cache, change);
  told.worker.blocks_per_chunk = host.blocks_per_chunk;
  if (host.told) told.worker.offload_rule = host.rule;
  follower.Register(told);
}

void ProbeLoad(EngineFollower& follower, LoadCounts& counts) {
  RandomEngine& engine = follower.engine();
  CacheRequest request = engine.ProbeRequest();
  const int64_t hit = engine.Lookup(request);
  const std::optional<int64_t> served = engine.LookupWithHost(request, hit);
  counts.waiting += !served;
  if (!served) return;
  const router::Query query = EngineFollower::QueryOf(request);
  const router::QueryAnswer answer = follower.Ask(query);
  ++counts.answers;
  counts.loads += *served > hit;
  counts.exact += answer.exact_with_cpu;
  counts.exact_loads += answer.exact_with_cpu && *served > hit;
  counts.equal += answer.match.with_cpu_tokens == *served;
  const std::string about = "prompt of " + std::to_string(query.prompt_tokens) + ", named by " +
                            std::string(router::NamedByName(answer.named_by)) +
                            (query.inputs.lora_name.empty() ? "" : ", LoRA") +
                            (query.inputs.cache_salt.empty() ? "" : ", salt") +
                            (query.inputs.mm_items.empty() ? "" : ", images");
  if (answer.exact) {
    EXPECT_EQ(answer.match.gpu_tokens, hit) << about;
  }
  if (answer.exact_with_cpu) {
    EXPECT_EQ(answer.match.with_cpu_tokens, *served) << about << ", hit " << hit;
  }
}

std::string DescribeHost(const DrawnHost& host) {
  return std::string(kRuleNames[static_cast<size_t>(host.rule)]) + " blocks_per_chunk " +
         std::to_string(host.blocks_per_chunk) + " chunks " + std::to_string(host.chunks) +
         (host.described ? "" : " undescribed") + (host.lazy ? " lazy" : "");
}

// KVCAST_EXACTNESS_SEED sets the first seed, KVCAST_EXACTNESS_SEEDS the number of seeds.
TEST(ExactnessOfLoads, NoAnswerIsExactAndWrong) {
  const auto first = static_cast<uint64_t>(testing::Setting("KVCAST_EXACTNESS_SEED", 1));
  const auto seeds = static_cast<uint64_t>(testing::Setting("KVCAST_EXACTNESS_SEEDS", 300));
  std::array<LoadCounts, kRules> counts;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Random random(seed);
    const Drawn drawn = Draw(random);
    const DrawnHost host = DrawHost(random);
    const auto cache = ValidateCacheConfig(drawn.cache);
    if (!cache.ok()) continue;
    const auto change = static_cast<Change>(Pick(random, 0, static_cast<int>(Change::kCount) - 1));
    SCOPED_TRACE("seed " + std::to_string(seed) + ", change " +
                 std::to_string(static_cast<int>(change)) + ", " + Describe(drawn) + ", " +
                 DescribeHost(host));
    EngineFollower follower(random, drawn, *cache, DialectOf(host, drawn));
    AttachHost(random, drawn, host, *cache, change, follower);
    for (int step = 0; step < kLoadSteps && follower.registered(); ++step) {
      follower.Step();
      for (int i = 0; i < kLoadProbes; ++i) {
        ProbeLoad(follower, counts[static_cast<size_t>(host.rule)]);
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
  for (size_t rule = 0; rule < counts.size(); ++rule) {
    const LoadCounts& of = counts[rule];
    std::cout << kRuleNames[rule] << ": " << of.answers << " answers, " << of.loads << " load, "
              << of.exact << " exact, " << of.exact_loads << " of them load, " << of.equal
              << " equal; " << of.waiting << " lookups without an answer\n";
    EXPECT_GT(of.exact_loads, 0) << kRuleNames[rule];
  }
}

}  // namespace
}  // namespace kvcast::engine
