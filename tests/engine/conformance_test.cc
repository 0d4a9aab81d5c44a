// The recorded runs of the real engine, operation by operation. The recordings are not part of the
// project: KVCAST_CONFORMANCE names the folder that holds them.
// SPDX-License-Identifier: Apache-2.0
#include "src/tools/conformance.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace kvcast::tools {
namespace {

TEST(EngineConformance, EveryRecordedRunGivesTheSameBlocksEventsAndHits) {
  const char* folder = std::getenv("KVCAST_CONFORMANCE");
  if (folder == nullptr) GTEST_SKIP() << "KVCAST_CONFORMANCE is not set";
  const std::filesystem::path scenarios = std::filesystem::path(folder) / "scenarios";
  if (!std::filesystem::exists(scenarios)) GTEST_SKIP() << scenarios << " does not exist";
  ConformanceReport report;
  const Status status = RunEngineConformance({scenarios.string()}, report);
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (const std::string& difference : report.first_differences) ADD_FAILURE() << difference;
  EXPECT_EQ(report.equal, report.compared);
  EXPECT_GT(report.compared, 0u);
}

}  // namespace
}  // namespace kvcast::tools
