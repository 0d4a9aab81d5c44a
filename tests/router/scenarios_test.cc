// The promise: fed with the recorded events of an engine, the index predicts for every probe what
// the engine's own lookup would reuse. Needs the recorded data (KVCAST_CONFORMANCE).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <variant>
#include <vector>

#include "kvcast/prefix_index.h"
#include "tests/router/scenario.h"

namespace kvcast::testing {
namespace {

namespace fs = std::filesystem;
constexpr WorkerId kWorker{1};

std::vector<std::string> ScenarioFiles() {
  std::vector<std::string> files;
  const char* root = std::getenv("KVCAST_CONFORMANCE");
  if (root == nullptr) return files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(root) / "scenarios", error)) {
    if (entry.path().string().find(".jsonl") != std::string::npos) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// A stream in report mode "full" announces blocks that the engine no longer holds: no consumer can
// be exact on it.
bool ReportsBlocksItDoesNotHold(const std::string& file) {
  return file.find("report-mode-full") != std::string::npos;
}

struct Score {
  int64_t compared = 0;
  int64_t equal = 0;
  int64_t group_compared = 0;
  int64_t group_equal = 0;
  std::string first_difference;
};

void ComparePrediction(const Scenario& scenario, const PrefixIndex& index, size_t step,
                       const Probe& probe, Score& score) {
  const std::vector<BlockHash> chain = ChainOf(scenario, probe);
  const auto matches =
      index.Match(chain, scenario.worker.hash_block_size, std::ssize(probe.tokens));
  ASSERT_EQ(matches.size(), 1u);
  ++score.compared;
  score.equal += matches[0].gpu_tokens == probe.hit;
  if (matches[0].gpu_tokens != probe.hit && score.first_difference.empty()) {
    score.first_difference = "step " + std::to_string(step) + ", " +
                             std::to_string(probe.tokens.size()) + " tokens: predicted " +
                             std::to_string(matches[0].gpu_tokens) + ", engine " +
                             std::to_string(probe.hit);
  }
  if (probe.per_group.empty()) return;
  ++score.group_compared;
  score.group_equal += matches[0].per_group_tokens == probe.per_group;
}

Score Replay(const Scenario& scenario, const WorkerConfig& registration) {
  Score score;
  PrefixIndex index;
  EXPECT_TRUE(index.AddWorker(kWorker, registration).ok());
  for (size_t i = 0; i < scenario.steps.size(); ++i) {
    index.Apply(kWorker, scenario.steps[i].batch);
    for (const Probe& probe : scenario.steps[i].probes) {
      ComparePrediction(scenario, index, i, probe, score);
    }
  }
  const IndexCounters counters = index.counters(kWorker);
  EXPECT_EQ(counters.residencies, scenario.cached_entries) << scenario.name;
  EXPECT_EQ(counters.bad_events + counters.unknown_kinds + counters.unknown_removes, 0u);
  return score;
}

std::string Report(const Scenario& scenario, const Score& score) {
  return scenario.name + ": " + std::to_string(score.equal) + "/" + std::to_string(score.compared) +
         " equal, groups alone " + std::to_string(score.group_equal) + "/" +
         std::to_string(score.group_compared) +
         (score.first_difference.empty() ? "" : "; first difference: " + score.first_difference);
}

std::string TestName(const ::testing::TestParamInfo<std::string>& test) {
  std::string name = fs::path(test.param).filename().string();
  name = name.substr(0, name.find('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Scenarios : public ::testing::TestWithParam<std::string> {};

TEST_P(Scenarios, PredictionEqualsTheEnginesOwnLookup) {
  if (ReportsBlocksItDoesNotHold(GetParam()))
    GTEST_SKIP() << "report mode full has no exact answer";
  const Result<Scenario> scenario = ReadScenario(GetParam());
  ASSERT_TRUE(scenario.ok()) << scenario.status().ToString();
  const Score score = Replay(*scenario, scenario->worker);
  std::cout << Report(*scenario, score) << "\n";
  EXPECT_GT(score.compared, 0);
  EXPECT_EQ(score.equal, score.compared) << Report(*scenario, score);
}

// What the events do not tell: EAGLE, the chunk size, and before 2026-05 the kinds.
bool EventsTellTheGroups(const Scenario& scenario) {
  for (const GroupSpec& group : scenario.worker.groups) {
    if (group.eagle || group.kind == SpecKind::kChunkedLocalAttention) return false;
  }
  if (scenario.worker.groups.size() == 1 && IsFullKind(scenario.worker.groups[0].kind)) return true;
  for (const ScenarioStep& step : scenario.steps) {
    for (const Event& event : step.batch.events) {
      const auto* stored = std::get_if<BlockStored>(&event);
      if (stored != nullptr) return stored->kv_cache_spec_kind.has_value();
    }
  }
  return false;
}

TEST_P(Scenarios, PredictionIsTheSameWithoutRegistration) {
  if (ReportsBlocksItDoesNotHold(GetParam()))
    GTEST_SKIP() << "report mode full has no exact answer";
  const Result<Scenario> scenario = ReadScenario(GetParam());
  ASSERT_TRUE(scenario.ok()) << scenario.status().ToString();
  if (!EventsTellTheGroups(*scenario)) GTEST_SKIP() << "the events do not tell the groups";
  WorkerConfig registration;
  // A unit smaller than every block seen so far shows only in the first partial entry.
  registration.hash_block_size = scenario->worker.hash_block_size;
  const Score score = Replay(*scenario, registration);
  EXPECT_GT(score.compared, 0);
  EXPECT_EQ(score.equal, score.compared) << Report(*scenario, score);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Scenarios);
INSTANTIATE_TEST_SUITE_P(Recorded, Scenarios, ::testing::ValuesIn(ScenarioFiles()), TestName);

TEST(ScenarioData, IsPresent) {
  if (ScenarioFiles().empty()) GTEST_SKIP() << "KVCAST_CONFORMANCE names no recorded scenarios";
}

}  // namespace
}  // namespace kvcast::testing
