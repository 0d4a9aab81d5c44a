// Answers depend on the engine's release and on registered properties. The properties are: groups
// with a draft head, lookahead hashes, groups outside prefix caching, and hit tokens that the
// engine computes again.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/index_events.h"

namespace kvcast::testing {
namespace {

GroupSpec Eagle(GroupSpec spec) {
  spec.eagle = true;
  return spec;
}

GroupSpec Uncached(GroupSpec spec) {
  spec.prefix_cacheable = false;
  return spec;
}

WorkerConfig EagleWorker(std::vector<GroupSpec> groups, std::optional<EngineRules> rules) {
  WorkerConfig config = Registered(std::move(groups));
  config.rules = rules;
  return config;
}

WorkerMatch Ask(const OneWorker& worker, int64_t tokens, int64_t hash_block_size = 16) {
  const auto matches =
      worker.index.Match(Hashes(1, tokens / hash_block_size), hash_block_size, tokens);
  return matches.empty() ? WorkerMatch() : matches[0];
}

// Returns the hit of a prompt of `blocks` whole blocks. All blocks are cached.
int64_t HitOfWholePrompt(const WorkerConfig& config, int64_t blocks = 4) {
  OneWorker worker(config);
  EventBatch batch;
  for (size_t group = 0; group < config.groups.size(); ++group) {
    batch.events.emplace_back(Store(Hashes(1, blocks), static_cast<int64_t>(group)));
  }
  worker.Apply(batch);
  return worker.Match(Hashes(1, blocks), 16 * blocks);
}

TEST(ReleaseRules, FromV032GroupsWithADraftHeadSeeTheLastBlockOfAPrompt) {
  const std::vector<GroupSpec> groups = {Eagle(Full()), Eagle(Window(32))};
  EXPECT_EQ(HitOfWholePrompt(EagleWorker(groups, EngineRules::kMain2026August)), 32);
  EXPECT_EQ(HitOfWholePrompt(EagleWorker(groups, EngineRules::kV032)), 48);
  EXPECT_EQ(HitOfWholePrompt(EagleWorker(groups, EngineRules::kV033)), 48);
}

TEST(ReleaseRules, TheLastBlockIsSeenInPromptsOfAnyLength) {
  const std::vector<GroupSpec> groups = {Eagle(Full()), Eagle(Window(32))};
  for (int64_t blocks = 2; blocks <= 130; ++blocks) {
    EXPECT_EQ(HitOfWholePrompt(EagleWorker(groups, EngineRules::kV032), blocks), 16 * (blocks - 1));
  }
}

TEST(ReleaseRules, AnUnknownReleaseGivesTheSmallerHit) {
  EXPECT_EQ(HitOfWholePrompt(EagleWorker({Eagle(Full()), Eagle(Window(32))}, std::nullopt)), 32);
}

TEST(ReleaseRules, FromV032ASingleGroupDoesNotSeeTheLastBlock) {
  EXPECT_EQ(HitOfWholePrompt(EagleWorker({Eagle(Full())}, EngineRules::kV032)), 32);
}

TEST(ReleaseRules, AHitOfTheWholePromptIsFull) {
  OneWorker worker(EagleWorker({Eagle(Full()), Eagle(Window(32))}, EngineRules::kV032));
  worker.Apply(Batch(Store(Hashes(1, 4), 0), Store(Hashes(1, 4), 1)));
  const WorkerMatch match = Ask(worker, 64);
  EXPECT_EQ(match.gpu_tokens, 48);
  EXPECT_EQ(match.hit, HitKind::kFull);
  EXPECT_EQ(match.per_group_tokens, (std::vector<int64_t>{48, 48}));
}

TEST(ReleaseRules, WithLookaheadNoGroupDropsABlock) {
  WorkerConfig config = EagleWorker({Eagle(Full()), Eagle(Window(32))}, EngineRules::kV033);
  config.hash_lookahead_tokens = 1;
  OneWorker worker(config);
  worker.Apply(Batch(Store(Hashes(1, 3), 0), Store(Hashes(1, 3), 1)));
  EXPECT_EQ(worker.Match(Hashes(1, 3), 64), 48);
  // The last block of the prompt has no hash, because the lookahead token is missing.
  EXPECT_EQ(worker.Match(Hashes(1, 2), 48), 32);
}

TEST(UncachedGroups, LimitNoHitAndServeNothing) {
  OneWorker worker(Registered({Full(), Uncached(Window(32)), Window(48)}));
  worker.Apply(Batch(Store(Hashes(1, 6), 0), Store(Hashes(1, 6), 2)));
  const WorkerMatch match = Ask(worker, 100);
  EXPECT_EQ(match.gpu_tokens, 96);
  EXPECT_EQ(match.per_group_tokens, (std::vector<int64_t>{96, 0, 96}));
  EXPECT_EQ(match.limiting_group, std::nullopt);
}

TEST(UncachedGroups, OfAChunkedKindServeNothingEither) {
  OneWorker worker(Registered({Full(), Uncached(Chunked(32))}));
  EXPECT_EQ(Ask(worker, 100).gpu_tokens, 0);
  EXPECT_EQ(Ask(worker, 100).per_group_tokens, (std::vector<int64_t>{0, 0}));
}

TEST(UncachedGroups, TheirEventsAreCountedAndNotIndexed) {
  OneWorker worker(Registered({Full(), Uncached(Window(32))}));
  worker.Apply(Batch(Store(Hashes(1, 6), 1)));
  EXPECT_EQ(worker.counters().unknown_kinds, 1u);
  EXPECT_EQ(worker.counters().residencies, 0u);
}

TEST(UncachedGroups, ChangeTheAlignmentAndNotTheHashBlockSize) {
  OneWorker worker(Registered({Full(32), Uncached(Window(32, 48))}));
  ASSERT_TRUE(worker.added.ok()) << worker.added.ToString();
  EXPECT_EQ(worker.index.hash_block_size(kWorker), 32);
  worker.Apply(Batch(StoreFull(Hashes(1, 5), 0, 32)));
  EXPECT_EQ(worker.Match(Hashes(1, 5), 161, 32), 96);
}

WorkerConfig ReplayWorker(int64_t replay) {
  WorkerConfig config = Registered({Full(), Uncached(Window(64))});
  config.replay_tokens = replay;
  return config;
}

TEST(Replay, TheLastTokensOfAHitAreComputedAgain) {
  OneWorker worker(ReplayWorker(64));
  worker.Apply(Batch(Store(Hashes(1, 6), 0)));
  const WorkerMatch match = Ask(worker, 100);
  EXPECT_EQ(match.gpu_tokens, 96);
  EXPECT_EQ(match.replay_tokens, 64);
  EXPECT_EQ(match.recompute_tokens, 68);
}

TEST(Replay, AHitThatIsComputedAgainCompletelyIsAMiss) {
  OneWorker worker(ReplayWorker(64));
  worker.Apply(Batch(Store(Hashes(1, 6), 0)));
  const WorkerMatch match = Ask(worker, 80);
  EXPECT_EQ(match.gpu_tokens, 0);
  EXPECT_EQ(match.replay_tokens, 0);
  EXPECT_EQ(match.recompute_tokens, 80);
  EXPECT_EQ(match.hit, HitKind::kMiss);
  EXPECT_EQ(Ask(worker, 81).gpu_tokens, 80);
}

TEST(Replay, AppliesToAWorkerWithOneFullGroup) {
  WorkerConfig config = Registered({Full()});
  config.replay_tokens = 32;
  OneWorker worker(config);
  worker.Apply(Batch(Store(Hashes(1, 6))));
  EXPECT_EQ(Ask(worker, 100).replay_tokens, 32);
  EXPECT_EQ(Ask(worker, 48).gpu_tokens, 0);
}

TEST(ReleaseRules, NegativeCountsAreRefused) {
  WorkerConfig config = Registered({Full()});
  config.replay_tokens = -1;
  EXPECT_NE(OneWorker(config).added.message().find("replay_tokens"), std::string::npos);
  config.replay_tokens = 0;
  config.hash_lookahead_tokens = -1;
  EXPECT_NE(OneWorker(config).added.message().find("lookahead"), std::string::npos);
}

}  // namespace
}  // namespace kvcast::testing
