// The replay of recorded runs passes a correct recording, counts the differences of a wrong
// recording, and names an unreadable line.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "apps/conformance/conformance.h"

namespace kvcast::tools {
namespace {

using ::testing::HasSubstr;

const std::string kConfig =
    R"({"record":"config","name":"tiny","groups":[{"kind":"full","block_size":2}],"num_blocks":5,)"
    R"("max_model_len":64,"max_num_batched_tokens":1,"hash_block_size":2,"scheduler_block_size":2,)"
    R"("prefix_cache_retention_interval":null,"hash_algo":"sha256_cbor","event_encoding":"map",)"
    R"("none_hash":"9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",)"
    R"("event_hashes":"int64"})";

// One request of 3 tokens. `blocks` and `free`: the values that the recording claims.
std::string Step(const std::string& blocks, const std::string& free) {
  return R"({"step":0,"ops":[{"op":"add","req":"r1","tokens":[7,8,9],"n":3},{"op":"schedule"},)"
         R"({"op":"lookup","req":"r1","hit":0,"blocks":[[]],"boundary":0},)"
         R"({"op":"alloc","req":"r1","computed":0,"new":1,"hit":0,"ok":true,"blocks":)" +
         blocks + R"(,"free":3}],"events":[],"free_blocks":)" + free + "}";
}

class ScenarioReplayTest : public ::testing::Test {
 protected:
  ScenarioReplayTest() : path_(::testing::TempDir() + "scenario_replay_test.jsonl") {}
  ~ScenarioReplayTest() override { std::filesystem::remove(path_); }

  Status Run(const std::vector<std::string>& lines) {
    std::ofstream file(path_);
    for (const std::string& line : lines) file << line << "\n";
    file.close();
    report_ = {};
    return RunEngineConformance({path_}, report_);
  }

  const std::string path_;
  ConformanceReport report_;
};

TEST_F(ScenarioReplayTest, ARightRecordingIsEqual) {
  ASSERT_TRUE(Run({kConfig, Step("[[1]]", "3")}).ok());
  EXPECT_EQ(report_.files, 1u);
  EXPECT_GT(report_.compared, 8u);
  EXPECT_TRUE(report_.ok());
}

TEST_F(ScenarioReplayTest, AWrongBlockIdOrFreeCountIsADifference) {
  ASSERT_TRUE(Run({kConfig, Step("[[2]]", "3")}).ok());
  EXPECT_EQ(report_.equal + 1, report_.compared);
  ASSERT_EQ(report_.first_differences.size(), 1u);
  EXPECT_THAT(report_.first_differences[0],
              HasSubstr("step 0 alloc r1: new blocks of group 0 are [1 ], recorded [2 ]"));
  ASSERT_TRUE(Run({kConfig, Step("[[1]]", "2")}).ok());
  EXPECT_EQ(report_.equal + 1, report_.compared);
}

// A step of 2 tokens computes 2 of the 3 tokens. The recording states 1 computed token.
TEST_F(ScenarioReplayTest, AWrongChunkIsADifference) {
  std::string config = kConfig;
  const std::string budget = "\"max_num_batched_tokens\":";
  config.replace(config.find(budget) + budget.size(), 1, "2");
  ASSERT_TRUE(Run({config, Step("[[1]]", "3")}).ok());
  EXPECT_EQ(report_.equal + 1, report_.compared);
  ASSERT_EQ(report_.first_differences.size(), 1u);
  EXPECT_THAT(report_.first_differences[0], HasSubstr("new tokens is 2, recorded 1"));
}

TEST_F(ScenarioReplayTest, ARunIsNotContinuedAfterAnImpossibleOperation) {
  const std::string impossible =
      R"({"step":0,"ops":[{"op":"alloc","req":"r9","computed":0,"new":1,"ok":true}],"events":[],)"
      R"("free_blocks":4})";
  ASSERT_TRUE(Run({kConfig, impossible, Step("[[1]]", "3")}).ok());
  EXPECT_FALSE(report_.ok());
  EXPECT_THAT(report_.first_differences[0], HasSubstr("r9 was never added"));
}

TEST_F(ScenarioReplayTest, ErrorsNameFileAndLine) {
  EXPECT_THAT(Run({kConfig, "{\"step\":1}"}).message(), HasSubstr("replay_test.jsonl:2: "));
  EXPECT_THAT(Run({kConfig, "nonsense"}).message(), HasSubstr(":2: "));
  EXPECT_THAT(Run({"{}"}).message(), HasSubstr(":1: "));
  EXPECT_THAT(Run({}).message(), HasSubstr(":1: "));
  ConformanceReport report;
  EXPECT_FALSE(RunEngineConformance({"/does/not/exist"}, report).ok());
}

}  // namespace
}  // namespace kvcast::tools
