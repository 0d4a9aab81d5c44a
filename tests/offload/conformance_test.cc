// The manager, scheduler and rules agree with the recorded calls of the engine's own offloading
// code.
// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/conformance.h"

#include <gtest/gtest.h>

#include "tests/support/recordings.h"

namespace kvcast::tools {
namespace {

void ExpectEqual(const std::string& part) {
  for (const testing::RecordingSet& set : testing::RecordingSets("offload/" + part)) {
    ConformanceReport report;
    const Status status = RunOffloadConformance({set.folder}, report);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const std::string& difference : report.first_differences) ADD_FAILURE() << difference;
    EXPECT_EQ(report.equal, report.compared);
    EXPECT_EQ(report.unsupported, 0u);
    EXPECT_GT(report.compared, 0u);
  }
}

TEST(OffloadConformance, EveryRecordedLookupScanAndRuleHasTheSameResult) { ExpectEqual("lookup"); }

TEST(OffloadConformance, EveryStepOfTheSimpleSchedulerCopiesTheSameBlocks) {
  ExpectEqual("simple");
}

TEST(OffloadConformance, EveryRecordedManagerCallGivesTheSameAnswersEventsAndState) {
  ExpectEqual("cpu-manager");
}

// Random calls on the managers of vLLM 0.32 and 0.33, in which requests decide the age of chunks.
TEST(OffloadConformance, ManagerCallsOfRequestsGiveTheSameAnswersEventsAndCounts) {
  ExpectEqual("manager-calls");
}

TEST(OffloadConformance, EveryRecordedStepMovesTheSameBlocks) { ExpectEqual("scheduler"); }

TEST(OffloadConformance, EveryRecordedEventPayloadIsWrittenByteForByte) { ExpectEqual("events"); }

// The recordings show defects of the engine. Every test here runs in the compatible mode, which has
// these defects.
TEST(OffloadConformance, RunsWithFaultsOfTheEngineAreEqual) {
  ExpectEqual("scheduler/known-defects");
}

TEST(OffloadConformance, RareCasesAreEqual) { ExpectEqual("corners"); }

}  // namespace
}  // namespace kvcast::tools
