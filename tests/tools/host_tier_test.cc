// The host memory behind the simulated engine: what comes back from it is what was computed, and
// where it does not come back it is computed again.
// SPDX-License-Identifier: Apache-2.0
#include "src/tools/host_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/host_copy_backend.h"
#include "kvcast/prefix_index.h"
#include "src/tools/engine_setup.h"
#include "src/tools/sim_engine.h"
#include "src/tools/trace.h"

namespace kvcast::tools {
namespace {

using ::testing::HasSubstr;

// What becomes of a batch of copies.
enum class Fate : uint8_t {
  kCopied,
  kLost,     // "done", but no byte was moved
  kFailed,   // after it wrote anything
  kRefused,  // not even begun
};

// Copies while Submit runs; `fate` says what becomes of the nth batch of a direction.
class FaultyBackend final : public CopyBackend {
 public:
  using FateOf = std::function<Fate(CopyDirection, int64_t)>;
  explicit FaultyBackend(FateOf fate) : fate_(std::move(fate)) {}

  std::string_view name() const override { return "faulty"; }
  Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp> ops, void*) override {
    const Fate fate = fate_(direction, batches_[static_cast<size_t>(direction)]++);
    if (fate == Fate::kRefused) return Status(StatusCode::kUnavailable, "refused");
    for (const CopyOp& op : ops) {
      for (uint32_t row = 0; row < op.rows; ++row) {
        std::byte* const to = op.dst + row * op.dst_pitch;
        if (fate == Fate::kCopied) std::memcpy(to, op.src + row * op.src_pitch, op.row_bytes);
        if (fate == Fate::kFailed) std::memset(to, 0xEE, op.row_bytes);
      }
    }
    states_.push_back(fate == Fate::kFailed ? CopyState::kFailed : CopyState::kDone);
    return CopyTicket(states_.size() - 1);
  }
  CopyState Poll(CopyTicket ticket) override { return states_.at(ticket.value); }
  CopyState Wait(CopyTicket ticket) override { return Poll(ticket); }

 private:
  const FateOf fate_;
  int64_t batches_[2] = {};
  std::vector<CopyState> states_;
};

std::unique_ptr<CopyBackend> Faulty(CopyDirection direction, Fate fate,
                                    int64_t batches = INT64_MAX) {
  return std::make_unique<FaultyBackend>([=](CopyDirection of, int64_t number) {
    return of == direction && number < batches ? fate : Fate::kCopied;
  });
}

struct TierOptions {
  std::string model = "full";
  int64_t gpu_blocks = 41;
  int64_t cpu_blocks = 201;
  StoreMode mode = StoreMode::kEager;
  SimEngineConfig engine;
  std::unique_ptr<CopyBackend> backend = MakeHostCopyBackend({.threads = 1}).value();
};

constexpr WorkerId kWorker(1);
constexpr int64_t kVocabulary = 1000;

// A simulated engine with host memory, and what it reported. A router's index follows its events.
class Tiered {
 public:
  explicit Tiered(TierOptions setup) {
    CacheOptions options;
    options.model = setup.model;
    options.blocks = setup.gpu_blocks;
    auto cache = MakeCacheManager(options);
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    unit_ = (*cache)->config().hash_block_size;
    hasher_ = MakeHasher(options.hash_algorithm, options.hash_seed).value();
    EXPECT_TRUE(index_
                    .AddWorker(kWorker, {.groups = (*cache)->config().groups,
                                         .hash_block_size = unit_,
                                         .alignment = HitAlignment((*cache)->config()),
                                         .offload_rule = OffloadRule::kMirroredPool})
                    .ok());
    HostTierConfig config;
    config.cpu_blocks = setup.cpu_blocks;
    config.mode = setup.mode;
    auto tier = HostTier::Create(config, **cache, std::move(setup.backend));
    EXPECT_TRUE(tier.ok()) << tier.status().ToString();
    host_ = tier->get();
    SimHooks hooks{.publish =
                       [this](std::vector<Event> events) {
                         num_events += std::ssize(events);
                         index_.Apply(kWorker, EventBatch{.events = std::move(events)});
                         return Seq(++batches_);
                       },
                   .admitted =
                       [this](const Admission& seen) {
                         admissions.push_back(seen);
                         Compare(seen);
                       },
                   .first_token = [](int64_t) {},
                   .finished = [this](int64_t number) { finished.push_back(number); },
                   .refused = [](int64_t) {}};
    engine_ = std::make_unique<SimEngine>(setup.engine, std::move(cache).value(), kVocabulary,
                                          std::move(hooks), std::move(tier).value());
  }

  SimEngine& engine() { return *engine_; }
  HostTier& host() { return *host_; }
  const SimTotals& totals() const { return engine_->totals(); }

  // Prompts with the same `first` are the same as far as both go.
  void Add(int64_t tokens, TokenId first, int64_t outputs = 1) {
    std::vector<TokenId> prompt(static_cast<size_t>(tokens));
    std::iota(prompt.begin(), prompt.end(), first);
    prompts_.push_back(prompt);
    engine_->Add({std::ssize(prompts_) - 1, std::move(prompt), outputs});
  }
  // Model seconds.
  double RunUntilIdle() {
    double seconds = 0;
    for (int step = 0; step < 20000 && !engine_->idle(); ++step) {
      seconds += engine_->Step();
      const Status host = host_->offload().CheckInvariants();
      EXPECT_TRUE(host.ok()) << host.ToString();
    }
    EXPECT_TRUE(engine_->idle());
    return seconds;
  }
  double Serve(int64_t tokens, TokenId first, int64_t outputs = 1) {
    Add(tokens, first, outputs);
    return RunUntilIdle();
  }
  // As many other prompts as the GPU holds, so that it forgets all before.
  void FillGpu() {
    for (int i = 0; i < 6; ++i) Serve(320, next_filler_ += 1000);
  }
  void ExpectAllGivenBack() {
    const CacheUsage gpu = engine_->cache().usage();
    EXPECT_EQ(gpu.free_blocks, gpu.total_blocks);
    const CacheUsage host = host_->offload().usage();
    EXPECT_EQ(host.free_blocks, host.total_blocks);
    EXPECT_TRUE(engine_->cache().CheckInvariants().ok());
  }

  std::vector<Admission> admissions;
  std::vector<int64_t> finished;
  int64_t num_events = 0;
  int64_t wrong_promises = 0;  // admissions that the index did not say beforehand

 private:
  void Compare(const Admission& seen) {
    std::vector<TokenId> tokens = prompts_[static_cast<size_t>(seen.number)];
    for (int64_t k = 0; k < seen.sampled_tokens; ++k) {
      tokens.push_back(OutputToken(seen.number, k, kVocabulary));
    }
    std::vector<Digest> digests;
    hasher_->ExtendChain(tokens, unit_, {}, digests);
    std::vector<BlockHash> chain;
    for (const Digest& digest : digests) {
      chain.push_back(ToEventHash(digest, EventHashForm::kInt64));
    }
    const auto matches = index_.Match(chain, unit_, std::ssize(tokens));
    ASSERT_EQ(matches.size(), 1u);
    const bool right = matches[0].gpu_tokens == seen.hit_tokens &&
                       matches[0].with_cpu_tokens == seen.hit_tokens + seen.loaded_tokens;
    wrong_promises += !right;
  }

  HostTier* host_ = nullptr;
  std::unique_ptr<SimEngine> engine_;
  uint64_t batches_ = 0;
  PrefixIndex index_;
  std::optional<BlockHasher> hasher_;
  int64_t unit_ = 0;
  std::vector<std::vector<TokenId>> prompts_;  // by number
  TokenId next_filler_ = 1'000'000;
};

struct Case {
  std::string model;
  StoreMode mode;
};
void PrintTo(const Case& which, std::ostream* out) { *out << which.model; }
class HostTierOf : public ::testing::TestWithParam<Case> {
 protected:
  TierOptions Small() const {
    TierOptions setup;
    setup.model = GetParam().model;
    setup.mode = GetParam().mode;
    if (setup.model != "full") setup.gpu_blocks = 200;
    if (setup.model != "full") setup.cpu_blocks = 2001;
    return setup;
  }
};
INSTANTIATE_TEST_SUITE_P(
    Models, HostTierOf,
    ::testing::Values(Case{"full", StoreMode::kEager}, Case{"full", StoreMode::kLazy},
                      Case{"hybrid", StoreMode::kEager}, Case{"hybrid", StoreMode::kLazy},
                      Case{"gpt-oss", StoreMode::kEager}, Case{"gpt-oss", StoreMode::kLazy}),
    [](const auto& test) {
      std::string name = test.param.model;
      std::erase(name, '-');
      return name + (test.param.mode == StoreMode::kEager ? "Eager" : "Lazy");
    });

// 320 tokens are 20 blocks, of which the last one is computed again.
TEST_P(HostTierOf, GivesBackWhatTheGpuHasLost) {
  Tiered tiered(Small());
  tiered.Serve(320, 0);
  tiered.FillGpu();
  tiered.Serve(320, 0);
  EXPECT_EQ(tiered.admissions.back().hit_tokens, 0);
  EXPECT_EQ(tiered.admissions.back().loaded_tokens, 304);
  EXPECT_EQ(tiered.totals().loaded_tokens, 304);
  EXPECT_GE(tiered.host().loaded_blocks(), 19);
  EXPECT_GE(tiered.host().checked_blocks(), 19);
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
  tiered.ExpectAllGivenBack();
}

TEST_P(HostTierOf, LoadsBehindWhatTheGpuStillHas) {
  Tiered tiered(Small());
  tiered.Serve(320, 0);
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  tiered.Serve(320, 0);  // comes back to the GPU
  tiered.Serve(320, 0);
  EXPECT_EQ(tiered.admissions.back().hit_tokens, 304);
  EXPECT_EQ(tiered.admissions.back().loaded_tokens, 0);
  ASSERT_TRUE(tiered.engine().ResetPrefixCache());
  // The same first half, computed where the host has it too, then the whole.
  tiered.Serve(161, 0);
  tiered.Serve(320, 0);
  EXPECT_EQ(tiered.admissions.back().hit_tokens, 160);
  EXPECT_EQ(tiered.admissions.back().loaded_tokens, 144);
  EXPECT_EQ(tiered.host().wrong_blocks(), 0);
}

// Many requests of a few prefixes, more than the GPU holds, with answers that preempt each other.
void Traffic(Tiered& tiered, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random);
  };
  for (int i = 0; i < 150; ++i) {
    tiered.Add(16 + below(300), 10'000 * below(8), 1 + below(120));
    for (int64_t steps = below(30); steps > 0; --steps) tiered.engine().Step();
    if (below(20) != 0) continue;
    // Succeeds where nothing runs.
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
    std::vector<int64_t> seen = {totals.finished,
                                 totals.preempted,
                                 totals.reused_tokens,
                                 totals.loaded_tokens,
                                 totals.recomputed_again,
                                 totals.steps,
                                 tiered.num_events,
                                 tiered.host().stored_blocks(),
                                 tiered.host().loaded_blocks(),
                                 tiered.host().checked_blocks()};
    for (const Admission& seen_then : tiered.admissions) {
      seen.insert(seen.end(), {seen_then.number, seen_then.hit_tokens, seen_then.loaded_tokens});
    }
    runs.push_back(std::move(seen));
  }
  EXPECT_EQ(runs[0], runs[1]);
}

// Nor is a hit other than what the events promised, resets of the GPU's cache included, after which
// host memory still has what it had.
TEST_P(HostTierOf, NoTrafficBringsAWrongBlock) {
  int64_t preempted = 0;
  int64_t loaded = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Tiered tiered(Small());
    Traffic(tiered, seed);
    EXPECT_EQ(tiered.finished.size(), 150u);
    EXPECT_EQ(tiered.host().wrong_blocks(), 0);
    EXPECT_EQ(tiered.wrong_promises, 0) << "of " << tiered.admissions.size();
    tiered.ExpectAllGivenBack();
    preempted += tiered.totals().preempted;
    loaded += tiered.host().loaded_blocks();
  }
  if (GetParam().model == "full") {
    EXPECT_GT(preempted, 20);
  }
  EXPECT_GT(loaded, 100);
}

TEST_P(HostTierOf, CopiesThatFailNowAndThenCostRecomputesOnly) {
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
  EXPECT_EQ(tiered.wrong_promises, 0) << "of " << tiered.admissions.size();
  tiered.ExpectAllGivenBack();
}

// What makes the tests above tests: bytes that did not come are seen.
TEST_P(HostTierOf, ALoadThatBringsNoBytesIsSeen) {
  TierOptions setup = Small();
  setup.backend = Faulty(CopyDirection::kLoad, Fate::kLost);
  Tiered tiered(std::move(setup));
  tiered.Serve(320, 0);
  tiered.FillGpu();
  tiered.Serve(320, 0);
  EXPECT_GE(tiered.host().loaded_blocks(), 19);
  EXPECT_EQ(tiered.host().wrong_blocks(), tiered.host().loaded_blocks());
}

TEST_P(HostTierOf, AStoreThatSavesNoBytesIsSeen) {
  TierOptions setup = Small();
  setup.backend = Faulty(CopyDirection::kStore, Fate::kLost);
  Tiered tiered(std::move(setup));
  tiered.Serve(320, 0);
  tiered.FillGpu();
  tiered.Serve(320, 0);
  EXPECT_GE(tiered.host().loaded_blocks(), 19);
  EXPECT_EQ(tiered.host().wrong_blocks(), tiered.host().loaded_blocks());
}

// A block that is loaded into may hold these very bytes from before.
TEST(HostTier, BytesThatDidNotComeAreSeenWhereTheyWereBefore) {
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
    // It was promised, and came back without: what could not be read is not promised again.
    ASSERT_EQ(tiered.admissions.size(), 9u);
    EXPECT_EQ(tiered.admissions[7].loaded_tokens, 304);
    EXPECT_EQ(tiered.admissions[8].number, tiered.admissions[7].number);
    EXPECT_FALSE(tiered.admissions[8].first);
    EXPECT_EQ(tiered.admissions[8].loaded_tokens, 0);
    EXPECT_EQ(tiered.finished.size(), 8u);
    EXPECT_EQ(tiered.host().wrong_blocks(), 0);
    EXPECT_EQ(tiered.totals().failed_loads, 1);
    EXPECT_EQ(tiered.totals().loaded_tokens, 0) << "none came";
    EXPECT_EQ(tiered.totals().recomputed_again, 0) << "they had not been computed here before";
    tiered.ExpectAllGivenBack();
    // Stored again by the request that computed it.
    tiered.FillGpu();
    tiered.Serve(320, 0);
    EXPECT_EQ(tiered.totals().loaded_tokens, 304);
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

TEST(HostTier, WhereStoresNeverWorkNothingIsLoadedAndAllIsComputed) {
  for (const StoreMode mode : {StoreMode::kEager, StoreMode::kLazy}) {
    TierOptions setup;
    setup.mode = mode;
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

// What is next on the GPU's free list is more than the host can hold.
TEST(HostTier, ALazyTierSmallerThanTheFreeListComesToRest) {
  TierOptions setup;
  setup.mode = StoreMode::kLazy;
  setup.cpu_blocks = 9;
  Tiered tiered(std::move(setup));
  tiered.FillGpu();
  const int64_t stored = tiered.host().stored_blocks();
  tiered.Serve(17, 0);
  EXPECT_LE(tiered.host().stored_blocks(), stored + 16);
}

TEST(HostTier, APreemptedRequestLoadsWhatItHadAndIsRight) {
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
  // Only what was on its way to the host when the request went can be computed again: less than a
  // block of each, and what the block size leaves over.
  EXPECT_LE(tiered.totals().recomputed_again, tiered.totals().preempted * 2 * 16);
}

// The second one stores what it hit, before the first one is seen to have computed it.
TEST(HostTier, WhatIsHitInTheStepThatComputesItIsStoredWhenItIsThere) {
  TierOptions setup;
  setup.gpu_blocks = 101;
  setup.backend = Faulty(CopyDirection::kStore, Fate::kCopied);  // at once
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

TEST(HostTier, LoadsShareTheWayToTheGpu) {
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
  EXPECT_EQ(tiered.admissions.back().loaded_tokens, 304) << "the second one waits";
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
  // Bytes beyond the last whole word could not be checked.
  for (const size_t bytes : {0u, 4u, 12u}) {
    EXPECT_THAT(error({.cpu_blocks = 9, .block_bytes = bytes}), HasSubstr("block_bytes"));
  }
}

}  // namespace
}  // namespace kvcast::tools
