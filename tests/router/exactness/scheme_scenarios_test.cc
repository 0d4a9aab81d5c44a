// The detector finds the hash scheme of recorded engines from their events alone, and reports wrong
// registrations.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "apps/conformance/router/scheme_replay.h"
#include "tests/support/recordings.h"

namespace kvcast::tools {
namespace {

std::vector<RecordedStream> ReadAll() {
  std::vector<RecordedStream> streams;
  for (const testing::RecordingSet& set : testing::RecordingSets("scenarios")) {
    const std::vector<std::string> files = testing::RecordedFiles(set);
    EXPECT_FALSE(files.empty()) << set.folder;
    for (const std::string& file : files) {
      auto stream = ReadRecordedStream(file);
      EXPECT_TRUE(stream.ok()) << stream.status().ToString();
      if (stream.ok()) streams.push_back(std::move(stream).value());
    }
  }
  return streams;
}

TEST(RecordedSchemes, AreFoundOutAndWrongRegistrationsReported) {
  const std::vector<RecordedStream> streams = ReadAll();
  const SchemeDetectorConfig candidates = SchemeCandidates(streams);
  for (const RecordedStream& stream : streams) {
    const auto check = [&](bool equal, const std::string& description) {
      EXPECT_TRUE(equal) << stream.config.name << ": " << description;
    };
    std::cout << CheckScheme(stream, candidates, check) << "\n";
  }
}

// The detector tests stores at the rate of a router. After the detector has found a scheme, it
// tests one testable store in 64. After a clear, it tests one store at the root, one store behind
// the root, and one store of each kind of key. If a kind has only incomplete spans, the detector
// tests a few more of its stores.
TEST(RecordedSchemes, AreFoundOutBySamplesToo) {
  const std::vector<RecordedStream> streams = ReadAll();
  SchemeDetectorConfig candidates = SchemeCandidates(streams);
  candidates.sample_period = SchemeDetectorConfig().sample_period;
  for (const RecordedStream& stream : streams) {
    const SchemeOutcome outcome = ReplayScheme(stream, candidates);
    EXPECT_EQ(outcome.verdict.state, SchemeState::kMatched) << stream.config.name;
    if (stream.other_paths.empty()) {
      EXPECT_EQ(outcome.counters.mismatched, 0u) << stream.config.name;
    }
    const auto clears = std::ranges::count_if(stream.events, [](const Event& event) {
      return std::holds_alternative<AllBlocksCleared>(event);
    });
    uint64_t kinds = 0;
    for (const KeyKindCounters& kind : outcome.counters.kinds) kinds += kind.fits > 0;
    EXPECT_LE(outcome.counters.tested,
              kinds * (outcome.counters.testable / 64 + 2 * (1 + static_cast<uint64_t>(clears))) +
                  (kinds > 1 ? kSchemeMissesToGiveUp : 0))
        << stream.config.name;
  }
}

}  // namespace
}  // namespace kvcast::tools
