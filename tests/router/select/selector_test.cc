// SelectWorker chooses the worker with the lowest cost, and equal inputs give equal choices.
// RoundRobin takes the workers in the order of their ids.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kvcast {
namespace {

Candidate Holding(uint32_t worker, int64_t reusable) {
  return {.worker = WorkerId(worker), .reusable_tokens = reusable};
}

TEST(SelectWorker, PrefersTheLongestReusablePrefix) {
  const std::vector<Candidate> candidates = {Holding(1, 16), Holding(2, 64), Holding(3, 32)};
  const auto choice = SelectWorker(candidates, 100, {});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->worker, WorkerId(2));
  EXPECT_EQ(choice->cost, 36);
  EXPECT_EQ(choice->reusable_tokens, 64);
}

TEST(SelectWorker, LoadOutweighsAShortPrefix) {
  Candidate busy = Holding(1, 64);
  busy.load.active_prefill_tokens = 1000;
  Candidate decoding = Holding(2, 64);
  decoding.load.decode_blocks = 500;
  const std::vector<Candidate> candidates = {busy, decoding, Holding(3, 0)};
  EXPECT_EQ(SelectWorker(candidates, 100, {})->worker, WorkerId(3));
  EXPECT_EQ(SelectWorker(candidates, 100, {.decode_block = 0})->worker, WorkerId(2));
  EXPECT_EQ(SelectWorker(candidates, 100, {.active_prefill_token = 0})->worker, WorkerId(1));
}

TEST(SelectWorker, TiesGoToMoreExactTokensThenToTheLowerId) {
  Candidate guessed = Holding(1, 0);
  guessed.speculative_tokens = 64;
  std::vector<Candidate> candidates = {guessed, Holding(5, 64), Holding(3, 64)};
  do {
    EXPECT_EQ(SelectWorker(candidates, 100, {})->worker, WorkerId(3));
  } while (std::next_permutation(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.worker < b.worker; }));
}

TEST(SelectWorker, SpeculativeTokensCountButAreReportedApart) {
  Candidate guessed = Holding(1, 16);
  guessed.speculative_tokens = 96;
  const std::vector<Candidate> candidates = {guessed, Holding(2, 64)};
  const auto choice = SelectWorker(candidates, 100, {});
  EXPECT_EQ(choice->worker, WorkerId(1));
  EXPECT_EQ(choice->reusable_tokens, 16);
  EXPECT_EQ(choice->speculative_tokens, 96);
}

TEST(SelectWorker, AffinityKeepsAPromptWhereOneGroupStillHoldsItsPrefix) {
  Candidate partial = Holding(2, 0);
  partial.resident_tokens = 80;
  const std::vector<Candidate> candidates = {Holding(1, 0), partial};
  EXPECT_EQ(SelectWorker(candidates, 100, {})->worker, WorkerId(1));
  const auto choice = SelectWorker(candidates, 100, {.affinity_token = 0.5});
  EXPECT_EQ(choice->worker, WorkerId(2));
  EXPECT_EQ(choice->cost, 60);
  EXPECT_EQ(choice->reusable_tokens, 0);
}

TEST(SelectWorker, RealHitOutweighsAnEquallyLongPrefixOfOneGroup) {
  Candidate partial = Holding(1, 0);
  partial.resident_tokens = 80;
  const std::vector<Candidate> candidates = {partial, Holding(2, 80)};
  EXPECT_EQ(SelectWorker(candidates, 100, {.affinity_token = 0.9})->worker, WorkerId(2));
}

TEST(SelectWorker, OnlyAllowedWorkersAreChosen) {
  const std::vector<Candidate> candidates = {Holding(1, 64), Holding(2, 0)};
  const WorkerId second[] = {WorkerId(2)};
  EXPECT_EQ(SelectWorker(candidates, 100, {}, second)->worker, WorkerId(2));
  const WorkerId absent[] = {WorkerId(9)};
  EXPECT_FALSE(SelectWorker(candidates, 100, {}, absent));
  EXPECT_FALSE(SelectWorker({}, 100, {}));
}

TEST(SelectWorker, NoCandidateIsCheaperThanAFullHit) {
  EXPECT_EQ(Cost(Holding(1, 5000), 100, {}), 0);
  EXPECT_EQ(Cost(Holding(1, -5), 100, {}), 100);
}

// A prompt of 100 tokens: 30 on the GPU, up to 50 with host memory, up to 90 with storage.
TEST(Cost, LoadedTokensCostWhatTheirTierSays) {
  const struct {
    LoadCosts known;
    double recompute_token;
    double cost;
    const char* why;
  } rows[] = {
      {{}, 1, 10 + 20 * 0.1 + 40 * 0.75, "no load cost is known: the weights count"},
      {{0.5, std::nullopt}, 1, 10 + 20 * 0.5 + 40 * 0.75, "host memory alone is known"},
      {{std::nullopt, 0.5}, 1, 10 + 20 * 0.1 + 40 * 0.5, "storage alone is known"},
      {{0.2, 0.4}, 1, 10 + 20 * 0.2 + 40 * 0.4, "both are known"},
      {{0.0, 0.0}, 1, 10, "loads that take no time"},
      {{2.0, 3.0}, 1, 10 + 20 * 2.0 + 40 * 3.0, "loads are slower than computing"},
      {{2.0, std::nullopt}, 1, 10 + 60 * 2.0, "storage is behind host memory"},
      {{0.4, 0.2}, 1, 10 + 60 * 0.4, "storage is behind host memory"},
      {{0.2, 0.4}, 3, 3 * (10 + 20 * 0.2 + 40 * 0.4), "load costs are in computed tokens"},
  };
  Candidate candidate = Holding(1, 30);
  candidate.with_cpu_tokens = 50;
  candidate.with_storage_tokens = 90;
  for (const auto& [known, recompute_token, cost, why] : rows) {
    candidate.load_costs = known;
    EXPECT_DOUBLE_EQ(Cost(candidate, 100, {.recompute_token = recompute_token}), cost) << why;
  }
}

TEST(Cost, EachTierCountsOnlyTokensBeyondThePreviousTier) {
  const CostWeights weights{.load_token = 0.25, .load_storage_token = 0.5};
  const struct {
    int64_t gpu, cpu, storage, speculative;
    double cost;
  } rows[] = {
      {0, 0, 0, 0, 100},       {40, 0, 0, 0, 60},        {0, 40, 0, 0, 60 + 10},
      {0, 0, 40, 0, 60 + 20},  {20, 40, 60, 0, 40 + 15}, {60, 40, 20, 0, 40},
      {0, 40, 60, 50, 40 + 5}, {0, 500, 500, 0, 25},     {0, 0, 500, 0, 50},
  };
  for (const auto& [gpu, cpu, storage, speculative, cost] : rows) {
    Candidate candidate = Holding(1, gpu);
    candidate.with_cpu_tokens = cpu;
    candidate.with_storage_tokens = storage;
    candidate.speculative_tokens = speculative;
    EXPECT_DOUBLE_EQ(Cost(candidate, 100, weights), cost)
        << gpu << " " << cpu << " " << storage << " " << speculative;
  }
}

TEST(Cost, AffinityCountsOnlyTokensBeyondTheLoadedOnes) {
  Candidate candidate = Holding(1, 0);
  candidate.with_storage_tokens = 60;
  candidate.resident_tokens = 80;
  EXPECT_DOUBLE_EQ(Cost(candidate, 100, {.load_storage_token = 0.5, .affinity_token = 0.5}),
                   40 + 30 - 10);
}

TEST(SelectWorker, SlowLoadsTurnTheChoice) {
  Candidate near = Holding(1, 0);
  near.with_cpu_tokens = 80;
  Candidate far = near;
  far.worker = WorkerId(2);
  const Candidate cold = Holding(3, 0);
  const auto choose = [&](std::optional<double> first, std::optional<double> second) {
    near.load_costs.cpu = first;
    far.load_costs.cpu = second;
    return SelectWorker(std::vector<Candidate>{near, far, cold}, 100, {})->worker;
  };
  EXPECT_EQ(choose({}, {}), WorkerId(1));
  EXPECT_EQ(choose(0.3, 0.2), WorkerId(2));
  EXPECT_EQ(choose(0.3, {}), WorkerId(2));
  EXPECT_EQ(choose({}, 0.05), WorkerId(2));
  EXPECT_EQ(choose(2.0, 0.9), WorkerId(2));
  EXPECT_EQ(choose(2.0, 1.5), WorkerId(3)) << "to compute is faster than both loads";
}

TEST(RoundRobin, GoesThroughTheAllowedWorkersById) {
  const std::vector<Candidate> candidates = {Holding(5, 0), Holding(1, 64), Holding(3, 0)};
  RoundRobin policy;
  for (const uint32_t expected : {1u, 3u, 5u, 1u}) {
    EXPECT_EQ(policy.Next(candidates), WorkerId(expected));
  }
  const WorkerId last[] = {WorkerId(5)};
  EXPECT_EQ(policy.Next(candidates, last), WorkerId(5));
  EXPECT_EQ(policy.Next(candidates), WorkerId(1));
  EXPECT_FALSE(policy.Next({}));
}

}  // namespace
}  // namespace kvcast
