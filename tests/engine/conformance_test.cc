// The recorded runs of the real engine, operation by operation. The recordings are not part of the
// project: the environment names the folders that hold them.
// SPDX-License-Identifier: Apache-2.0
#include "src/tools/conformance.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace kvcast::tools {
namespace {

class EngineConformance : public ::testing::TestWithParam<const char*> {};

// The environment names the folders: runs of older releases, and of v0.33.
INSTANTIATE_TEST_SUITE_P(Folders, EngineConformance,
                         ::testing::Values("KVCAST_CONFORMANCE", "KVCAST_CONFORMANCE_033"),
                         [](const auto& folder) { return std::string(folder.param); });

TEST_P(EngineConformance, EveryRecordedRunGivesTheSameBlocksEventsAndHits) {
  const char* folder = std::getenv(GetParam());
  if (folder == nullptr) GTEST_SKIP() << GetParam() << " is not set";
  const std::filesystem::path scenarios = std::filesystem::path(folder) / "scenarios";
  if (!std::filesystem::exists(scenarios)) GTEST_SKIP() << scenarios << " does not exist";
  ConformanceReport report;
  const Status status = RunEngineConformance({scenarios.string()}, report);
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (const std::string& difference : report.first_differences) ADD_FAILURE() << difference;
  EXPECT_EQ(report.equal, report.compared);
  EXPECT_EQ(report.unsupported, 0u);
  EXPECT_GT(report.compared, 0u);
}

}  // namespace
}  // namespace kvcast::tools
