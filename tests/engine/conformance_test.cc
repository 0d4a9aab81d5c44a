// The recorded runs of the real engine replay without a difference, operation by operation.
// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/conformance.h"

#include <gtest/gtest.h>

#include "tests/support/recordings.h"

namespace kvcast::tools {
namespace {

using testing::RecordingSet;
using testing::RecordingSets;

class EngineConformance : public ::testing::TestWithParam<RecordingSet> {};

INSTANTIATE_TEST_SUITE_P(Sets, EngineConformance, ::testing::ValuesIn(RecordingSets("scenarios")),
                         [](const auto& set) { return set.param.name; });

TEST_P(EngineConformance, EveryRecordedRunGivesTheSameBlocksEventsAndHits) {
  ConformanceReport report;
  const Status status = RunEngineConformance({GetParam().folder}, report);
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (const std::string& difference : report.first_differences) ADD_FAILURE() << difference;
  EXPECT_EQ(report.equal, report.compared);
  EXPECT_EQ(report.unsupported, 0u);
  EXPECT_GT(report.compared, 0u);
}

}  // namespace
}  // namespace kvcast::tools
