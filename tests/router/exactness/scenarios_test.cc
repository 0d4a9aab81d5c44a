// The index applies the recorded events of an engine. For every probe, the index predicts the
// tokens that the engine's own lookup reused. One test registers the groups. The other test lets
// the index learn the groups, if the events describe the groups.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <variant>
#include <vector>

#include "apps/conformance/router/router_replay.h"
#include "apps/support/file.h"
#include "tests/support/recordings.h"

namespace kvcast::tools {
namespace {

using testing::RecordingSet;

// True for recordings with report mode "full". Their stores repeat the hit of a request, including
// window blocks that the engine has evicted.
bool ReportsHits(const std::string& file) {
  return file.find("report-mode-full") != std::string::npos ||
         file.find("report-full") != std::string::npos;
}

struct Score {
  int64_t compared = 0;
  int64_t equal = 0;
  std::string first_difference;
  IndexCounters counters;
};

struct Recording {
  std::string content;
  std::vector<std::string_view> lines;
  ScenarioConfig config;
};

void Load(const std::string& file, Recording& recording) {
  auto content = ReadFile(file);
  ASSERT_TRUE(content.ok()) << content.status().ToString();
  recording.content = std::move(content).value();
  recording.lines = SplitLines(recording.content);
  ASSERT_GT(recording.lines.size(), 2u);
  auto config = ParseScenarioConfig(recording.lines[0]);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  recording.config = std::move(config).value();
}

Score Replay(const Recording& recording, const WorkerConfig& registration) {
  Score score;
  auto replay = RouterReplay::Create(recording.config, registration,
                                     [&score](bool equal, const std::string& difference) {
                                       ++score.compared;
                                       score.equal += equal;
                                       if (!equal && score.first_difference.empty()) {
                                         score.first_difference = difference;
                                       }
                                     });
  EXPECT_TRUE(replay.ok()) << replay.status().ToString();
  for (size_t i = 1; replay.ok() && i < recording.lines.size(); ++i) {
    if (IsScenarioFinal(recording.lines[i])) {
      replay->CheckFinal(ParseScenarioFinal(recording.lines[i]).value());
    } else {
      replay->RunStep(ParseScenarioStep(recording.lines[i]).value());
    }
  }
  if (replay.ok()) score.counters = replay->counters();
  return score;
}

void ExpectExact(const std::string& file, const Recording& recording, const Score& score) {
  std::cout << recording.config.name << ": " << score.equal << "/" << score.compared << " equal\n";
  EXPECT_GT(score.compared, 1);
  EXPECT_EQ(score.equal, score.compared) << score.first_difference;
  EXPECT_EQ(score.counters.bad_events, 0u);
  EXPECT_EQ(score.counters.unknown_kinds, 0u);
  EXPECT_EQ(score.counters.unknown_removes, 0u);
  EXPECT_EQ(score.counters.reannounced_blocks > 0, ReportsHits(file));
}

// False if the groups have properties that no event carries: EAGLE, the chunk size, bounded replay,
// and, before 2026-05, the kinds. (A single group of full attention needs no kind: it is the
// default.)
bool EventsDescribeTheGroups(const Recording& recording) {
  const std::vector<GroupSpec>& groups = recording.config.cache.groups;
  if (recording.config.replay_tokens > 0) return false;
  for (const GroupSpec& group : groups) {
    if (group.eagle || group.kind == SpecKind::kChunkedLocalAttention) return false;
  }
  if (groups.size() == 1 && IsFullKind(groups[0].kind)) return true;
  for (size_t i = 1; i < recording.lines.size(); ++i) {
    if (recording.lines[i].find("\"BlockStored\"") == std::string_view::npos) continue;
    return recording.lines[i].find("\"kv_cache_spec_kind\"") != std::string_view::npos;
  }
  return false;
}

struct RecordedRun {
  std::string set;
  std::string file;
};

void PrintTo(const RecordedRun& run, std::ostream* out) { *out << run.file; }

std::vector<RecordedRun> AllRuns() {
  std::vector<RecordedRun> runs;
  for (const RecordingSet& set : testing::RecordingSets("scenarios")) {
    const std::vector<std::string> files = testing::RecordedFiles(set);
    // An empty folder becomes a run that cannot be read, and therefore fails.
    if (files.empty()) runs.push_back({set.name, set.folder});
    for (const std::string& file : files) runs.push_back({set.name, file});
  }
  return runs;
}

std::string TestName(const ::testing::TestParamInfo<RecordedRun>& test) {
  std::string name = std::filesystem::path(test.param.file).filename().string();
  name = test.param.set + "_" + name.substr(0, name.find('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Scenarios : public ::testing::TestWithParam<RecordedRun> {};

TEST_P(Scenarios, PredictionEqualsTheLookupWithRegisteredGroups) {
  Recording recording;
  ASSERT_NO_FATAL_FAILURE(Load(GetParam().file, recording));
  auto registration = RegistrationOf(recording.config);
  ASSERT_TRUE(registration.ok()) << registration.status().ToString();
  if (ReportsHits(GetParam().file)) registration->hit_reports = HitReports::kExpected;
  ExpectExact(GetParam().file, recording, Replay(recording, *registration));
}

TEST_P(Scenarios, PredictionEqualsTheLookupWithLearnedGroups) {
  Recording recording;
  ASSERT_NO_FATAL_FAILURE(Load(GetParam().file, recording));
  if (!EventsDescribeTheGroups(recording)) GTEST_SKIP() << "the events do not describe the groups";
  WorkerConfig registration;
  if (ReportsHits(GetParam().file)) registration.hit_reports = HitReports::kExpected;
  // If hash_block_size is smaller than every block, the events do not show it before the first
  // store that ends inside a block. So the test registers hash_block_size.
  registration.hash_block_size = recording.config.cache.hash_block_size;
  ExpectExact(GetParam().file, recording, Replay(recording, registration));
}

INSTANTIATE_TEST_SUITE_P(Recorded, Scenarios, ::testing::ValuesIn(AllRuns()), TestName);

}  // namespace
}  // namespace kvcast::tools
