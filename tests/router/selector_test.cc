// The selector sends a prompt where the least is left to do, the same way for the same inputs.
// SPDX-License-Identifier: Apache-2.0
#include "kvcast/selector.h"

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
