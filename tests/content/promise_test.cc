// The router's prediction of loads equals the engine's load at every lookup that no running copy
// affects. The router gets only the events of both pools.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kvcast/router/prefix_index.h"
#include "tests/content/content_run.h"
#include "tests/content/mixes.h"

namespace kvcast::content {
namespace {

constexpr WorkerId kWorker(1);

struct Promises {
  int64_t lookups = 0;
  int64_t loads = 0;
  int64_t wrong = 0;
};

OffloadRule RuleOf(const RunConfig& config) {
  if (config.tier != TierKind::kConnector) return OffloadRule::kMirroredPool;
  return config.fault == Fault::kLikeVllm ? OffloadRule::kConnector
                                          : OffloadRule::kOffloadScheduler;
}

Promises Compare(RunConfig config) {
  PrefixIndex index;
  WorkerConfig worker;
  worker.groups = config.groups;
  worker.hash_block_size = config.hash_block_size;
  worker.blocks_per_chunk = config.blocks_per_chunk;
  worker.offload_rule = RuleOf(config);
  EXPECT_TRUE(index.AddWorker(kWorker, worker).ok());
  Promises promises;
  // Until the copy of a late load ends, no request loads the chunks of this load. No event reports
  // this to the router, so the run has no late loads.
  config.late_load_ms = 0;
  config.on_events = [&](std::vector<Event> events) {
    EventBatch batch;
    batch.events = std::move(events);
    index.Apply(kWorker, batch);
  };
  config.on_lookup = [&](const FreeLookup& lookup) {
    std::vector<BlockHash> chain;
    for (const Digest& digest : lookup.request.chain) {
      chain.push_back(ToEventHash(digest, EventHashForm::kInt64));
    }
    const int64_t tokens = std::ssize(lookup.request.tokens);
    const auto matches = index.Match(chain, config.hash_block_size, tokens);
    const int64_t served = std::min(lookup.local_tokens + lookup.external_tokens, tokens - 1);
    ++promises.lookups;
    promises.loads += lookup.external_tokens > 0;
    const bool right = matches.size() == 1 && matches[0].gpu_tokens == lookup.local_tokens &&
                       matches[0].with_cpu_tokens == std::max(served, lookup.local_tokens);
    promises.wrong += !right;
  };
  ContentRun(config).Run();
  return promises;
}

class RouterPromise : public ::testing::TestWithParam<RunConfig> {};
INSTANTIATE_TEST_SUITE_P(Mixes, RouterPromise, ::testing::ValuesIn(Mixes()),
                         [](const auto& test) { return test.param.name; });

TEST_P(RouterPromise, EqualsTheLoadOfTheEngine) {
  Promises sum;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    RunConfig config = GetParam();
    config.seed = seed;
    const Promises promises = Compare(config);
    EXPECT_EQ(promises.wrong, 0) << "seed " << seed << ", of " << promises.lookups;
    sum.lookups += promises.lookups;
    sum.loads += promises.loads;
  }
  EXPECT_GT(sum.lookups, 100);
  EXPECT_GT(sum.loads, 10);
}

// In vLLM, a reset of the connector's host memory sends no event, so a router predicts tokens that
// the engine does not hold any more.
TEST(Compatible, PromisesAreBrokenByTheResetsOfTheCompatibleMode) {
  int64_t wrong = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    RunConfig config = Mix("FullConnector");
    config.fault = Fault::kLikeVllm;
    config.seed = seed;
    wrong += Compare(config).wrong;
  }
  EXPECT_GT(wrong, 0);
}

TEST(Events, OfTheSameSeedAreTheSame) {
  for (const char* mix : {"FullWindowConnector", "FullWindowSimpleLazy"}) {
    RunConfig config = Mix(mix);
    const auto run = [&config] {
      std::vector<Event> all;
      config.on_events = [&all](std::vector<Event> events) {
        all.insert(all.end(), events.begin(), events.end());
      };
      ContentRun(config).Run();
      return all;
    };
    const std::vector<Event> first = run();
    EXPECT_GT(first.size(), 100u);
    EXPECT_TRUE(run() == first) << mix;
  }
}

}  // namespace
}  // namespace kvcast::content
