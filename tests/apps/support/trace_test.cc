// Requests of a trace that share block ids share the tokens of these blocks. The error for a bad
// trace names the file and the reason.
// SPDX-License-Identifier: Apache-2.0
#include "apps/support/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "apps/support/file.h"

namespace kvcast::tools {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTokenIds = 128000;

std::string WriteFile(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << content;
  return path;
}

int64_t SharedTokens(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

TEST(Trace, BundledSliceHolds1200RequestsInArrivalOrder) {
  const auto path = FindDataFile(kBundledTrace);
  ASSERT_TRUE(path.ok()) << path.status().ToString();
  const auto trace = LoadTrace(*path, 0);
  ASSERT_TRUE(trace.ok()) << trace.status().ToString();
  ASSERT_EQ(trace->size(), 1200u);
  for (size_t i = 1; i < trace->size(); ++i) {
    EXPECT_GE((*trace)[i].arrival_s, (*trace)[i - 1].arrival_s);
  }
  EXPECT_EQ((*trace)[0].input_length, 6758);
  EXPECT_EQ((*trace)[0].block_ids.size(), 14u);
}

TEST(Trace, RequestsThatShareIdsShareExactlyTheirTokens) {
  const auto path = WriteFile(
      "shared.jsonl",
      R"({"timestamp": 0, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]})"
      "\n"
      R"({"timestamp": 9, "input_length": 1400, "output_length": 5, "hash_ids": [0, 1, 3]})");
  const auto trace = LoadTrace(path, 0);
  ASSERT_TRUE(trace.ok()) << trace.status().ToString();
  const auto first = PromptTokens((*trace)[0], kTokenIds);
  const auto second = PromptTokens((*trace)[1], kTokenIds);
  EXPECT_EQ(first.size(), 1500u);
  EXPECT_EQ(second.size(), 1400u);
  EXPECT_EQ(SharedTokens(first, second), 1024);
}

TEST(Trace, RequestsOfOneRecordedTimeAreSpreadUntilTheNextTime) {
  std::string text;
  for (const int64_t timestamp : {0, 0, 0, 3000}) {
    text += R"({"timestamp": )" + std::to_string(timestamp) +
            R"(, "input_length": 1, "output_length": 1, "hash_ids": [0]})" + "\n";
  }
  const auto trace = LoadTrace(WriteFile("steps.jsonl", text), 0);
  ASSERT_TRUE(trace.ok());
  EXPECT_DOUBLE_EQ((*trace)[1].arrival_s, 1.0);
  EXPECT_DOUBLE_EQ((*trace)[2].arrival_s, 2.0);
  EXPECT_DOUBLE_EQ((*trace)[3].arrival_s, 3.0);
}

TEST(Trace, LimitTakesTheFirstRequests) {
  const auto path = FindDataFile(kBundledTrace);
  ASSERT_TRUE(path.ok());
  const auto trace = LoadTrace(*path, 7);
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->size(), 7u);
}

struct BadTrace {
  const char* content;
  const char* reason;
};

class RefusedTrace : public ::testing::TestWithParam<BadTrace> {};

TEST_P(RefusedTrace, NamesTheFileTheLineAndTheReason) {
  const auto path = WriteFile("bad.jsonl", GetParam().content);
  const auto trace = LoadTrace(path, 0);
  ASSERT_FALSE(trace.ok());
  EXPECT_THAT(trace.status().message(), HasSubstr("bad.jsonl"));
  EXPECT_THAT(trace.status().message(), HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(
    Trace, RefusedTrace,
    ::testing::Values(
        BadTrace{"", "holds no request"},
        BadTrace{"TIMESTAMP,ContextTokens\n", ":1: not a JSON object"},
        BadTrace{R"({"timestamp": 0})", "input_length is missing"},
        BadTrace{R"({"timestamp": -1, "input_length": 1})", "timestamp is missing or out of range"},
        BadTrace{R"({"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]})",
                 "hash_ids has 1 entries where input_length needs 2"},
        BadTrace{R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": ["a"]})",
                 "not an integer"},
        BadTrace{
            R"({"timestamp": 0, "input_length": 99999999999, "output_length": 1, "hash_ids": []})",
            "input_length is missing or out of range"}));

TEST(Trace, MissingFileIsNotFound) {
  const auto trace = LoadTrace("/nonexistent/trace.jsonl", 0);
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace kvcast::tools
