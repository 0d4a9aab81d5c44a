// SelectWorker chooses the worker with the lowest cost, and equal inputs give equal choices.
// RoundRobin takes the workers in the order of their ids.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kvcast {
namespace {

// A worker that needs this many seconds to compute the prompt.
Candidate Computing(uint32_t worker, double compute_s) {
  return {.worker = WorkerId(worker), .compute_s = compute_s};
}

Candidate Holding(uint32_t worker, int64_t reusable) {
  return {.worker = WorkerId(worker), .reusable_tokens = reusable};
}

TEST(Cost, IsTheTimeToTheFirstTokenAndTheWorkOfTheFleet) {
  Candidate candidate = Computing(1, 2);
  EXPECT_DOUBLE_EQ(Cost(candidate, {}), 2 + 2);
  candidate.queue_s = 5;
  candidate.load_s = 0.5;
  EXPECT_DOUBLE_EQ(Cost(candidate, {}), 5 + 0.5 + 2 + 2) << "a load is no work of the fleet";
  EXPECT_DOUBLE_EQ(Cost(candidate, {.work = 0}), 5 + 0.5 + 2);
  EXPECT_DOUBLE_EQ(Cost(candidate, {.work = 3}), 5 + 0.5 + 2 + 3 * 2);
}

TEST(Cost, LaterRequestsWaitForThePromptAndForTheQueueBeforeIt) {
  Candidate candidate = Computing(1, 2);
  candidate.queue_s = 5;
  const double delayed = 2 * (2 * 5 + 2);  // compute_s * (2 queue_s + compute_s)
  EXPECT_DOUBLE_EQ(Cost(candidate, {}, 0.1), 9 + 0.1 * delayed);
  EXPECT_DOUBLE_EQ(Cost(candidate, {.later = 2}, 0.1), 9 + 2 * 0.1 * delayed);
  EXPECT_DOUBLE_EQ(Cost(candidate, {.later = 0}, 0.1), 9);
  EXPECT_DOUBLE_EQ(Cost(Computing(1, 0), {}, 0.1), 0) << "nothing to compute delays no request";
}

TEST(Cost, PartsOfTheCacheCountByTheirWeights) {
  Candidate candidate = Computing(1, 2);
  candidate.partial_s = 1;
  candidate.eviction_s = 0.25;
  EXPECT_DOUBLE_EQ(Cost(candidate, {}), 4 - 1 + 0.25);
  EXPECT_DOUBLE_EQ(Cost(candidate, {.partial = 0.5}), 4 - 0.5 + 0.25);
  EXPECT_DOUBLE_EQ(Cost(candidate, {.eviction = 4}), 4 - 1 + 1);
}

TEST(Cost, TheFleetsPartIsTheCostWithoutTheOwnTimeToTheFirstToken) {
  const Candidate candidate{.worker = WorkerId(1),
                            .queue_s = 5,
                            .compute_s = 2,
                            .load_s = 0.5,
                            .partial_s = 1,
                            .eviction_s = 0.25};
  EXPECT_DOUBLE_EQ(FleetCost(candidate, {}, 0.1), 2 + 0.1 * 24 - 1 + 0.25);
  EXPECT_DOUBLE_EQ(Cost(candidate, {}, 0.1), FleetCost(candidate, {}, 0.1) + 5 + 2 + 0.5);
}

TEST(SelectWorker, PrefersTheShortestComputation) {
  Candidate best = Computing(2, 1);
  best.reusable_tokens = 64;
  best.speculative_tokens = 96;
  const std::vector<Candidate> candidates = {Computing(1, 3), best, Computing(3, 2)};
  const auto choice = SelectWorker(candidates, {});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->worker, WorkerId(2));
  EXPECT_EQ(choice->cost, 2);
  EXPECT_EQ(choice->reusable_tokens, 64);
  EXPECT_EQ(choice->speculative_tokens, 96) << "expected tokens are reported separately";
}

TEST(SelectWorker, AQueueOutweighsAShortPrefix) {
  Candidate busy = Computing(1, 0.4);
  busy.queue_s = 10;
  const std::vector<Candidate> candidates = {busy, Computing(2, 1)};
  EXPECT_EQ(SelectWorker(candidates, {})->worker, WorkerId(2));
  EXPECT_EQ(SelectWorker(candidates, {.work = 20})->worker, WorkerId(1))
      << "a fleet with much work is better off with the hit";
}

TEST(SelectWorker, TiesGoToMoreExactTokensThenToTheLowerId) {
  Candidate guessed = Holding(1, 0);
  guessed.speculative_tokens = 64;
  std::vector<Candidate> candidates = {guessed, Holding(5, 64), Holding(3, 64)};
  do {
    EXPECT_EQ(SelectWorker(candidates, {})->worker, WorkerId(3));
  } while (std::next_permutation(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.worker < b.worker; }));
}

TEST(SelectWorker, APromptGoesWhereOneGroupStillHoldsItsPrefix) {
  Candidate partial = Computing(2, 1);
  partial.partial_s = 0.8;
  const std::vector<Candidate> candidates = {Computing(1, 1), partial};
  EXPECT_EQ(SelectWorker(candidates, {.partial = 0})->worker, WorkerId(1));
  EXPECT_EQ(SelectWorker(candidates, {})->worker, WorkerId(2));
}

TEST(SelectWorker, RealHitOutweighsAnEquallyLongPrefixOfOneGroup) {
  Candidate partial = Computing(1, 1);
  partial.partial_s = 0.8;  // another prompt with this prefix is certain
  const std::vector<Candidate> candidates = {partial, Computing(2, 0.2)};
  EXPECT_EQ(SelectWorker(candidates, {})->worker, WorkerId(2));
}

TEST(SelectWorker, AFreeCacheOutweighsACacheThatMustEvict) {
  Candidate full = Computing(1, 1);
  full.eviction_s = 0.5;
  const std::vector<Candidate> candidates = {full, Computing(2, 1.2)};
  EXPECT_EQ(SelectWorker(candidates, {})->worker, WorkerId(2));
  EXPECT_EQ(SelectWorker(candidates, {.eviction = 0})->worker, WorkerId(1));
}

TEST(SelectWorker, OnlyAllowedWorkersAreChosen) {
  const std::vector<Candidate> candidates = {Computing(1, 1), Computing(2, 2)};
  const WorkerId second[] = {WorkerId(2)};
  EXPECT_EQ(SelectWorker(candidates, {}, 0, second)->worker, WorkerId(2));
  const WorkerId absent[] = {WorkerId(9)};
  EXPECT_FALSE(SelectWorker(candidates, {}, 0, absent));
  EXPECT_FALSE(SelectWorker({}, {}));
}

TEST(SelectWorker, SlowLoadsChangeTheChoice) {
  Candidate near = Computing(1, 0.2);
  Candidate far = Computing(2, 0.2);
  const Candidate cold = Computing(3, 1);
  const auto choose = [&](double first_s, double second_s) {
    near.load_s = first_s;
    far.load_s = second_s;
    return SelectWorker(std::vector<Candidate>{near, far, cold}, {})->worker;
  };
  EXPECT_EQ(choose(0.1, 0.1), WorkerId(1));
  EXPECT_EQ(choose(0.3, 0.2), WorkerId(2));
  EXPECT_EQ(choose(2.0, 1.5), WorkerId(2))
      << "the fleet's work includes the computation, but not the load";
  EXPECT_EQ(choose(2.0, 1.7), WorkerId(3)) << "to compute is cheaper than both loads";
}

TEST(CostsOfLoads, LoadedTokensHaveTheCostOfTheirTier) {
  const struct {
    LoadCosts known;
    TokenLoadCosts costs;
    const char* why;
  } rows[] = {
      {{}, {0.1, 0.75}, "no load cost is known, so the weights apply"},
      {{0.5, std::nullopt}, {0.5, 0.75}, "only the cost of host memory is known"},
      {{std::nullopt, 0.5}, {0.1, 0.5}, "only the cost of storage is known"},
      {{0.2, 0.4}, {0.2, 0.4}, "both costs are known"},
      {{0.0, 0.0}, {0, 0}, "loads that take no time"},
      {{2.0, 3.0}, {2, 3}, "loads are slower than computing"},
      {{2.0, std::nullopt}, {2, 2}, "storage is behind host memory"},
      {{0.4, 0.2}, {0.4, 0.4}, "storage is behind host memory"},
  };
  for (const auto& [known, costs, why] : rows) {
    EXPECT_DOUBLE_EQ(CostsOfLoads(known, {}).cpu, costs.cpu) << why;
    EXPECT_DOUBLE_EQ(CostsOfLoads(known, {}).storage, costs.storage) << why;
  }
  const TokenLoadCosts given = CostsOfLoads({}, {.load_token = 0.25, .load_storage_token = 0.5});
  EXPECT_DOUBLE_EQ(given.cpu, 0.25);
  EXPECT_DOUBLE_EQ(given.storage, 0.5);
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
