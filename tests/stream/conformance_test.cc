// The stream of this library reproduces the recorded frames, replay exchanges and TCP bytes.
// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/conformance.h"

#include <gtest/gtest.h>

#include "tests/support/recordings.h"

namespace kvcast::tools {
namespace {

TEST(FramesConformance, EveryRecordedFrameIsReproduced) {
  for (const testing::RecordingSet& set : testing::RecordingSets("frames")) {
    ConformanceReport report;
    const Status status = RunFramesConformance({set.folder}, report);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const std::string& difference : report.first_differences) ADD_FAILURE() << difference;
    EXPECT_GT(report.compared, 0u);
    EXPECT_EQ(report.equal, report.compared);
    EXPECT_EQ(report.unsupported, 0u);
  }
}

}  // namespace
}  // namespace kvcast::tools
