// The test uses real bytes. Requests end at random, and copies fail or are late at random. The
// offload path never reads a wrong KV byte, neither on the GPU nor after a load from host memory.
// KVCAST_CONTENT_OPS sets the total number of operations.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "src/base/sanitizers.h"
#include "tests/content/content_run.h"
#include "tests/content/mixes.h"
#include "tests/support/setting.h"

namespace kvcast::content {
namespace {

constexpr int64_t kOperationsOfARun = 2500;

int64_t OperationsOfAMix() {
  const int64_t all = testing::Setting("KVCAST_CONTENT_OPS", kSanitized ? 100'000 : 150'000);
  return CeilDiv(all, static_cast<int64_t>(Mixes().size()));
}

class Content : public ::testing::TestWithParam<RunConfig> {};
INSTANTIATE_TEST_SUITE_P(Mixes, Content, ::testing::ValuesIn(Mixes()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Content, EveryBlockHasTheBytesOfItsKey) {
  RunCounts sum;
  int64_t left = OperationsOfAMix();
  for (uint64_t seed = 1; left > 0 && !HasFailure(); ++seed) {
    RunConfig config = GetParam();
    config.seed = seed;
    if (seed % 2 == 0) config.host_blocks /= 3;
    if (seed % 4 > 1) config.rules = EngineRules::kV033;
    config.operations = std::min(left, kOperationsOfARun);
    SCOPED_TRACE("seed " + std::to_string(seed));
    ContentRun run(config);
    run.Run();
    EXPECT_EQ(run.findings().sum(), 0) << run.findings().first;
    left -= run.counts().operations();
    sum.Add(run.counts());
  }
  RecordProperty("counts", sum.Text());
  if (std::getenv("KVCAST_CONTENT_OPS") != nullptr) std::puts(sum.Text().c_str());
  EXPECT_GT(sum.loads, 2) << sum.Text();
  EXPECT_GT(sum.stores, 20) << sum.Text();
  EXPECT_GT(sum.preemptions, 0) << sum.Text();
  EXPECT_GT(sum.failed_stores, 0) << sum.Text();
}

// If a load has no result in time, the engine computes the tokens of the load. The late load
// corrupts no bytes.
TEST(LateLoads, AreComputedInsteadAndKeepTheirBlocks) {
  for (const char* mix :
       {"FullConnector", "ThreeSizesConnector", "FullSimpleEager", "FullWindowSimpleLazy"}) {
    RunCounts sum;
    for (uint64_t seed = 1; seed <= (kSanitized ? 3u : 6u) && !HasFailure(); ++seed) {
      RunConfig config = Mix(mix);
      config.seed = seed;
      SCOPED_TRACE(config.name + ", seed " + std::to_string(seed));
      ContentRun run(config);
      run.Run();
      EXPECT_EQ(run.findings().sum(), 0) << run.findings().first;
      sum.Add(run.counts());
    }
    EXPECT_GT(sum.late_loads, 3) << mix << ": " << sum.Text();
  }
}

// Chunks have 48, 24 and 12 tokens. A hit may end inside a chunk of a window. A load that ends
// inside a chunk reads one chunk more than a load that ends at the end of a chunk.
TEST(Promises, NoPredictedHitIsRefusedWithSeveralChunkSizes) {
  for (uint64_t seed = 1; seed <= (kSanitized ? 6u : 24u) && !HasFailure(); ++seed) {
    RunConfig config = Mix("ThreeSizesConnectorChunksOf3");
    config.host_blocks /= 3;
    config.seed = seed;
    config.operations = 2500;
    SCOPED_TRACE("seed " + std::to_string(seed));
    ContentRun run(config);
    run.Run();
    EXPECT_EQ(run.findings().sum(), 0) << run.findings().first;
  }
}

}  // namespace
}  // namespace kvcast::content
