// Loads from the host memory of the simulated engine return the computed bytes. If a load fails,
// the engine computes the tokens of the load again.
// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/host_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/base/sanitizers.h"
#include "tests/apps/engine/tiered_engine.h"

namespace kvcast::tools {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string model;
  OffloadKind kind;
  int64_t blocks_per_chunk = 1;

  std::string Name() const {
    std::string name = model;
    std::erase(name, '-');
    name += kind == OffloadKind::kMirrorEager  ? "Eager"
            : kind == OffloadKind::kMirrorLazy ? "Lazy"
                                               : "Connector";
    return blocks_per_chunk == 1 ? name : name + "ChunksOf" + std::to_string(blocks_per_chunk);
  }
};
void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.Name(); }
class HostTierOf : public ::testing::TestWithParam<Case> {
 protected:
  TierOptions Small() const {
    TierOptions setup;
    setup.model = GetParam().model;
    setup.kind = GetParam().kind;
    setup.blocks_per_chunk = GetParam().blocks_per_chunk;
    if (setup.model != "full") setup.gpu_blocks = 200;
    if (setup.model != "full") setup.cpu_blocks = 2001;
    return setup;
  }
  bool is_connector() const { return GetParam().kind == OffloadKind::kConnector; }
  int64_t chunk() const { return 16 * GetParam().blocks_per_chunk; }
  // Loaded tokens of a prompt of 320 tokens (20 blocks). The load of a mirror ends on a block
  // boundary before the last token. A connector loads the last block too, and the engine computes
  // the last token again.
  int64_t LoadedOf320() const {
    return is_connector() ? std::min<int64_t>(320 / chunk() * chunk(), 319) : 304;
  }
};
INSTANTIATE_TEST_SUITE_P(
    Models, HostTierOf,
    ::testing::Values(
        Case{"full", OffloadKind::kMirrorEager}, Case{"full", OffloadKind::kMirrorLazy},
        Case{"full", OffloadKind::kConnector}, Case{"full", OffloadKind::kConnector, 4},
        Case{"hybrid", OffloadKind::kMirrorEager}, Case{"hybrid", OffloadKind::kMirrorLazy},
        Case{"hybrid", OffloadKind::kConnector}, Case{"gpt-oss", OffloadKind::kMirrorEager},
        Case{"gpt-oss", OffloadKind::kMirrorLazy}, Case{"gpt-oss", OffloadKind::kConnector},
        Case{"gpt-oss", OffloadKind::kConnector, 3}, Case{"gemma3", OffloadKind::kConnector}),
    [](const auto& test) { return test.param.Name(); });

TEST_P(HostTierOf, LoadsBlocksThatTheGpuHasEvicted) {
  Tiered tiered(Small());
  tiered.Serve(320, 0);
  tiered.FillGpu();
  tiered.Serve(320, 0);
  EXPECT_EQ(tiered.admissions.back().hit_tokens, 0);
  EXPECT_EQ(tiered.admissions.back().loaded_tokens, LoadedOf320());
  EXPECT_EQ(tiered.totals().loaded_tokens, LoadedOf320());
  EXPECT_GE(tiered.host().loaded_blocks(), LoadedOf320() / 16);
  EXPECT_GE(tiered.host().checked_blocks(), LoadedOf320() / 16);
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
  tiered.ExpectAllGivenBack();
}

TEST_P(HostTierOf, LoadsTheBlocksAfterTheHitOnTheGpu) {
  Tiered tiered(Small());
  tiered.Serve(320, 0);
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  tiered.Serve(320, 0);  // loads the blocks back to the GPU
  tiered.Serve(320, 0);
  const Admission& third = tiered.admissions.back();
  if (is_connector()) {
    // The connector may load the last block once more, or the window blocks that the previous load
    // left out.
    EXPECT_GE(third.hit_tokens + third.loaded_tokens, 304);
  } else {
    EXPECT_EQ(third.hit_tokens, 304);
    EXPECT_EQ(third.loaded_tokens, 0);
  }
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  // The first request has only the first half of the prompt. After this request, the GPU and host
  // memory have the blocks of this half.
  tiered.Serve(161, 0);
  tiered.Serve(320, 0);
  EXPECT_EQ(tiered.admissions.back().hit_tokens, 160);
  EXPECT_EQ(tiered.admissions.back().loaded_tokens, LoadedOf320() - 160);
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
}

// Adds many requests with few different prefixes. The blocks of the requests exceed the GPU pool,
// and requests with long answers preempt each other.
void Traffic(Tiered& tiered, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random);
  };
  for (int i = 0; i < 150; ++i) {
    tiered.Add(16 + below(300), 10'000 * below(8), 1 + below(120));
    for (int64_t steps = below(30); steps > 0; --steps) tiered.engine().Step();
    if (below(20) != 0) continue;
    // The reset succeeds only if no request runs.
    if (below(2) == 0) tiered.RunUntilIdle();
    tiered.engine().ResetPrefixCache();
  }
  tiered.RunUntilIdle();
}

TEST_P(HostTierOf, SameRequestsSameTotals) {
  std::vector<std::vector<int64_t>> runs;
  for (int run = 0; run < 2; ++run) {
    Tiered tiered(Small());
    Traffic(tiered, 7);
    const SimTotals& totals = tiered.totals();
    std::vector<int64_t> figures = {totals.finished,
                                    totals.preempted,
                                    totals.reused_tokens,
                                    totals.loaded_tokens,
                                    totals.recomputed_again,
                                    totals.steps,
                                    tiered.num_events,
                                    tiered.host().stored_blocks(),
                                    tiered.host().loaded_blocks(),
                                    tiered.host().checked_blocks()};
    for (const Admission& admission : tiered.admissions) {
      figures.insert(figures.end(),
                     {admission.number, admission.hit_tokens, admission.loaded_tokens});
    }
    runs.push_back(std::move(figures));
  }
  EXPECT_EQ(runs[0], runs[1]);
}

// Every loaded block holds the right bytes, and every hit equals the hit that the index predicted
// from the events. The traffic includes resets of the GPU cache. Host memory keeps its blocks at a
// reset.
TEST_P(HostTierOf, NoTrafficBringsAWrongBlock) {
  int64_t preempted = 0;
  int64_t loaded = 0;
  for (uint64_t seed = 1; seed <= (kSanitized ? 1u : 3u); ++seed) {
    Tiered tiered(Small());
    Traffic(tiered, seed);
    EXPECT_EQ(tiered.finished.size(), 150u);
    EXPECT_EQ(tiered.host().wrong_blocks(), 0);
    EXPECT_EQ(tiered.wrong_predictions, 0) << "of " << tiered.admissions.size();
    tiered.ExpectAllGivenBack();
    preempted += tiered.totals().preempted;
    loaded += tiered.host().loaded_blocks();
  }
  if (GetParam().model == "full") {
    EXPECT_GT(preempted, 5);
  }
  EXPECT_GT(loaded, 100);
}

// Host memory is smaller than the prefixes of the prompts, so it evicts blocks all the time.
TEST_P(HostTierOf, EvictionsCauseNoWrongPrediction) {
  int64_t removed = 0;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    TierOptions setup = Small();
    setup.cpu_blocks = setup.gpu_blocks + 20;
    Tiered tiered(std::move(setup));
    tiered.on_events = [&removed](const std::vector<Event>& events) {
      for (const Event& event : events) {
        const auto* remove = std::get_if<BlockRemoved>(&event);
        if (remove != nullptr && remove->medium == kMediumCpu) {
          removed += std::ssize(remove->block_hashes);
        }
      }
    };
    Traffic(tiered, seed);
    EXPECT_EQ(tiered.finished.size(), 150u);
    EXPECT_EQ(tiered.host().wrong_blocks(), 0);
    EXPECT_EQ(tiered.wrong_predictions, 0) << "of " << tiered.admissions.size();
    tiered.ExpectAllGivenBack();
  }
  EXPECT_GT(removed, 100);
}

TEST_P(HostTierOf, FailedCopiesCauseRecomputesAndNoWrongBytes) {
  TierOptions setup = Small();
  setup.backend = std::make_unique<FaultyBackend>([](CopyDirection direction, int64_t number) {
    if (number % 3 != 1) return Fate::kCopied;
    return direction == CopyDirection::kLoad && number % 2 == 0 ? Fate::kRefused : Fate::kFailed;
  });
  Tiered tiered(std::move(setup));
  Traffic(tiered, 5);
  EXPECT_EQ(tiered.finished.size(), 150u);
  EXPECT_GT(tiered.totals().failed_loads, 5);
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
  EXPECT_EQ(tiered.wrong_predictions, 0) << "of " << tiered.admissions.size();
  tiered.ExpectAllGivenBack();
}

// The check of the previous tests must detect bytes that did not arrive.
TEST_P(HostTierOf, ALoadThatBringsNoBytesIsDetected) {
  TierOptions setup = Small();
  setup.backend = Faulty(CopyDirection::kLoad, Fate::kLost);
  Tiered tiered(std::move(setup));
  tiered.Serve(320, 0);
  tiered.FillGpu();
  tiered.Serve(320, 0);
  EXPECT_GE(tiered.host().loaded_blocks(), LoadedOf320() / 16);
  EXPECT_EQ(tiered.host().wrong_blocks(), tiered.host().loaded_blocks());
}

TEST_P(HostTierOf, AStoreThatSavesNoBytesIsDetected) {
  TierOptions setup = Small();
  setup.backend = Faulty(CopyDirection::kStore, Fate::kLost);
  Tiered tiered(std::move(setup));
  tiered.Serve(320, 0);
  tiered.FillGpu();
  tiered.Serve(320, 0);
  EXPECT_GE(tiered.host().loaded_blocks(), LoadedOf320() / 16);
  EXPECT_EQ(tiered.host().wrong_blocks(), tiered.host().loaded_blocks());
}

// The destination block of a load may already hold the right bytes. The check must detect the
// missing copy even then.
TEST(HostTier, MissingBytesAreDetectedIfTheBlockHeldThemBefore) {
  TierOptions setup;
  setup.gpu_blocks = 22;
  setup.backend = Faulty(CopyDirection::kLoad, Fate::kLost);
  Tiered tiered(std::move(setup));
  tiered.Serve(320, 0);
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  tiered.Serve(320, 0);
  EXPECT_EQ(tiered.host().loaded_blocks(), 19);
  EXPECT_EQ(tiered.host().wrong_blocks(), 19);
}

TEST_P(HostTierOf, AFailedLoadIsComputedInstead) {
  for (const Fate fate : {Fate::kFailed, Fate::kRefused}) {
    TierOptions setup = Small();
    setup.backend = Faulty(CopyDirection::kLoad, fate, 1);
    Tiered tiered(std::move(setup));
    tiered.Serve(320, 0);
    tiered.FillGpu();
    tiered.Serve(320, 0);
    // The load of the first admission fails. The second admission of the same request loads
    // nothing.
    ASSERT_EQ(tiered.admissions.size(), 9u);
    EXPECT_EQ(tiered.admissions[7].loaded_tokens, LoadedOf320());
    EXPECT_EQ(tiered.admissions[8].number, tiered.admissions[7].number);
    EXPECT_FALSE(tiered.admissions[8].first);
    EXPECT_EQ(tiered.admissions[8].loaded_tokens, 0);
    EXPECT_EQ(tiered.finished.size(), 8u);
    EXPECT_EQ(tiered.host().wrong_blocks(), 0);
    EXPECT_EQ(tiered.totals().failed_loads, 1);
    EXPECT_EQ(tiered.totals().loaded_tokens, 0) << "the load failed";
    EXPECT_EQ(tiered.totals().recomputed_again, 0)
        << "the engine had not computed these tokens for this request before";
    tiered.ExpectAllGivenBack();
    // The request that computed the tokens has stored them again.
    tiered.FillGpu();
    tiered.Serve(320, 0);
    EXPECT_EQ(tiered.totals().loaded_tokens, LoadedOf320());
  }
}

TEST(HostTier, OneFailedCopyFailsAllRequestsThatItServes) {
  TierOptions setup;
  setup.gpu_blocks = 101;
  setup.backend = Faulty(CopyDirection::kLoad, Fate::kFailed, 1);
  Tiered tiered(std::move(setup));
  tiered.Serve(320, 0);
  tiered.Serve(320, 5000);
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  tiered.Add(320, 0);
  tiered.Add(320, 5000);  // in the same step, so in the same copy
  tiered.RunUntilIdle();
  EXPECT_EQ(tiered.totals().failed_loads, 2);
  EXPECT_EQ(tiered.finished.size(), 4u);
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
  tiered.ExpectAllGivenBack();
}

TEST(HostTier, IfAllStoresFailNothingIsLoadedAndAllRequestsFinish) {
  for (const OffloadKind kind :
       {OffloadKind::kMirrorEager, OffloadKind::kMirrorLazy, OffloadKind::kConnector}) {
    TierOptions setup;
    setup.kind = kind;
    setup.backend = Faulty(CopyDirection::kStore, Fate::kFailed);
    Tiered tiered(std::move(setup));
    tiered.Serve(320, 0);
    tiered.FillGpu();
    tiered.Serve(320, 0);
    EXPECT_EQ(tiered.totals().loaded_tokens, 0);
    EXPECT_EQ(tiered.finished.size(), 8u);
    tiered.ExpectAllGivenBack();
  }
}

// The blocks at the head of the GPU's free list exceed the capacity of host memory. The tier must
// not store these blocks again and again.
TEST(HostTier, ALazyTierSmallerThanTheFreeListStopsStoring) {
  TierOptions setup;
  setup.kind = OffloadKind::kMirrorLazy;
  setup.cpu_blocks = 9;
  Tiered tiered(std::move(setup));
  tiered.FillGpu();
  const int64_t stored = tiered.host().stored_blocks();
  tiered.Serve(17, 0);
  EXPECT_LE(tiered.host().stored_blocks(), stored + 16);
}

TEST(HostTier, APreemptedRequestLoadsItsBlocksWithTheRightBytes) {
  TierOptions setup;
  setup.cpu_blocks = 401;
  Tiered tiered(std::move(setup));
  for (TokenId i = 0; i < 4; ++i) tiered.Add(140, 1000 * i, 200);
  tiered.RunUntilIdle();
  EXPECT_GT(tiered.totals().preempted, 0);
  const auto loaded_again = std::ranges::count_if(tiered.admissions, [](const Admission& seen) {
    return !seen.first && seen.loaded_tokens > 0;
  });
  EXPECT_GT(loaded_again, 0);
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
  EXPECT_EQ(tiered.finished.size(), 4u);
  // At a preemption, host memory may lack the last tokens of the request. The engine computes at
  // most two blocks of tokens again per preemption.
  EXPECT_LE(tiered.totals().recomputed_again, tiered.totals().preempted * 2 * 16);
}

// The second request stores the blocks that it hits. At this time, the first request has not yet
// reported to the scheduler that it has computed these blocks.
TEST(HostTier, BlocksHitInTheStepThatComputesThemAreStored) {
  TierOptions setup;
  setup.gpu_blocks = 101;
  setup.backend = Faulty(CopyDirection::kStore, Fate::kCopied);  // completes within Submit
  Tiered tiered(std::move(setup));
  tiered.Add(320, 0);
  tiered.Add(320, 0);
  tiered.RunUntilIdle();
  ASSERT_EQ(tiered.admissions.back().hit_tokens, 304);
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  tiered.Serve(320, 0);
  EXPECT_EQ(tiered.admissions.back().loaded_tokens, 304);
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
}

TEST(HostTier, LoadsShareTheBandwidthToTheGpu) {
  TierOptions setup;
  setup.gpu_blocks = 101;
  setup.engine.load_tokens_per_s = 304;
  Tiered tiered(std::move(setup));
  tiered.Serve(320, 0);
  tiered.Serve(320, 5000);
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  tiered.Add(320, 0);
  tiered.Add(320, 5000);
  const double seconds = tiered.RunUntilIdle();
  EXPECT_EQ(tiered.totals().loaded_tokens, 2 * 304);
  EXPECT_GT(seconds, 2.0);
  EXPECT_LT(seconds, 2.2);
}

TEST(HostTier, ARequestThatLoadsCountsAsRunning) {
  TierOptions setup;
  setup.gpu_blocks = 101;
  setup.engine.max_running = 1;
  setup.engine.load_tokens_per_s = 3040;
  Tiered tiered(std::move(setup));
  tiered.Serve(320, 0);
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  tiered.Add(320, 0);
  tiered.Add(100, 5000);
  tiered.engine().Step();
  EXPECT_EQ(tiered.admissions.back().loaded_tokens, 304) << "the second request waits";
  tiered.RunUntilIdle();
  EXPECT_EQ(tiered.finished.size(), 3u);
}

TEST(HostTier, ErrorsNameTheField) {
  CacheOptions options;
  options.model = "full";
  options.blocks = 20;
  const auto cache = MakeCacheManager(options);
  const auto error = [&](HostTierConfig config) {
    return HostTier::Create(config, **cache, MakeHostCopyBackend({.threads = 1}).value())
        .status()
        .message();
  };
  EXPECT_THAT(error({.cpu_blocks = 0}), HasSubstr("num_cpu_blocks"));
  EXPECT_THAT(error({.cpu_blocks = -1}), HasSubstr("num_cpu_blocks"));
  // The tier checks whole words only, so the size of a block must be a multiple of a word.
  for (const size_t bytes : {0u, 4u, 12u}) {
    EXPECT_THAT(error({.cpu_blocks = 9, .block_bytes = bytes}), HasSubstr("block_bytes"));
  }
}

}  // namespace
}  // namespace kvcast::tools
