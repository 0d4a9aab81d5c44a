// PromptWithCheckpoint writes a hint as vLLM's marker, where vLLM accepts the marker.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/vllm_prompt.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "router/service/json/json_fields.h"
#include "router/service/route/decision_json.h"

namespace kvcast::router {
namespace {

constexpr TokenId kMarker = 99;

// A prompt of ten tokens, 10 to 19, for an engine with hash units of four tokens.
struct VllmPrompt : ::testing::Test {
  VllmPrompt() {
    query.tokens.resize(10);
    std::iota(query.tokens.begin(), query.tokens.end(), 10);
    query.vllm_checkpoint_token = kMarker;
    decision.keep_prefix_tokens = 8;
    decision.candidates.resize(1);
    decision.candidates[0].answer.hash_block_size = 4;
  }
  // Returns the position of the marker. nullopt: the prompt has no marker.
  std::optional<int64_t> Position() const {
    auto prompt = PromptWithCheckpoint(query, decision);
    if (!prompt) return std::nullopt;
    const auto marker = std::find(prompt->begin(), prompt->end(), kMarker);
    const auto position = marker - prompt->begin();
    prompt->erase(marker);
    EXPECT_EQ(*prompt, query.tokens);
    return position;
  }
  void AddItem(int64_t offset, int64_t length) {
    query.inputs.mm_items.push_back({.identifier = "cat", .offset = offset, .length = length});
  }

  Query query;
  RouteDecision decision;
};

TEST_F(VllmPrompt, TheMarkerIsAtTheEndOfThePrefix) {
  EXPECT_EQ(Position(), 8);
  EXPECT_EQ(*PromptWithCheckpoint(query, decision),
            (std::vector<TokenId>{10, 11, 12, 13, 14, 15, 16, 17, kMarker, 18, 19}));
  decision.keep_prefix_tokens = 4;
  EXPECT_EQ(Position(), 4);
}

TEST_F(VllmPrompt, WithoutAHintOrATokenThereIsNoMarker) {
  decision.keep_prefix_tokens = 0;
  EXPECT_EQ(Position(), std::nullopt);
  decision.keep_prefix_tokens = 8;
  query.vllm_checkpoint_token.reset();
  EXPECT_EQ(Position(), std::nullopt);
}

TEST_F(VllmPrompt, ThereIsOneMarkerWithTokensOnBothSides) {
  decision.keep_prefix_tokens = 10;
  EXPECT_EQ(Position(), std::nullopt) << "no token follows the marker";
  decision.keep_prefix_tokens = 8;
  query.tokens[2] = kMarker;
  EXPECT_EQ(PromptWithCheckpoint(query, decision), std::nullopt);
}

TEST_F(VllmPrompt, TheMarkerIsNeverInsideAMultimodalItem) {
  AddItem(1, 2);
  AddItem(6, 3);
  EXPECT_EQ(Position(), 6);
  decision.keep_prefix_tokens = 6;
  EXPECT_EQ(Position(), 6);
  decision.keep_prefix_tokens = 9;
  EXPECT_EQ(Position(), 9);
}

TEST_F(VllmPrompt, TheMarkerIsBeforeItemsThatOverlap) {
  AddItem(5, 3);
  AddItem(6, 4);
  EXPECT_EQ(Position(), 5) << "the second item begins inside the first item";
}

TEST_F(VllmPrompt, AnItemOfAnyLengthHasAnEnd) {
  AddItem(6, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Position(), 6);
}

TEST_F(VllmPrompt, TheMarkerIsNotBeforeTheFirstHashUnit) {
  AddItem(3, 6);
  EXPECT_EQ(Position(), std::nullopt);
}

TEST_F(VllmPrompt, IsPartOfTheReplyIfTheRequestAsksForIt) {
  const auto reply = [this] { return Json::parse(RenderDecision(decision, query)); };
  EXPECT_EQ(reply().at("vllm_prompt").at(8), kMarker);
  EXPECT_FALSE(Json::parse(RenderDecision(decision)).contains("vllm_prompt"));
  decision.keep_prefix_tokens = 0;
  EXPECT_EQ(reply().at("vllm_prompt"), nullptr);
  query.vllm_checkpoint_token.reset();
  EXPECT_FALSE(reply().contains("vllm_prompt"));
}

}  // namespace
}  // namespace kvcast::router
