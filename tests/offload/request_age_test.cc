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

// A manager and its requests. Each store, load and finish names its request by a number.
class NumberedRequests {
 public:
  explicit NumberedRequests(const OffloadConfig& config) : offload_(config) {}

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
  NumberedRequests requests(V033(4));
  requests.Store(1, {0, 1});
  requests.Store(2, {10});
  requests.Store(1, {2});  // stored after 10, but by the older request
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(2, 1, 0, 10));
  EXPECT_EQ(requests.Store(3, {20, 21})->evicted, (Numbers{2, 1}));
}

// When a request ends, its chunks become more recent than all other chunks. The first chunk of the
// prefix is the most recent of all.
TEST(RequestAge, TheChunksOfAnEndedRequestAreTheMostRecentAndTheFirstChunkIsTheNewest) {
  NumberedRequests requests(V033(5));
  requests.Store(1, {0, 1, 2});
  requests.Store(2, {10, 11});
  requests.Finish(1);
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(11, 10, 2, 1, 0));
}

// The first use of a chunk by a running request raises the rank of the chunk (v0.33). The end of a
// load changes no rank.
TEST(RequestAge, TheFirstUseByARequestRaisesTheRankOfItsChunks) {
  NumberedRequests requests(V033(6));
  requests.Store(1, {0, 1});
  requests.Finish(1);
  requests.Store(2, {10, 11});
  requests.Finish(2);
  ASSERT_TRUE(requests.Load(3, {0, 1}));
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(11, 10))
      << "a chunk that is read is not evicted";
  requests.Store(4, {20});
  requests.offload().EndLoad({0, 1});
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(11, 10, 1, 0, 20)) << "the rank of request 3";
  ASSERT_TRUE(requests.Load(3, {0}));
  requests.offload().EndLoad({0});
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(11, 10, 1, 0, 20)) << "not the first use";
  requests.Finish(3);
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(11, 10, 20, 1, 0));
}

// Request 3 offers chunk 0, which is stored already. This offer is a use of the chunk.
TEST(RequestAge, AnOfferOfAStoredChunkIsAUse) {
  NumberedRequests requests(V033(4));
  requests.Store(1, {0, 1});
  requests.Finish(1);
  requests.Store(2, {10});
  requests.Finish(2);
  EXPECT_THAT(requests.Store(3, {0})->keys, IsEmpty());
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(1, 10, 0));
}

// Request 2 was going to store chunk 0, and found no space. Request 3 stores the chunk. The end of
// request 2 counts as a use of the chunk.
TEST(RequestAge, AStoreWithoutSpaceIsAUseOfTheChunk) {
  NumberedRequests requests(V033(2));
  requests.Store(1, {10, 11});
  ASSERT_TRUE(requests.Load(1, {10, 11}));
  EXPECT_EQ(requests.Prepare(2, {0}), std::nullopt) << "all chunks are being read";
  requests.offload().EndLoad({10, 11});
  requests.Store(3, {0});
  requests.Finish(3);
  requests.Finish(1);
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(0, 10));
  requests.Finish(2);
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(10, 0));
}

TEST(RequestAge, ChunksInUseAreRankedByTheEndOfTheirRequest) {
  NumberedRequests requests(V033(4));
  requests.Prepare(1, {0});
  requests.Store(2, {10});
  requests.Store(3, {20});
  ASSERT_TRUE(requests.Load(4, {10}));
  requests.Finish(4);
  requests.Finish(1);
  requests.offload().Complete({0});
  requests.offload().EndLoad({10});
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(20, 10, 0));
}

TEST(RequestAge, AStoreNeverEvictsTheChunksThatItOffers) {
  NumberedRequests requests(V033(2));
  requests.Store(1, {0});
  requests.Store(2, {10});
  EXPECT_EQ(requests.Store(3, {0, 20})->evicted, (Numbers{10}));
}

TEST(RequestAge, ATouchChangesNothing) {
  NumberedRequests requests(V033(3));
  requests.Store(1, {0});
  requests.Store(2, {10});
  requests.offload().Touch({0});
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(0, 10));
}

TEST(RequestAge, AResetDropsTheUsesOfRequests) {
  NumberedRequests requests(V033(3));
  requests.Store(1, {0});
  requests.manager().Reset();
  requests.Store(2, {0});
  requests.Store(3, {10});
  // The reset dropped the chunk of request 1. The chunk of request 2 keeps its rank.
  requests.Finish(1);
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(0, 10));
}

// The v0.33 rules need OffloadUse::ends, with one prefix end for each key.
TEST(RequestAge, WithoutOneEndAKeyAStoreAndALoadAreRefused) {
  NumberedRequests requests(V033(3));
  StorePlan plan;
  std::vector<SlotId> slots;
  EXPECT_EQ(requests.manager().PrepareStore(Keys({1}), plan).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(requests.manager().PrepareLoad(Keys({1}), slots).code(), StatusCode::kInvalidArgument);
}

TEST(RequestAge, ByTheRulesOf032EachStoreHasARankOfItsOwnAndAUseRaisesNone) {
  OffloadConfig config = Pages(5);
  config.rules = EngineRules::kV032;
  NumberedRequests requests(config);
  requests.Store(1, {0, 1});
  requests.Store(2, {10});
  ASSERT_TRUE(requests.Load(3, {1}));
  requests.offload().EndLoad({1});
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(0, 1, 10));
  requests.Finish(1);
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(10, 1, 0));
}

TEST(RequestAgeArc, AReusedReadableChunkGoesToT2AtTheEndOfTheRequest) {
  NumberedRequests requests(V033(4, EvictionPolicyKind::kArc));
  requests.Store(1, {0, 1});
  requests.Finish(1);
  EXPECT_THAT(requests.offload().T1(), ElementsAre(1, 0)) << "the request stored the chunks itself";
  ASSERT_TRUE(requests.Load(2, {0, 1}));
  EXPECT_THAT(requests.offload().T2(), IsEmpty());
  requests.offload().EndLoad({0, 1});
  ASSERT_TRUE(requests.Load(2, {0}));  // again
  requests.offload().EndLoad({0});
  requests.Finish(2);
  EXPECT_THAT(requests.offload().T2(), ElementsAre(1, 0));
}

TEST(RequestAgeArc, AChunkThatAnotherRequestStoresStaysInT1) {
  NumberedRequests requests(V033(4, EvictionPolicyKind::kArc));
  requests.Prepare(1, {0});
  EXPECT_THAT(requests.Prepare(2, {0})->keys, IsEmpty());
  requests.Finish(2);
  EXPECT_THAT(requests.offload().T1(), ElementsAre(0));
}

// A ghost is the key of an evicted chunk. A request that offers this key again moves the target of
// ARC, even if the store then finds no victim. Further offers by the same request do not move the
// target.
TEST(RequestAgeArc, AGhostMovesTheTargetOnceARequestBeforeTheVictimsAreChosen) {
  NumberedRequests requests(V033(2, EvictionPolicyKind::kArc));
  requests.Store(1, {0, 1});
  requests.Finish(1);
  EXPECT_EQ(requests.Store(2, {10})->evicted, (Numbers{1}));
  ASSERT_TRUE(requests.Load(3, {0, 10}));
  EXPECT_EQ(requests.offload().Target(), 0);
  EXPECT_EQ(requests.Prepare(4, {1}), std::nullopt) << "all chunks are being read";
  EXPECT_EQ(requests.offload().Target(), 1);
  EXPECT_EQ(requests.Prepare(4, {1}), std::nullopt);
  EXPECT_EQ(requests.offload().Target(), 1) << "the ghost counts once per request";
  EXPECT_EQ(requests.Prepare(5, {1}), std::nullopt);
  EXPECT_EQ(requests.offload().Target(), 2);
}

TEST(RequestAgeArc, EvictionFallsBackToT1InTheCompatibleModeToo) {
  NumberedRequests requests(AsVllm(V033(2, EvictionPolicyKind::kArc)));
  requests.Store(1, {5});
  requests.Store(1, {0});
  requests.Store(1, {10});  // evicts 5
  ASSERT_TRUE(requests.Load(2, {10}));
  requests.Finish(2);
  ASSERT_THAT(requests.offload().T2(), ElementsAre(10)) << "and the chunk is being read";
  for (const uint64_t request : {3, 4}) EXPECT_EQ(requests.Prepare(request, {0, 5}), std::nullopt);
  EXPECT_EQ(requests.offload().Target(), 2) << "the target is above the size of T1";
  EXPECT_EQ(requests.Prepare(5, {20})->evicted, (Numbers{0}));
}

OffloadConfig WithThreshold(int64_t tracked) {
  OffloadConfig config = V033(8);
  config.store_threshold = 2;
  config.max_tracker_size = tracked;
  return config;
}

TEST(OfferThreshold, OffersCountAndLookupsDoNot) {
  NumberedRequests requests(WithThreshold(100));
  requests.offload().Lookup(0, 1);
  requests.offload().Lookup(0, 2);
  EXPECT_THAT(requests.Store(1, {0})->keys, IsEmpty());
  EXPECT_EQ(requests.manager().TakeStats().stores_skipped, 1);
  EXPECT_THAT(requests.Store(2, {0})->keys, ElementsAre(0));
}

TEST(OfferThreshold, ARequestCountsOnceAndInVllmEachOfferCounts) {
  for (const bool compatible : {false, true}) {
    OffloadConfig config = WithThreshold(100);
    config.compatible = compatible;
    NumberedRequests requests(config);
    requests.Store(1, {0});
    EXPECT_EQ(requests.Store(1, {0})->keys, compatible ? Numbers{0} : Numbers{});
  }
}

TEST(OfferThreshold, AFullTrackerForgetsNoKeyOfTheSameOffer) {
  NumberedRequests requests(WithThreshold(2));
  requests.Store(1, {0, 1, 2});  // the tracker has no room for 2
  EXPECT_THAT(requests.Store(2, {0, 1, 2})->keys, ElementsAre(0, 1));
  requests.Store(3, {7});  // takes the place of 0
  EXPECT_THAT(requests.Store(4, {7})->keys, ElementsAre(7));
}

// An offer of a readable chunk is a use of the chunk, even if the count of the chunk is below
// store_threshold.
TEST(OfferThreshold, AReadableChunkIsAUseWhateverItsCount) {
  NumberedRequests requests(WithThreshold(1));
  requests.Store(1, {0});
  requests.Store(2, {0});
  requests.Store(3, {5});
  requests.Store(4, {5});
  ASSERT_THAT(requests.offload().Idle(), ElementsAre(0, 5));
  EXPECT_THAT(requests.Store(6, {0})->keys, IsEmpty());  // the tracker dropped 0; its count is 1
  EXPECT_EQ(requests.manager().TakeStats().stores_skipped, 2) << "the first offers of 0 and 5";
  requests.Finish(6);
  EXPECT_THAT(requests.offload().Idle(), ElementsAre(5, 0));
}

struct RandomCase {
  EngineRules rules;
  EvictionPolicyKind policy;
  bool compatible;
  int64_t threshold;
};

// Makes random calls to the manager and to the model and compares.
void Compare(const RandomCase& random_case, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(random);
  };
  OffloadConfig config = Pages(3 + below(8), random_case.policy);
  config.rules = random_case.rules;
  config.compatible = random_case.compatible;
  config.store_threshold = random_case.threshold;
  config.max_tracker_size = 4 + below(8);
  NumberedRequests requests(config);
  AgeModel model(config.capacity_bytes / 4096, random_case.policy,
                 random_case.rules >= EngineRules::kV033, !random_case.compatible,
                 random_case.threshold, config.max_tracker_size, !random_case.compatible);
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
    const int64_t call = below(10);
    if (call < 4) {
      const auto ours = requests.Prepare(request, numbers);
      const auto theirs = model.Store(request, numbers);
      ASSERT_EQ(ours.has_value(), theirs.has_value()) << "step " << step;
      if (!ours) continue;
      ASSERT_EQ(std::pair(ours->keys, ours->evicted), *theirs) << "step " << step;
      if (!ours->keys.empty()) stores.push_back(ours->keys);
    } else if (call < 6 && !stores.empty()) {
      const bool success = below(8) != 0;
      const Numbers job = take(stores);
      requests.offload().Complete(job, success);
      model.EndStore(job, success);
    } else if (call < 8) {
      ASSERT_EQ(requests.Load(request, numbers), model.CanLoad(numbers)) << "step " << step;
      if (!model.CanLoad(numbers)) continue;
      model.Load(request, numbers);
      loads.push_back(numbers);
    } else if (call < 9 && !loads.empty()) {
      const Numbers job = take(loads);
      requests.offload().EndLoad(job);
      model.EndLoad(job);
    } else {
      requests.Finish(request);
      model.Finish(request);
    }
    TestOffload& offload = requests.offload();
    if (random_case.policy == EvictionPolicyKind::kArc) {
      ASSERT_EQ((std::vector{offload.T1(), offload.T2(), offload.B1(), offload.B2()}),
                model.Lists())
          << "step " << step;
      ASSERT_DOUBLE_EQ(offload.Target(), model.target()) << "step " << step;
    } else {
      ASSERT_EQ(offload.Idle(), model.Lists()[0]) << "step " << step;
    }
    std::vector<std::pair<int64_t, int64_t>> counts;
    for (const auto& [key, count] : requests.manager().Inspect().lookup_counts) {
      counts.emplace_back(NumberOf(key), count);
    }
    ASSERT_EQ(counts, model.counts()) << "step " << step;
  }
}

TEST(RequestAgeRandom, TheManagerAgreesWithTheModel) {
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
