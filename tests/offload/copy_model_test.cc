// Whatever happens to requests and copies, no token is read, stored or announced that is not the
// one its key names.
// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/copy_model.h"

#include <gtest/gtest.h>

namespace kvcast::offload {
namespace {

class Copies : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Mixes, Copies, ::testing::Range(0, kCopyModelMixes));

TEST_P(Copies, MoveWhatTheirKeysSay) {
  CopyModelCounts sum;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    CopyModelConfig config = CopyModelMix(GetParam());
    config.seed = seed;
    config.failure_rate = seed % 2 == 0 ? 0.1 : 0;
    config.reset_rate = seed % 3 == 0 ? 0.03 : 0;
    const CopyModelCounts counts = CopyModel(config).Run();
    EXPECT_EQ(counts.poisoned, 0) << "seed " << seed;
    EXPECT_EQ(counts.garbled, 0) << "seed " << seed;
    sum.loads += counts.loads;
    sum.stores += counts.stores;
    sum.flushes += counts.flushes;
    sum.preemptions += counts.preemptions;
    sum.failures += counts.failures;
    sum.resets += counts.resets;
  }
  RecordProperty("loads", static_cast<int>(sum.loads));
  EXPECT_GT(sum.loads, 20);
  EXPECT_GT(sum.stores, 100);
  EXPECT_GT(sum.flushes, 10);
  EXPECT_GT(sum.failures, 5);
  EXPECT_GT(sum.resets, 5);
}

TEST(CopyModel, SameSeedSameRun) {
  CopyModelConfig config = CopyModelMix(1);
  config.failure_rate = 0.1;
  config.reset_rate = 0.03;
  const auto run = [&config] {
    std::vector<Event> all;
    config.on_events = [&all](std::vector<Event> events) {
      all.insert(all.end(), events.begin(), events.end());
    };
    config.on_lookup = [](const CopyModelLookup&) {};
    CopyModel(config).Run();
    return all;
  };
  const std::vector<Event> first = run();
  EXPECT_GT(first.size(), 100u);
  EXPECT_TRUE(run() == first);
}

// That the model sees the engine's faults is what makes it a test.
TEST(CopyModel, SeesTheFaultsOfTheCompatibleMode) {
  int64_t poisoned = 0;
  int64_t garbled = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    CopyModelConfig config = CopyModelMix(2);
    config.seed = seed;
    config.reset_rate = 0.03;
    config.compatible = true;
    const CopyModelCounts counts = CopyModel(config).Run();
    poisoned += counts.poisoned;
    garbled += counts.garbled;
  }
  EXPECT_GT(poisoned, 0);
  EXPECT_GT(garbled, 0);
}

}  // namespace
}  // namespace kvcast::offload
