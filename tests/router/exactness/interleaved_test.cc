// Several workers share one index, and their steps run in random order. The index answers for each
// worker as if the worker were alone.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "apps/conformance/router/interleaved_replay.h"
#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

using tools::Scenario;
using tools::ScenarioStep;

// Returns a scenario of two steps. The first step stores two blocks of a prompt. The second step
// removes the last block. A probe follows each step.
Scenario TwoSteps(std::vector<int64_t> recorded_hits) {
  Scenario scenario;
  scenario.config.cache.groups = {Full()};
  scenario.config.cache.num_blocks = 10;
  scenario.config.cache.hash_block_size = 16;
  scenario.config.none_hash = std::string(32, 'n');
  const std::vector<TokenId> tokens(40, 5);
  const std::vector<uint8_t> none(32, 'n');
  auto hasher = BlockHasher::FromNoneHash(HashAlgorithm::kSha256, none);
  std::vector<Digest> digests;
  hasher->ExtendChain(tokens, 16, {}, digests);
  std::vector<BlockHash> chain;
  for (const Digest& digest : digests) chain.push_back(ToEventHash(digest, EventHashForm::kInt64));
  const std::vector<Event> events = {Store(chain), Remove({chain[1]})};
  for (size_t i = 0; i < events.size(); ++i) {
    ScenarioStep& step = scenario.steps.emplace_back();
    step.events = {events[i]};
    tools::ScenarioProbe& probe = step.probes.emplace_back();
    probe.prompt.tokens = tokens;
    probe.prompt.length = 40;
    probe.hit = recorded_hits[i];
  }
  return scenario;
}

struct Outcome {
  int compared = 0;
  int equal = 0;
  tools::PromiseError error;
};

Outcome Replay(const std::vector<Scenario>& scenarios, uint64_t seed) {
  Outcome outcome;
  const Status status = tools::ReplayInterleaved(
      scenarios, seed,
      [&outcome](const Scenario&, bool equal, const std::string&) {
        ++outcome.compared;
        outcome.equal += equal;
      },
      outcome.error);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return outcome;
}

TEST(Interleaved, EveryWorkerAnswersAsIfAlone) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Outcome outcome = Replay({TwoSteps({32, 16}), TwoSteps({32, 16})}, seed);
    // 2 files, 2 workers each, 2 probes, 2 checks.
    EXPECT_EQ(outcome.compared, 16);
    EXPECT_EQ(outcome.equal, 16) << "seed " << seed;
    EXPECT_EQ(outcome.error.exact, 8u);
  }
}

TEST(Interleaved, AWrongAnswerIsCountedByItsError) {
  const Outcome outcome = Replay({TwoSteps({16, 32})}, 1);
  EXPECT_EQ(outcome.compared, 8);
  EXPECT_EQ(outcome.equal, 4);
  EXPECT_EQ(outcome.error.probes, 4u);
  EXPECT_EQ(outcome.error.exact, 0u);
  EXPECT_EQ(outcome.error.over_tokens, 32u);
  EXPECT_EQ(outcome.error.under_tokens, 32u);
}

}  // namespace
}  // namespace kvcast::testing
