// Recorded frames, replay exchanges and TCP bytes come out the same from our own stream.
// SPDX-License-Identifier: Apache-2.0
#include "src/tools/conformance.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace kvcast::tools {
namespace {

TEST(FramesConformance, EveryRecordedFrameIsReproduced) {
  const char* root = std::getenv("KVCAST_CONFORMANCE");
  if (root == nullptr || !std::filesystem::exists(std::filesystem::path(root) / "frames")) {
    GTEST_SKIP() << "KVCAST_CONFORMANCE names no folder with frames/";
  }
  ConformanceReport report;
  const Status status = RunFramesConformance({std::string(root) + "/frames"}, report);
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (const std::string& difference : report.first_differences) ADD_FAILURE() << difference;
  EXPECT_GT(report.compared, 0u);
  EXPECT_EQ(report.equal, report.compared);
  EXPECT_EQ(report.unsupported, 0u);
  RecordProperty("compared", static_cast<int>(report.compared));
  std::printf("%d files, %d compared\n", static_cast<int>(report.files),
              static_cast<int>(report.compared));
}

}  // namespace
}  // namespace kvcast::tools
