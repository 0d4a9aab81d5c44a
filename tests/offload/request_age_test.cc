// The age of a chunk follows the requests that used it (OffloadUse), by the rules of v0.32 and
// v0.33. Chunk n ends a prefix of n + 1 blocks of 16 tokens.
// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "src/base/sanitizers.h"
#include "tests/offload/age_model.h"

namespace kvcast::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

OffloadConfig V033(int64_t slots, EvictionPolicyKind policy = EvictionPolicyKind::kLru) {
  OffloadConfig config = Pages(slots, policy);
  config.rules = EngineRules::kV033;
  return config;
}

// A manager. Each store, load and finish names its request by a number.
class Fleet {
 public:
  explicit Fleet(const OffloadConfig& config) : offload_(config) {}

  TestOffload& offload() { return offload_; }
  OffloadManager& manager() { return offload_.manager(); }

  std::optional<Stored> Prepare(uint64_t request, const Numbers& numbers) {
    const std::vector<int64_t> ends = Ends(numbers);
    const Status status =
        manager().PrepareStore(Keys(numbers), plan_, {OffloadRequestId(request), ends});
    if (!status.ok()) return std::nullopt;
    return Stored{ToNumbers(plan_.keys), ToNumbers(plan_.slots), ToNumbers(plan_.evicted)};
  }
  std::optional<Stored> Store(uint64_t request, const Numbers& numbers) {
    auto stored = Prepare(request, numbers);
    if (stored) offload_.Complete(stored->keys);
    return stored;
  }
  bool Load(uint64_t request, const Numbers& numbers) {
    std::vector<SlotId> slots;
    const std::vector<int64_t> ends = Ends(numbers);
    return manager().PrepareLoad(Keys(numbers), slots, {OffloadRequestId(request), ends}).ok();
  }
  void Finish(uint64_t request) { manager().FinishRequest(OffloadRequestId(request)); }

 private:
  static std::vector<int64_t> Ends(const Numbers& numbers) {
    std::vector<int64_t> ends;
    for (const int64_t number : numbers) ends.push_back(AgeModel::End(number));
    return ends;
  }

  TestOffload offload_;
  StorePlan plan_;
};

TEST(RequestAge, AllStoresOfARequestShareItsRankAndTheLongestPrefixIsEvictedFirst) {
  Fleet fleet(V033(4));
  fleet.Store(1, {0, 1});
  fleet.Store(2, {10});
  fleet.Store(1, {2});  // stored after 10, but by the older request
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(2, 1, 0, 10));
  EXPECT_EQ(fleet.Store(3, {20, 21})->evicted, (Numbers{2, 1}));
}

// When a request ends, its chunks become more recent than all other chunks. The first chunk of the
// prefix is the most recent of all.
TEST(RequestAge, AtItsEndARequestsChunksBecomeTheMostRecentTheFirstOneMostOfAll) {
  Fleet fleet(V033(5));
  fleet.Store(1, {0, 1, 2});
  fleet.Store(2, {10, 11});
  fleet.Finish(1);
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(11, 10, 2, 1, 0));
}

// The first use of a chunk by a running request raises the rank of the chunk (v0.33). The end of a
// load changes no rank.
TEST(RequestAge, TheFirstUseByARequestRaisesTheRankOfItsChunks) {
  Fleet fleet(V033(6));
  fleet.Store(1, {0, 1});
  fleet.Finish(1);
  fleet.Store(2, {10, 11});
  fleet.Finish(2);
  ASSERT_TRUE(fleet.Load(3, {0, 1}));
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(11, 10)) << "a chunk that is read is not evicted";
  fleet.Store(4, {20});
  fleet.offload().EndLoad({0, 1});
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(11, 10, 1, 0, 20)) << "the rank of request 3";
  ASSERT_TRUE(fleet.Load(3, {0}));
  fleet.offload().EndLoad({0});
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(11, 10, 1, 0, 20)) << "not the first use";
  fleet.Finish(3);
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(11, 10, 20, 1, 0));
}

// Request 3 offers chunk 0, which is stored already. This offer is a use of the chunk.
TEST(RequestAge, AnOfferOfAStoredChunkIsAUse) {
  Fleet fleet(V033(4));
  fleet.Store(1, {0, 1});
  fleet.Finish(1);
  fleet.Store(2, {10});
  fleet.Finish(2);
  EXPECT_THAT(fleet.Store(3, {0})->keys, IsEmpty());
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(1, 10, 0));
}

// Request 2 was going to store chunk 0, and found no space. Request 3 stores the chunk. The end of
// request 2 counts as a use of the chunk.
TEST(RequestAge, AStoreWithoutSpaceIsAUseOfTheChunk) {
  Fleet fleet(V033(2));
  fleet.Store(1, {10, 11});
  ASSERT_TRUE(fleet.Load(1, {10, 11}));
  EXPECT_EQ(fleet.Prepare(2, {0}), std::nullopt) << "all chunks are being read";
  fleet.offload().EndLoad({10, 11});
  fleet.Store(3, {0});
  fleet.Finish(3);
  fleet.Finish(1);
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(0, 10));
  fleet.Finish(2);
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(10, 0));
}

TEST(RequestAge, ChunksInUseAreRankedByTheEndOfTheirRequest) {
  Fleet fleet(V033(4));
  fleet.Prepare(1, {0});
  fleet.Store(2, {10});
  fleet.Store(3, {20});
  ASSERT_TRUE(fleet.Load(4, {10}));
  fleet.Finish(4);
  fleet.Finish(1);
  fleet.offload().Complete({0});
  fleet.offload().EndLoad({10});
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(20, 10, 0));
}

TEST(RequestAge, AStoreNeverEvictsTheChunksThatItOffers) {
  Fleet fleet(V033(2));
  fleet.Store(1, {0});
  fleet.Store(2, {10});
  EXPECT_EQ(fleet.Store(3, {0, 20})->evicted, (Numbers{10}));
}

TEST(RequestAge, ATouchChangesNothing) {
  Fleet fleet(V033(3));
  fleet.Store(1, {0});
  fleet.Store(2, {10});
  fleet.offload().Touch({0});
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(0, 10));
}

TEST(RequestAge, AResetDropsTheUsesOfRequests) {
  Fleet fleet(V033(3));
  fleet.Store(1, {0});
  fleet.manager().Reset();
  fleet.Store(2, {0});
  fleet.Store(3, {10});
  // The reset dropped the chunk of request 1. The chunk of request 2 keeps its rank.
  fleet.Finish(1);
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(0, 10));
}

// The v0.33 rules need OffloadUse::ends, with one prefix end for each key.
TEST(RequestAge, WithoutOneEndAKeyAStoreAndALoadAreRefused) {
  Fleet fleet(V033(3));
  StorePlan plan;
  std::vector<SlotId> slots;
  EXPECT_EQ(fleet.manager().PrepareStore(Keys({1}), plan).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(fleet.manager().PrepareLoad(Keys({1}), slots).code(), StatusCode::kInvalidArgument);
}

TEST(RequestAge, ByTheRulesOf032EachStoreHasARankOfItsOwnAndAUseRaisesNone) {
  OffloadConfig config = Pages(5);
  config.rules = EngineRules::kV032;
  Fleet fleet(config);
  fleet.Store(1, {0, 1});
  fleet.Store(2, {10});
  ASSERT_TRUE(fleet.Load(3, {1}));
  fleet.offload().EndLoad({1});
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(0, 1, 10));
  fleet.Finish(1);
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(10, 1, 0));
}

TEST(RequestAgeArc, AReusedReadableChunkGoesToT2AtTheEndOfTheRequest) {
  Fleet fleet(V033(4, EvictionPolicyKind::kArc));
  fleet.Store(1, {0, 1});
  fleet.Finish(1);
  EXPECT_THAT(fleet.offload().T1(), ElementsAre(1, 0)) << "the request stored the chunks itself";
  ASSERT_TRUE(fleet.Load(2, {0, 1}));
  EXPECT_THAT(fleet.offload().T2(), IsEmpty());
  fleet.offload().EndLoad({0, 1});
  ASSERT_TRUE(fleet.Load(2, {0}));  // again
  fleet.offload().EndLoad({0});
  fleet.Finish(2);
  EXPECT_THAT(fleet.offload().T2(), ElementsAre(1, 0));
}

TEST(RequestAgeArc, AChunkThatAnotherRequestStoresStaysInT1) {
  Fleet fleet(V033(4, EvictionPolicyKind::kArc));
  fleet.Prepare(1, {0});
  EXPECT_THAT(fleet.Prepare(2, {0})->keys, IsEmpty());
  fleet.Finish(2);
  EXPECT_THAT(fleet.offload().T1(), ElementsAre(0));
}

// A ghost is the key of an evicted chunk. A request that offers this key again moves the target of
// ARC, even if the store then finds no victim. Further offers by the same request do not move the
// target.
TEST(RequestAgeArc, AGhostMovesTheTargetOnceARequestBeforeTheVictimsAreChosen) {
  Fleet fleet(V033(2, EvictionPolicyKind::kArc));
  fleet.Store(1, {0, 1});
  fleet.Finish(1);
  EXPECT_EQ(fleet.Store(2, {10})->evicted, (Numbers{1}));
  ASSERT_TRUE(fleet.Load(3, {0, 10}));
  EXPECT_EQ(fleet.offload().Target(), 0);
  EXPECT_EQ(fleet.Prepare(4, {1}), std::nullopt) << "all chunks are being read";
  EXPECT_EQ(fleet.offload().Target(), 1);
  EXPECT_EQ(fleet.Prepare(4, {1}), std::nullopt);
  EXPECT_EQ(fleet.offload().Target(), 1) << "the ghost counts once per request";
  EXPECT_EQ(fleet.Prepare(5, {1}), std::nullopt);
  EXPECT_EQ(fleet.offload().Target(), 2);
}

TEST(RequestAgeArc, EvictionFallsBackToT1InTheCompatibleModeToo) {
  Fleet fleet(AsVllm(V033(2, EvictionPolicyKind::kArc)));
  fleet.Store(1, {5});
  fleet.Store(1, {0});
  fleet.Store(1, {10});  // evicts 5
  ASSERT_TRUE(fleet.Load(2, {10}));
  fleet.Finish(2);
  ASSERT_THAT(fleet.offload().T2(), ElementsAre(10)) << "and the chunk is being read";
  for (const uint64_t request : {3, 4}) EXPECT_EQ(fleet.Prepare(request, {0, 5}), std::nullopt);
  EXPECT_EQ(fleet.offload().Target(), 2) << "the target is above the size of T1";
  EXPECT_EQ(fleet.Prepare(5, {20})->evicted, (Numbers{0}));
}

OffloadConfig WithThreshold(int64_t tracked) {
  OffloadConfig config = V033(8);
  config.store_threshold = 2;
  config.max_tracker_size = tracked;
  return config;
}

TEST(OfferThreshold, OffersCountAndLookupsDoNot) {
  Fleet fleet(WithThreshold(100));
  fleet.offload().Lookup(0, 1);
  fleet.offload().Lookup(0, 2);
  EXPECT_THAT(fleet.Store(1, {0})->keys, IsEmpty());
  EXPECT_EQ(fleet.manager().TakeStats().stores_skipped, 1);
  EXPECT_THAT(fleet.Store(2, {0})->keys, ElementsAre(0));
}

TEST(OfferThreshold, ARequestCountsOnceAndInVllmEachOfferCounts) {
  for (const bool compatible : {false, true}) {
    OffloadConfig config = WithThreshold(100);
    config.compatible = compatible;
    Fleet fleet(config);
    fleet.Store(1, {0});
    EXPECT_EQ(fleet.Store(1, {0})->keys, compatible ? Numbers{0} : Numbers{});
  }
}

TEST(OfferThreshold, AFullTrackerForgetsNoKeyOfTheSameOffer) {
  Fleet fleet(WithThreshold(2));
  fleet.Store(1, {0, 1, 2});  // the tracker has no room for 2
  EXPECT_THAT(fleet.Store(2, {0, 1, 2})->keys, ElementsAre(0, 1));
  fleet.Store(3, {7});  // takes the place of 0
  EXPECT_THAT(fleet.Store(4, {7})->keys, ElementsAre(7));
}

// An offer of a readable chunk is a use of the chunk, even if the count of the chunk is below
// store_threshold.
TEST(OfferThreshold, AReadableChunkIsAUseWhateverItsCount) {
  Fleet fleet(WithThreshold(1));
  fleet.Store(1, {0});
  fleet.Store(2, {0});
  fleet.Store(3, {5});
  fleet.Store(4, {5});
  ASSERT_THAT(fleet.offload().Idle(), ElementsAre(0, 5));
  EXPECT_THAT(fleet.Store(6, {0})->keys, IsEmpty());  // the tracker dropped 0; its count is 1
  EXPECT_EQ(fleet.manager().TakeStats().stores_skipped, 2) << "the first offers of 0 and 5";
  fleet.Finish(6);
  EXPECT_THAT(fleet.offload().Idle(), ElementsAre(5, 0));
}

struct RandomCase {
  EngineRules rules;
  EvictionPolicyKind policy;
  bool compatible;
  int64_t threshold;
};

// Makes random calls to the manager and to the model and compares.
void Compare(const RandomCase& which, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(random);
  };
  OffloadConfig config = Pages(3 + below(8), which.policy);
  config.rules = which.rules;
  config.compatible = which.compatible;
  config.store_threshold = which.threshold;
  config.max_tracker_size = 4 + below(8);
  Fleet fleet(config);
  AgeModel model(config.capacity_bytes / 4096, which.policy, which.rules >= EngineRules::kV033,
                 !which.compatible, which.threshold, config.max_tracker_size, !which.compatible);
  std::vector<Numbers> stores;
  std::vector<Numbers> loads;
  const auto take = [&](std::vector<Numbers>& jobs) {
    const auto job = jobs.begin() + below(std::ssize(jobs));
    const Numbers numbers = *job;
    jobs.erase(job);
    return numbers;
  };
  for (int step = 0; step < 300; ++step) {
    const auto request = static_cast<uint64_t>(1 + below(4));
    Numbers numbers;
    for (int64_t n = below(12), end = n + 1 + below(4); n < end; ++n) numbers.push_back(n);
    const int64_t what = below(10);
    if (what < 4) {
      const auto ours = fleet.Prepare(request, numbers);
      const auto theirs = model.Store(request, numbers);
      ASSERT_EQ(ours.has_value(), theirs.has_value()) << "step " << step;
      if (!ours) continue;
      ASSERT_EQ(std::pair(ours->keys, ours->evicted), *theirs) << "step " << step;
      if (!ours->keys.empty()) stores.push_back(ours->keys);
    } else if (what < 6 && !stores.empty()) {
      const bool success = below(8) != 0;
      const Numbers job = take(stores);
      fleet.offload().Complete(job, success);
      model.EndStore(job, success);
    } else if (what < 8) {
      ASSERT_EQ(fleet.Load(request, numbers), model.CanLoad(numbers)) << "step " << step;
      if (!model.CanLoad(numbers)) continue;
      model.Load(request, numbers);
      loads.push_back(numbers);
    } else if (what < 9 && !loads.empty()) {
      const Numbers job = take(loads);
      fleet.offload().EndLoad(job);
      model.EndLoad(job);
    } else {
      fleet.Finish(request);
      model.Finish(request);
    }
    TestOffload& offload = fleet.offload();
    if (which.policy == EvictionPolicyKind::kArc) {
      ASSERT_EQ((std::vector{offload.T1(), offload.T2(), offload.B1(), offload.B2()}),
                model.Lists())
          << "step " << step;
      ASSERT_DOUBLE_EQ(offload.Target(), model.target()) << "step " << step;
    } else {
      ASSERT_EQ(offload.Idle(), model.Lists()[0]) << "step " << step;
    }
    std::vector<std::pair<int64_t, int64_t>> counts;
    for (const auto& [key, count] : fleet.manager().Inspect().lookup_counts) {
      counts.emplace_back(NumberOf(key), count);
    }
    ASSERT_EQ(counts, model.counts()) << "step " << step;
  }
}

TEST(RequestAgeRandom, TheManagerDoesWhatTheRulesSay) {
  for (uint32_t seed = 0; seed < (kSanitized ? 25u : 100u); ++seed) {
    for (const auto rules : {EngineRules::kV032, EngineRules::kV033}) {
      for (const auto policy : {EvictionPolicyKind::kLru, EvictionPolicyKind::kArc}) {
        for (const bool compatible : {false, true}) {
          Compare({rules, policy, compatible, seed % 3 == 0 ? 2 : 0}, seed);
          if (HasFatalFailure()) FAIL() << "seed " << seed << ", compatible " << compatible;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcast::offload
