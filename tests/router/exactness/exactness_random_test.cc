// No answer that is marked exact is wrong. Engines of random configurations run random traffic. A
// source follows each engine. The registration of the source is complete, hides properties of the
// engine, or states a property wrongly.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <iostream>
#include <string>

#include "tests/router/exactness/engine_follower.h"
#include "tests/support/setting.h"

namespace kvcast::engine {
namespace {

using router::QueryAnswer;

constexpr int kSteps = 60;
constexpr int kProbes = 4;  // per step

struct Counts {
  int64_t answers = 0;
  int64_t hits = 0;
  int64_t exact = 0;
  int64_t exact_hits = 0;
  int64_t equal = 0;  // answers equal to the engine's lookup
};

void Probe(EngineFollower& follower, Counts& counts) {
  CacheRequest request = follower.engine().ProbeRequest();
  const int64_t hit = follower.engine().Lookup(request);
  const QueryAnswer answer = follower.Ask(EngineFollower::QueryOf(request));
  ++counts.answers;
  counts.hits += hit > 0;
  counts.exact += answer.exact;
  counts.exact_hits += answer.exact && hit > 0;
  counts.equal += answer.match.gpu_tokens == hit;
  if (answer.exact) {
    EXPECT_EQ(answer.match.gpu_tokens, hit) << "prompt of " << request.tokens.size();
  }
}

enum class Content { kTokens, kHashesOnly };

// Runs random engines until there are enough answers, or until an answer is exact and wrong.
// KVCAST_EXACTNESS_SEED sets the first seed, KVCAST_EXACTNESS_ANSWERS the minimum number of
// answers.
std::array<Counts, static_cast<size_t>(Change::kCount)> RunEngines(Content content) {
  const auto first = static_cast<uint64_t>(testing::Setting("KVCAST_EXACTNESS_SEED", 1));
  const int64_t enough = testing::Setting("KVCAST_EXACTNESS_ANSWERS", 20'000);
  std::array<Counts, static_cast<size_t>(Change::kCount)> counts;
  int64_t answers = 0;
  for (uint64_t seed = first; answers < enough; ++seed) {
    Random random(seed);
    const Drawn drawn = Draw(random);
    const auto cache = ValidateCacheConfig(drawn.cache);
    if (!cache.ok()) continue;
    const auto change = static_cast<Change>(Pick(random, 0, static_cast<int>(Change::kCount) - 1));
    SCOPED_TRACE("seed " + std::to_string(seed) + ", change " +
                 std::to_string(static_cast<int>(change)) + ", " + Describe(drawn));
    Counts& of_change = counts[static_cast<size_t>(change)];
    const int64_t before = of_change.answers;
    EngineFollower follower(random, drawn, *cache, DialectOf(drawn));
    follower.Register(SourceOf(drawn, *cache, change));
    if (content == Content::kHashesOnly && follower.registered()) {
      follower.PublishHashesOnly(drawn, *cache);
    }
    for (int step = 0; step < kSteps && follower.registered(); ++step) {
      follower.Step();
      for (int i = 0; i < kProbes; ++i) Probe(follower, of_change);
      if (::testing::Test::HasFailure()) return counts;
    }
    answers += of_change.answers - before;
  }
  for (size_t change = 0; change < counts.size(); ++change) {
    const Counts& of = counts[change];
    std::cout << "change " << change << ": " << of.answers << " answers, " << of.hits << " hits, "
              << of.exact << " exact, " << of.exact_hits << " of them hits, " << of.equal
              << " equal\n";
  }
  return counts;
}

TEST(ExactnessRandom, NoAnswerIsExactAndWrong) {
  const auto counts = RunEngines(Content::kTokens);
  for (size_t change = 0; change < counts.size(); ++change) {
    EXPECT_GT(counts[change].exact, 0) << "change " << change;
  }
}

// The events carry hashes only, and the engine has answered a challenge.
TEST(ExactnessRandom, WithHashesOnlyNoAnswerIsExactAndWrong) {
  const auto counts = RunEngines(Content::kHashesOnly);
  EXPECT_GT(counts[static_cast<size_t>(Change::kNone)].exact_hits, 0);
  EXPECT_GT(counts[static_cast<size_t>(Change::kHideScheme)].exact_hits, 0);
  EXPECT_EQ(counts[static_cast<size_t>(Change::kWrongSeed)].exact, 0);
}

}  // namespace
}  // namespace kvcast::engine
