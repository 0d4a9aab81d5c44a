// The Mooncake and Azure formats: valid rows become slices. An error names the file, the line and
// the reason.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "apps/simulate/workload_sources.h"

namespace kvcast::simulate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr SliceOptions kOne{.slices = 1, .requests = 0, .seed = 1};

std::string Row(int64_t at_ms, int64_t input, int64_t output, const std::string& ids) {
  return "{\"timestamp\": " + std::to_string(at_ms) +
         ", \"input_length\": " + std::to_string(input) +
         ", \"output_length\": " + std::to_string(output) + ", \"hash_ids\": [" + ids + "]}\n";
}

TEST(Mooncake, RowsBecomeRequestsWithTheirWholeBlocks) {
  const auto workload =
      ParseMooncake(Row(5000, 1100, 7, "1,2,3") + Row(9000, 1600, 0, "1,2,4,5"), "t", kOne);
  ASSERT_TRUE(workload.ok()) << workload.status().ToString();
  EXPECT_EQ(workload->name, "t");
  ASSERT_EQ(workload->slices.size(), 1u);
  const Slice& slice = workload->slices[0];
  EXPECT_EQ(slice.block_tokens, 512);
  ASSERT_EQ(slice.requests.size(), 2u);
  EXPECT_EQ(slice.requests[0].delay_s, 0);  // a slice starts at its first request
  EXPECT_EQ(slice.requests[1].delay_s, 4);
  EXPECT_THAT(slice.requests[0].blocks, ElementsAre(1, 2));
  EXPECT_THAT(slice.requests[1].blocks, ElementsAre(1, 2, 4));
  EXPECT_EQ(slice.requests[0].output_tokens, 7);
  EXPECT_EQ(slice.requests[1].output_tokens, 1);
  EXPECT_EQ(slice.requests[0].next, 1);
}

TEST(Mooncake, SlicesAreDisjointAndAsManyAsTheRowsAllow) {
  std::string text;
  for (int64_t i = 0; i < 10; ++i) text += Row(1000 * i, 10 + i, 1, "1");
  const auto cut = [&](int64_t slices, int64_t requests) {
    const auto workload = ParseMooncake(text, "t", {slices, requests, 1});
    std::vector<std::vector<int64_t>> lengths;
    for (const Slice& slice : workload->slices) {
      lengths.emplace_back();
      for (const auto& request : slice.requests) lengths.back().push_back(request.prompt_tokens);
    }
    return lengths;
  };
  EXPECT_THAT(cut(3, 0), ElementsAre(ElementsAre(10, 11, 12), ElementsAre(13, 14, 15),
                                     ElementsAre(16, 17, 18)));
  EXPECT_THAT(cut(2, 2), ElementsAre(ElementsAre(10, 11), ElementsAre(12, 13)));
  EXPECT_EQ(cut(100, 0).size(), 10u);
  EXPECT_EQ(cut(1, 100)[0].size(), 10u);
}

TEST(Mooncake, OneRequestIsAWorkload) {
  const auto workload = ParseMooncake(Row(0, 1, 1, "1"), "t", {});
  ASSERT_TRUE(workload.ok());
  ASSERT_EQ(workload->slices.size(), 1u);
  EXPECT_EQ(workload->slices[0].requests.size(), 1u);
}

TEST(Mooncake, ErrorsNameTheLine) {
  const auto bad = ParseMooncake(Row(0, 1, 1, "1") + Row(0, 513, 1, "1"), "t", kOne);
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.status().message(),
              StartsWith("t:2: hash_ids has 1 entries where input_length needs 2"));
  EXPECT_THAT(ParseMooncake("", "t", kOne).status().message(), HasSubstr("holds no request"));
}

constexpr char kHeader[] = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";

TEST(Azure, RowsAreOrderedByTimeAndShareNothing) {
  const auto workload = ParseAzure(std::string(kHeader) + "2023-11-16 18:15:50.5000000,1100,3\r\n" +
                                       "2023-11-16 18:15:46.6805900,1100,0\r\n",
                                   "t", kOne);
  ASSERT_TRUE(workload.ok()) << workload.status().ToString();
  const auto& requests = workload->slices[0].requests;
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_NEAR(requests[1].delay_s, 3.81941, 1e-5);
  EXPECT_EQ(requests[0].output_tokens, 1);
  EXPECT_EQ(requests[1].output_tokens, 3);
  ASSERT_EQ(requests[0].blocks.size(), 2u);
  EXPECT_NE(requests[0].blocks[0], requests[1].blocks[0]);
}

TEST(Azure, TimesContinueAfterMidnightAndMayNameTheZone) {
  const auto workload =
      ParseAzure("2024-05-10 23:59:59.5+00:00,5,5\n2024-05-11 00:00:00+00:00,6,5\n", "t", kOne);
  ASSERT_TRUE(workload.ok()) << workload.status().ToString();
  const auto& requests = workload->slices[0].requests;
  EXPECT_EQ(requests[0].prompt_tokens, 5);
  EXPECT_EQ(requests[1].delay_s, 0.5);
}

class RefusedAzure : public ::testing::TestWithParam<const char*> {};

TEST_P(RefusedAzure, NamesTheLine) {
  const auto bad =
      ParseAzure(std::string(kHeader) + "2023-11-16 18:15:46,1,1\n" + GetParam(), "t", kOne);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "t:3: expected DATE TIME,ContextTokens,GeneratedTokens");
}

INSTANTIATE_TEST_SUITE_P(Azure, RefusedAzure,
                         ::testing::Values("hello", "2023-11-16 18:15:46,1",
                                           "2023-11-16T18:15:46,1,1", "2023-11-16 18:15:nan,1,1",
                                           "2023-11-16 18:15:inf,1,1", "2023-11-16 18:15:-1,1,1",
                                           "2023-11-16 18:15:61,1,1", "2023-11-16 24:00:00,1,1",
                                           "2023-11-16 -1:00:00,1,1", "2023-11-16 00:60:00,1,1",
                                           "2023-02-30 00:00:00,1,1", "2023-11-16 18:15:46,0,1",
                                           "2023-11-16 18:15:46,-5,1", "2023-11-16 18:15:46,nan,1",
                                           "2023-11-16 18:15:46,1,-1",
                                           "2023-11-16 18:15:46,99999999999,1",
                                           "2023-11-16 18:15:46,1,2,3"));

TEST(Azure, HeaderAloneHoldsNoRequest) {
  EXPECT_THAT(ParseAzure(kHeader, "t", kOne).status().message(), HasSubstr("holds no request"));
}

std::string WriteFile(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << content;
  return path;
}

TEST(LoadWorkload, ContentDeterminesTheFormatAndThePathIsTheName) {
  const std::string agents =
      R"({"conv":"c","block_size":64,"tool_tokens":0,"sub_agents":0})"
      "\n"
      R"({"timestamp":0,"agent":0,"input_length":64,"output_length":1,"hash_runs":[[1,1]]})";
  const auto block_tokens = [](const std::string& name, const std::string& text) -> int64_t {
    const std::string path = WriteFile(name, text);
    const auto workload = LoadWorkload(path, {});
    if (!workload.ok()) return -1;
    EXPECT_EQ(workload->name, path);
    return workload->slices[0].block_tokens;
  };
  EXPECT_EQ(block_tokens("mooncake", Row(0, 1, 1, "1")), 512);
  EXPECT_EQ(block_tokens("blank_lines", "\n\n" + agents), 64);
  EXPECT_EQ(block_tokens("agents", agents), 64);
  EXPECT_EQ(block_tokens("azure", std::string(kHeader) + "2023-11-16 18:15:46,1,1"), 512);
}

TEST(LoadWorkload, ErrorsNameTheFile) {
  EXPECT_EQ(LoadWorkload("/nonexistent/t", {}).status().code(), StatusCode::kNotFound);
  const std::string path = WriteFile("empty", "");
  EXPECT_EQ(LoadWorkload(path, {}).status().message(), path + ": holds no request");
}

TEST(MakeWorkload, FindsTheBundledTracesInTheDataFolder) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "data";
  fs::create_directories(folder / "traces");
  std::ofstream(folder / "traces" / "mooncake_conversation_40min.jsonl.zst") << Row(0, 77, 1, "1");
  ::setenv("KVCAST_DATA_DIR", folder.c_str(), 1);
  const auto workload = MakeWorkload(kChat, {});
  ::unsetenv("KVCAST_DATA_DIR");
  ASSERT_TRUE(workload.ok()) << workload.status().ToString();
  EXPECT_EQ(workload->name, "chat");
  EXPECT_EQ(workload->slices[0].requests[0].prompt_tokens, 77);
}

TEST(MakeWorkload, UnknownNameIsAnInvalidArgument) {
  const auto workload = MakeWorkload("mail", {});
  ASSERT_FALSE(workload.ok());
  EXPECT_EQ(workload.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(workload.status().message(), HasSubstr("'mail'"));
}

}  // namespace
}  // namespace kvcast::simulate
