// The workload of agents. A request of a conversation is sent after the previous request has ended.
// Conversations with equal models and tools share the prompt of the tools. An error names the line
// and the reason.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "apps/simulate/workload_sources.h"

namespace kvcast::simulate {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr SliceOptions kOneAgentSlice{.slices = 1, .requests = 0, .seed = 1};

std::string Header(int64_t tool_tokens) {
  return "{\"conv\":\"c\",\"block_size\":10,\"sub_agents\":0,\"tool_tokens\":" +
         std::to_string(tool_tokens) + "}\n";
}
std::string AgentRow(int64_t agent, const std::string& model, int64_t input,
                     const std::string& runs, const std::string& more = "") {
  return "{\"timestamp\":0,\"agent\":" + std::to_string(agent) + ",\"model\":\"" + model +
         "\",\"input_length\":" + std::to_string(input) +
         ",\"output_length\":2,\"hash_runs\":" + runs + more + "}\n";
}

Slice OneSlice(const std::string& text) {
  auto workload = ParseAgents(text, "t", kOneAgentSlice);
  EXPECT_TRUE(workload.ok()) << workload.status().ToString();
  return workload.ok() ? workload->slices.at(0) : Slice{};
}

TEST(Agents, RequestsOfAConversationWaitForEachOther) {
  const Slice slice = OneSlice(Header(0) + AgentRow(0, "m", 25, "[[1,2]]") +
                               AgentRow(0, "m", 38, "[[1,3]]", ",\"think_ms\":1500") +
                               AgentRow(0, "m", 30, "[[1,1],[8,2]]", ",\"think_ms\":900000"));
  ASSERT_EQ(slice.requests.size(), 3u);
  EXPECT_EQ(slice.block_tokens, 10);
  EXPECT_EQ(slice.requests[0].after, kNoRequest);
  EXPECT_EQ(slice.requests[1].after, 0);
  EXPECT_EQ(slice.requests[2].after, 1);
  EXPECT_EQ(slice.requests[1].delay_s, 1.5);
  EXPECT_EQ(slice.requests[2].delay_s, 60);  // longer pauses are cut
  EXPECT_EQ(slice.requests[0].next, 1);
  EXPECT_EQ(slice.requests[1].next, kNoRequest);  // the last prompt differs in its second block
  EXPECT_EQ(slice.requests[0].blocks[0], slice.requests[2].blocks[0]);
  EXPECT_EQ(slice.requests[0].session, slice.requests[2].session);
}

TEST(Agents, SubAgentHasItsOwnChain) {
  const Slice slice =
      OneSlice(Header(0) + AgentRow(0, "m", 20, "[[1,2]]") + AgentRow(1, "m", 20, "[[50,2]]") +
               AgentRow(0, "m", 30, "[[1,3]]") + AgentRow(1, "m", 30, "[[50,3]]"));
  ASSERT_EQ(slice.requests.size(), 4u);
  EXPECT_EQ(slice.requests[1].after, 0);  // starts after the last request of the main agent
  EXPECT_EQ(slice.requests[2].after, 0);
  EXPECT_EQ(slice.requests[3].after, 1);
  EXPECT_NE(slice.requests[0].session, slice.requests[1].session);
}

TEST(Agents, ConversationEndsBeforeTooLongAPrompt) {
  const Slice slice =
      OneSlice(Header(0) + AgentRow(0, "m", 20, "[[1,2]]") +
               AgentRow(0, "m", 200000, "[[1,20000]]") + AgentRow(0, "m", 20, "[[1,2]]"));
  EXPECT_EQ(slice.requests.size(), 1u);
}

// The key is the prompt length. It identifies a request, because the slice has another order than
// the text.
std::map<int64_t, std::vector<uint64_t>> BlocksByLength(const std::string& text) {
  std::map<int64_t, std::vector<uint64_t>> blocks;
  for (const auto& request : OneSlice(text).requests)
    blocks[request.prompt_tokens] = request.blocks;
  return blocks;
}

TEST(Agents, OnlyEqualModelsWithEqualToolsShareTheToolPrompt) {
  auto blocks = BlocksByLength(Header(25) + AgentRow(0, "m", 40, "[[1,4]]") +  //
                               Header(25) + AgentRow(0, "m", 41, "[[1,4]]") +  //
                               Header(25) + AgentRow(0, "x", 42, "[[1,4]]") +  //
                               Header(35) + AgentRow(0, "m", 43, "[[1,4]]"));
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(blocks[40][0], blocks[41][0]);
  EXPECT_EQ(blocks[40][1], blocks[41][1]);
  EXPECT_NE(blocks[40][2], blocks[41][2]);  // the tool prompt ends inside the third block
  EXPECT_NE(blocks[40][0], blocks[42][0]);
  EXPECT_NE(blocks[40][0], blocks[43][0]);
}

TEST(Agents, RequestWithOtherToolsSharesOnlyTheCommonBlocks) {
  auto blocks =
      BlocksByLength(Header(30) + AgentRow(0, "m", 40, "[[1,4]]") +
                     AgentRow(0, "m", 41, "[[1,1],[20,3]]") + AgentRow(0, "m", 42, "[[30,4]]"));
  EXPECT_EQ(blocks[40][0], blocks[41][0]);
  EXPECT_NE(blocks[40][1], blocks[41][1]);
  EXPECT_NE(blocks[40][0], blocks[42][0]);
}

TEST(Agents, SlicesAreDisjointAndHaveAtMostTheRequestedSize) {
  std::string text;
  for (int64_t c = 0; c < 6; ++c) {
    text += Header(0) + AgentRow(0, "m", 20 + c, "[[1,2]]") + AgentRow(0, "m", 30 + c, "[[1,3]]");
  }
  const auto workload = ParseAgents(text, "t", {.slices = 3, .requests = 3, .seed = 5});
  ASSERT_TRUE(workload.ok());
  ASSERT_EQ(workload->slices.size(), 3u);
  std::set<uint64_t> seen;
  for (const Slice& slice : workload->slices) {
    ASSERT_EQ(slice.requests.size(), 3u);  // the second conversation is cut
    EXPECT_EQ(slice.requests[2].next, kNoRequest);
    std::set<uint64_t> names;
    for (const auto& request : slice.requests) {
      names.insert(request.blocks.begin(), request.blocks.end());
    }
    for (const uint64_t name : names) EXPECT_TRUE(seen.insert(name).second);
  }
  EXPECT_EQ(ParseAgents(text, "t", {.slices = 100, .seed = 5})->slices.size(), 6u);
}

TEST(Agents, BlockIdsNearTheLimitAreAccepted) {
  const Slice slice = OneSlice(Header(0) + AgentRow(0, "m", 20, "[[9223372036854775807,2]]"));
  EXPECT_EQ(slice.requests.at(0).blocks.size(), 2u);
}

struct BadLine {
  std::string line;
  const char* reason;
};

class RefusedAgents : public ::testing::TestWithParam<BadLine> {};

TEST_P(RefusedAgents, NamesTheLineAndTheReason) {
  const auto bad = ParseAgents(Header(0) + AgentRow(0, "m", 20, "[[1,2]]") + GetParam().line, "t",
                               kOneAgentSlice);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), StatusCode::kMalformed);
  EXPECT_THAT(bad.status().message(), StartsWith(std::string("t:3: ") + GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(
    Agents, RefusedAgents,
    ::testing::Values(
        BadLine{"x", "not a JSON object"}, BadLine{"[1]", "not a JSON object"},
        BadLine{R"({"block_size":0,"tool_tokens":0})", "block_size is out of range"},
        BadLine{R"({"block_size":20,"tool_tokens":0})",
                "block_size differs from that of the first conversation"},
        BadLine{R"({"block_size":10})", "tool_tokens is missing or not an integer"},
        BadLine{R"({"block_size":10,"tool_tokens":-1})", "tool_tokens is out of range"},
        BadLine{R"({"timestamp":0,"agent":0})", "input_length is missing or not an integer"},
        BadLine{R"({"timestamp":0,"input_length":1.5})", "input_length is missing or not an"},
        BadLine{R"({"timestamp":0,"input_length":0})", "input_length is out of range"},
        BadLine{R"({"timestamp":0,"input_length":18446744073709551615})",
                "input_length is out of range"},
        BadLine{R"({"timestamp":0,"input_length":1,"output_length":-1})",
                "output_length is out of range"},
        BadLine{AgentRow(1 << 20, "m", 20, "[[1,2]]"), "agent is out of range"},
        BadLine{R"({"timestamp":0,"agent":0,"input_length":20,"output_length":1})",
                "hash_runs is missing or not an array"},
        BadLine{AgentRow(0, "m", 20, "[[1]]"), "hash_runs holds an entry that is not a pair"},
        BadLine{AgentRow(0, "m", 20, "[1,2]"), "hash_runs holds an entry that is not a pair"},
        BadLine{AgentRow(0, "m", 20, "[[1,-2]]"), "hash_runs holds a negative count"},
        BadLine{AgentRow(0, "m", 20, "[[1,1]]"),
                "hash_runs has 1 blocks where input_length needs 2"},
        BadLine{AgentRow(0, "m", 20, "[[1,3]]"), "hash_runs has more blocks than the 2"},
        // No memory is taken for these blocks.
        BadLine{AgentRow(0, "m", 20, "[[1,9223372036854775807]]"), "hash_runs has more blocks"}));

TEST(Agents, ErrorsOfWholeFiles) {
  EXPECT_THAT(ParseAgents(AgentRow(0, "m", 20, "[[1,2]]"), "t", kOneAgentSlice).status().message(),
              StartsWith("t:1: a request before the first header"));
  EXPECT_THAT(ParseAgents(Header(0), "t", kOneAgentSlice).status().message(),
              HasSubstr("holds no request"));
}

}  // namespace
}  // namespace kvcast::simulate
