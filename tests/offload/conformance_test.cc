// The recorded calls of the engine's own offloading code. The recordings are not part of the
// project: KVCAST_CONFORMANCE names the folder that holds them.
// SPDX-License-Identifier: Apache-2.0
#include "src/tools/conformance.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace kvcast::tools {
namespace {

void ExpectEqual(const std::string& part) {
  const char* folder = std::getenv("KVCAST_CONFORMANCE");
  if (folder == nullptr) GTEST_SKIP() << "KVCAST_CONFORMANCE is not set";
  const std::filesystem::path recordings = std::filesystem::path(folder) / "offload" / part;
  if (!std::filesystem::exists(recordings)) GTEST_SKIP() << recordings << " does not exist";
  ConformanceReport report;
  const Status status = RunOffloadConformance({recordings.string()}, report);
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (const std::string& difference : report.first_differences) ADD_FAILURE() << difference;
  EXPECT_EQ(report.equal, report.compared);
  EXPECT_EQ(report.unsupported, 0u);
  EXPECT_GT(report.compared, 0u);
}

TEST(OffloadConformance, EveryRecordedLookupScanAndRuleHasTheSameResult) { ExpectEqual("lookup"); }

TEST(OffloadConformance, EveryStepOfTheSimpleSchedulerCopiesTheSameBlocks) {
  ExpectEqual("simple");
}

TEST(OffloadConformance, EveryRecordedManagerCallGivesTheSameAnswersEventsAndState) {
  ExpectEqual("cpu-manager");
}

TEST(OffloadConformance, EveryRecordedStepMovesTheSameBlocks) { ExpectEqual("scheduler"); }

TEST(OffloadConformance, EveryRecordedEventPayloadIsWrittenByteForByte) { ExpectEqual("events"); }

// With `compatible` the same, so that what we do better is known to be the only difference.
TEST(OffloadConformance, TheRunsThatShowFaultsOfTheEngineAreFollowedToo) {
  ExpectEqual("scheduler/known-defects");
}

}  // namespace
}  // namespace kvcast::tools
