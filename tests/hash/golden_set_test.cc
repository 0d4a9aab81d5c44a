// The hasher gives the block hashes of vLLM's recordings.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "apps/conformance/conformance.h"
#include "tests/support/recordings.h"

namespace kvcast::tools {
namespace {

TEST(GoldenSet, EveryRecordedHashIsComputed) {
  for (const testing::RecordingSet& set : testing::RecordingSets("hashes")) {
    ConformanceReport report;
    const Status status = RunHashConformance({set.folder}, report);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const std::string& difference : report.first_differences) ADD_FAILURE() << difference;
    EXPECT_GT(report.compared, 0u);
    EXPECT_EQ(report.equal, report.compared);
    EXPECT_EQ(report.unsupported, 0u);
  }
}

}  // namespace
}  // namespace kvcast::tools
