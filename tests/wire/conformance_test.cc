// The recorded payloads of all producers decode to the recorded fields, and encode again to the
// same bytes. A damaged recording gives an error that names its file and line.
// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/conformance.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/recordings.h"

namespace kvcast::tools {
namespace {

TEST(WireConformance, DecodesAndEncodesEveryRecordedPayload) {
  for (const testing::RecordingSet& set : testing::RecordingSets("wire")) {
    ConformanceReport report;
    const Status status = RunWireConformance({set.folder}, report);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const std::string& line : report.first_differences) ADD_FAILURE() << line;
    EXPECT_EQ(report.equal, report.compared);
    EXPECT_EQ(report.unsupported, 0u);
    EXPECT_TRUE(report.ok());
  }
}

TEST(WireConformance, NamesAPathThatDoesNotExist) {
  ConformanceReport report;
  const Status status = RunWireConformance({"/nonexistent/vectors.jsonl"}, report);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nonexistent/vectors.jsonl"), std::string::npos);
}

class DamagedFile : public ::testing::TestWithParam<const char*> {};

TEST_P(DamagedFile, IsAStatusThatNamesFileAndLine) {
  const std::string path = ::testing::TempDir() + "/damaged.jsonl";
  std::ofstream(path) << GetParam() << "\n";
  ConformanceReport report;
  const Status status = RunWireConformance({path}, report);
  EXPECT_EQ(status.code(), StatusCode::kMalformed);
  EXPECT_NE(status.message().find("damaged.jsonl:1"), std::string::npos) << status.message();
}

INSTANTIATE_TEST_SUITE_P(
    WireConformance, DamagedFile,
    ::testing::Values("{", "[]", "3", R"({"name":"vllm_l01/x"})",
                      R"({"name":"vllm_l01/x","hex":"9","decoded":{}})",
                      R"({"name":"vllm_l01/x","hex":"zz","decoded":{}})",
                      R"({"name":5,"hex":"","decoded":{}})",
                      R"({"name":"a","hex":"","decoded":{"ts_float64_hex":"00","events":[]}})"));

}  // namespace
}  // namespace kvcast::tools
