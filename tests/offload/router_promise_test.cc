// What the router promises of host memory is what the engine loads: from the events of both pools
// alone, lookup by lookup.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kvcast/prefix_index.h"
#include "tests/offload/copy_model.h"

namespace kvcast::offload {
namespace {

constexpr WorkerId kWorker(1);

struct Promises {
  int64_t lookups = 0;
  int64_t loads = 0;
  int64_t wrong = 0;
};

Promises Compare(CopyModelConfig config) {
  PrefixIndex index;
  WorkerConfig worker;
  worker.groups = config.groups;
  worker.hash_block_size = 4;
  worker.blocks_per_chunk = config.blocks_per_chunk;
  if (!config.compatible) worker.offload_rule = OffloadRule::kOffloadScheduler;
  EXPECT_TRUE(index.AddWorker(kWorker, worker).ok());
  Promises promises;
  config.on_events = [&](std::vector<Event> events) {
    EventBatch batch;
    batch.events = std::move(events);
    index.Apply(kWorker, batch);
  };
  config.on_lookup = [&](const CopyModelLookup& lookup) {
    std::vector<BlockHash> chain;
    for (const Digest& digest : lookup.request.chain) {
      chain.push_back(ToEventHash(digest, EventHashForm::kInt64));
    }
    const int64_t tokens = std::ssize(lookup.request.tokens);
    const auto matches = index.Match(chain, 4, tokens);
    const int64_t served = std::min(lookup.local_tokens + lookup.external_tokens, tokens - 1);
    ++promises.lookups;
    promises.loads += lookup.external_tokens > 0;
    const bool right = matches.size() == 1 && matches[0].gpu_tokens == lookup.local_tokens &&
                       matches[0].with_cpu_tokens == std::max(served, lookup.local_tokens);
    promises.wrong += !right;
  };
  CopyModel(config).Run();
  return promises;
}

class RouterPromise : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Mixes, RouterPromise, ::testing::Range(0, kCopyModelMixes));

TEST_P(RouterPromise, IsWhatTheEngineLoads) {
  Promises sum;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    CopyModelConfig config = CopyModelMix(GetParam());
    config.seed = seed;
    config.reset_rate = seed == 3 ? 0.03 : 0;
    const Promises promises = Compare(config);
    EXPECT_EQ(promises.wrong, 0) << "seed " << seed << ", of " << promises.lookups;
    sum.lookups += promises.lookups;
    sum.loads += promises.loads;
  }
  EXPECT_GT(sum.lookups, 200);
  EXPECT_GT(sum.loads, 20);
}

// vLLM's resets say nothing, so that its readers promise what is gone.
TEST(Compatible, PromisesAreBrokenByTheResetsOfTheCompatibleMode) {
  CopyModelConfig config = CopyModelMix(0);
  config.compatible = true;
  config.reset_rate = 0.03;
  EXPECT_GT(Compare(config).wrong, 0);
}

}  // namespace
}  // namespace kvcast::offload
