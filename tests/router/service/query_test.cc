// The parser of a query's body accepts valid bodies. For every other body, the parser returns an
// error of one line.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/query.h"

#include <gtest/gtest.h>

#include <string>

#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

TEST(ParseQuery, ReadsTokensLoraSaltAndWorkers) {
  const auto query = ParseQuery(
      R"({"tokens": [1, 2, 4294967296], "lora_name": "a", "cache_salt": "s", "workers": ["w"]})");
  ASSERT_TRUE(query.ok()) << query.status().ToString();
  EXPECT_TRUE(query->by_tokens);
  EXPECT_EQ(query->tokens, (std::vector<TokenId>{1, 2, 4294967296}));
  EXPECT_EQ(query->prompt_tokens, 3);
  EXPECT_EQ(query->inputs.lora_name, "a");
  EXPECT_EQ(query->inputs.cache_salt, "s");
  EXPECT_EQ(query->workers, std::vector<std::string>{"w"});
}

TEST(ParseQuery, ReadsLoraPathsItemsAndEmbeddingDigests) {
  const std::string ones = [] {
    std::string hex;
    for (int i = 0; i < 32; ++i) hex += "01";
    return hex;
  }();
  const auto query = ParseQuery(
      R"({"tokens": [1, 2], "lora_name": "sql", "lora_path": "/adapters/sql",
          "mm_items": [{"identifier": "cat", "offset": 0, "length": 1},
                       {"length": 2, "offset": 1, "identifier": "dog"}],
          "prompt_embeds_digests": [{"block_size": 16, "digests": [")" +
      ones + R"("]}, {"block_size": 32, "digests": []}]})");
  ASSERT_TRUE(query.ok()) << query.status().ToString();
  EXPECT_EQ(query->inputs.lora_path, "/adapters/sql");
  ASSERT_EQ(query->inputs.mm_items.size(), 2u);
  EXPECT_EQ(query->inputs.mm_items[1].identifier, "dog");
  EXPECT_EQ(query->inputs.mm_items[1].offset, 1);
  EXPECT_EQ(query->inputs.mm_items[1].length, 2);
  ASSERT_EQ(query->inputs.embedding_digests.size(), 2u);
  EXPECT_EQ(query->inputs.embedding_digests[0].hash_block_size, 16);
  ASSERT_EQ(query->inputs.embedding_digests[0].digests.size(), 1u);
  EXPECT_EQ(query->inputs.embedding_digests[0].digests[0][31], 1);
  EXPECT_TRUE(query->inputs.embedding_digests[1].digests.empty());
}

TEST(ParseQuery, ItemsAndDigestsAreBounded) {
  const auto list = [](size_t count, const std::string& element) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + element;
    return "[" + text + "]";
  };
  const auto parse = [](const std::string& member, const std::string& value) {
    return ParseQuery("{\"tokens\": [1], \"" + member + "\": " + value + "}").status();
  };
  const std::string item = R"({"identifier": "a", "offset": 0, "length": 1})";
  EXPECT_TRUE(parse("mm_items", list(kMaxQueryItems, item)).ok());
  EXPECT_FALSE(parse("mm_items", list(kMaxQueryItems + 1, item)).ok());
  const auto digests = [](size_t sizes) {
    std::string text;
    for (size_t i = 1; i <= sizes; ++i) {
      text += (text.empty() ? "" : ",") + (R"({"block_size": )" + std::to_string(i)) +
              R"(, "digests": []})";
    }
    return "[" + text + "]";
  };
  EXPECT_TRUE(parse("prompt_embeds_digests", digests(kMaxQueryDigestSizes)).ok());
  EXPECT_FALSE(parse("prompt_embeds_digests", digests(kMaxQueryDigestSizes + 1)).ok());
}

TEST(ParseQuery, ReadsHashesOfAllForms) {
  const auto query = ParseQuery(
      R"({"hashes": [18446744073709551615, -3, "00fF"], "hash_block_size": 16, "prompt_tokens": 9})");
  ASSERT_TRUE(query.ok()) << query.status().ToString();
  const uint8_t bytes[] = {0x00, 0xff};
  const std::vector<BlockHash> expected = {BlockHash::FromUnsigned(UINT64_MAX),
                                           BlockHash::FromSigned(-3), BlockHash::FromBytes(bytes)};
  EXPECT_EQ(query->hashes, expected);
  EXPECT_EQ(query->hash_block_size, 16);
  EXPECT_EQ(query->prompt_tokens, 9);
  EXPECT_FALSE(query->by_tokens);
}

struct BadBody {
  std::string body;
  std::string message;
};

class BadBodies : public ::testing::TestWithParam<BadBody> {};

TEST_P(BadBodies, AreRefusedWithTheMemberAtFault) {
  const auto query = ParseQuery(GetParam().body);
  ASSERT_FALSE(query.ok());
  EXPECT_EQ(query.status().message(), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Query, BadBodies,
    ::testing::Values(
        BadBody{"", "body: not JSON"}, BadBody{"{\"tokens\": [1, 2", "body: not JSON"},
        BadBody{"{\"lora_name\": \"\xff\", \"tokens\": [1]}", "body: not JSON"},
        BadBody{"[1]", "body: must be an object"}, BadBody{"null", "body: must be an object"},
        BadBody{"{}", "exactly one of tokens and hashes is required"},
        BadBody{R"({"tokens": [1], "hashes": [1]})",
                "exactly one of tokens and hashes is required"},
        BadBody{R"({"tokens": []})", "tokens: must be a non-empty array"},
        BadBody{R"({"tokens": "1 2"})", "tokens: must be a non-empty array"},
        BadBody{R"({"tokens": [1, -1]})", "tokens[1]: not a token id"},
        BadBody{R"({"tokens": [1.0]})", "tokens[0]: not a token id"},
        BadBody{R"({"tokens": [true]})", "tokens[0]: not a token id"},
        BadBody{R"({"tokens": [9223372036854775808]})", "tokens[0]: not a token id"},
        BadBody{R"({"tokens": [1e999]})", "body: not JSON"},
        BadBody{R"({"tokens": [[1]]})", "tokens[0]: not a token id"},
        BadBody{R"({"tokens": [1], "salt": "x"})", "unknown member: salt"},
        BadBody{R"({"tokens": [1], "lora_name": 7})", "lora_name: must be a string"},
        BadBody{R"({"tokens": [1], "cache_salt": null})", "cache_salt: must be a string"},
        BadBody{R"({"tokens": [1], "prompt_tokens": 4})",
                "hash_block_size and prompt_tokens are allowed only with hashes"},
        BadBody{R"({"tokens": [1], "workers": []})", "workers: must be a non-empty array"},
        BadBody{R"({"tokens": [1], "workers": [3]})", "workers: must be a string"},
        BadBody{R"({"hashes": [0.5]})", "hashes[0]: neither an integer nor hex digits"},
        BadBody{R"({"hashes": [1, "abc"]})", "hashes[1]: neither an integer nor hex digits"},
        BadBody{R"({"hashes": ["0x12"]})", "hashes[0]: neither an integer nor hex digits"},
        BadBody{R"({"hashes": [""]})", "hashes[0]: neither an integer nor hex digits"},
        BadBody{R"({"hashes": 5})", "hashes: must be an array"},
        BadBody{R"({"hashes": [1], "cache_salt": "x"})",
                "cache_salt: not allowed with hashes, because the hashes contain it"},
        BadBody{R"({"hashes": [1], "lora_path": "/a"})",
                "lora_path: not allowed with hashes, because the hashes contain it"},
        BadBody{R"({"hashes": [1], "mm_items": []})",
                "mm_items: not allowed with hashes, because the hashes contain it"},
        BadBody{R"({"hashes": [1], "prompt_embeds_digests": []})",
                "prompt_embeds_digests: not allowed with hashes, because the hashes contain it"},
        BadBody{R"({"tokens": [1], "prompt_embeds_digests": [{"block_size": 4, "digests": []},
                    {"block_size": 4, "digests": []}]})",
                "prompt_embeds_digests[1].block_size: occurs twice"},
        BadBody{R"({"tokens": [1], "lora_path": 7})", "lora_path: must be a string"},
        BadBody{R"({"tokens": [1], "mm_items": {}})",
                "mm_items: must be an array of at most 4096 elements"},
        BadBody{R"({"tokens": [1], "mm_items": [7]})",
                "mm_items[0]: must be an object of identifier, offset and length"},
        BadBody{R"({"tokens": [1], "mm_items": [{"identifier": "a", "offset": 0}]})",
                "mm_items[0]: must be an object of identifier, offset and length"},
        BadBody{R"({"tokens": [1], "mm_items": [{"identifier": "a", "offset": 0, "len": 1}]})",
                "mm_items[0]: must be an object of identifier, offset and length"},
        BadBody{R"({"tokens": [1], "mm_items": [{"identifier": 1, "offset": 0, "length": 1}]})",
                "mm_items[0].identifier: must be a string"},
        BadBody{R"({"tokens": [1], "mm_items": [{"identifier": "a", "offset": 0, "length": 1},
                                                {"identifier": "a", "offset": -1, "length": 1}]})",
                "mm_items[1].offset: must be a non-negative integer"},
        BadBody{R"({"tokens": [1], "mm_items": [{"identifier": "a", "offset": 0, "length": 0}]})",
                "mm_items[0].length: must be a positive integer"},
        BadBody{R"({"tokens": [1], "prompt_embeds_digests": 1})",
                "prompt_embeds_digests: must be an array of at most 16 elements"},
        BadBody{
            R"({"tokens": [1], "prompt_embeds_digests": [{"block_size": 16}]})",
            "prompt_embeds_digests[0]: must be an object of block_size and an array of digests"},
        BadBody{
            R"({"tokens": [1], "prompt_embeds_digests": [{"block_size": 16, "digests": "00"}]})",
            "prompt_embeds_digests[0]: must be an object of block_size and an array of digests"},
        BadBody{R"({"tokens": [1], "prompt_embeds_digests": [{"block_size": 0, "digests": []}]})",
                "prompt_embeds_digests[0].block_size: must be a positive integer"},
        BadBody{
            R"({"tokens": [1], "prompt_embeds_digests": [{"block_size": 4, "digests": ["00"]}]})",
            "prompt_embeds_digests[0].digests[0]: not the hex digits of 32 bytes"},
        BadBody{R"({"hashes": [1], "hash_block_size": 0})",
                "hash_block_size: must be a positive integer"},
        BadBody{R"({"hashes": [1], "hash_block_size": 16.5})",
                "hash_block_size: must be a positive integer"},
        BadBody{R"({"hashes": [1], "prompt_tokens": 18446744073709551615})",
                "prompt_tokens: must be a positive integer"},
        BadBody{R"({"hashes": [1], "prompt_tokens": 2147483649})",
                "prompt_tokens: must be at most 2147483648"},
        BadBody{R"({"hashes": [1], "prompt_tokens": 4611686018427387904})",
                "prompt_tokens: must be at most 2147483648"}));

TEST(ParseQuery, ThePromptMayHaveAllAllowedTokens) {
  const auto query = ParseQuery(R"({"hashes": [1], "prompt_tokens": 2147483648})");
  ASSERT_TRUE(query.ok());
  EXPECT_EQ(query->prompt_tokens, kMaxPromptTokens);
}

TEST(ParseQuery, DeepNestingCostsNoStackAndNoMemory) {
  const std::string deep = "{\"tokens\": " + std::string(1 << 18, '[');
  EXPECT_EQ(ParseQuery(deep).status().message(), "body: not JSON");
  const std::string closed =
      "{\"tokens\": " + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_EQ(ParseQuery(closed).status().message(), "tokens[0]: not a token id");
}

std::string Repeated(const std::string& element, size_t count) {
  std::string text = element;
  for (size_t i = 1; i < count; ++i) text += "," + element;
  return "[" + text + "]";
}

TEST(ParseQuery, PromptsAreBounded) {
  const auto of = [](const std::string& member, const std::string& element, size_t count) {
    const auto query = ParseQuery("{\"" + member + "\":" + Repeated(element, count) + "}");
    return query.ok() ? "" : query.status().message();
  };
  EXPECT_EQ(of("tokens", "7", kMaxQueryTokens), "");
  EXPECT_EQ(of("tokens", "7", kMaxQueryTokens + 1), "tokens: more than 2097152 elements");
  for (const std::string hash : {"7", "-7", "\"00ff\""}) {
    EXPECT_EQ(of("hashes", hash, kMaxQueryHashes), "") << hash;
    EXPECT_EQ(of("hashes", hash, kMaxQueryHashes + 1), "hashes: more than 131072 elements") << hash;
  }
}

// A parsed JSON document takes many times the memory of its text.
TEST(ParseQuery, LimitsTheBytesBesidesThePrompt) {
  const auto of = [](const std::string& prompt, size_t bytes) {
    const std::string body = "{\"tokens\":" + prompt + ",\"a\":0";
    return ParseQuery(body + std::string(bytes - body.size() - 1, ' ') + "}").status().message();
  };
  const std::string refused = "body: longer than 524288 bytes";
  EXPECT_EQ(of("[1]", kMaxQueryRestBytes), "unknown member: a");
  EXPECT_EQ(of("[1]", kMaxQueryRestBytes + 2), refused + " besides the prompt");
  EXPECT_EQ(of(Repeated("1", 500000), 1000000 + 1000), "unknown member: a");
  EXPECT_EQ(of("[true]", kMaxQueryRestBytes + 1), refused + ", and no prompt can be read");
}

TEST(ParseQuery, TextsAreBounded) {
  const std::string text(kMaxQueryTextBytes + 1, 'a');
  EXPECT_EQ(ParseQuery("{\"tokens\": [1], \"cache_salt\": \"" + text + "\"}").status().message(),
            "cache_salt: must have at most 1024 bytes");
  const std::string hash(2 * kMaxHexHashBytes + 2, 'a');
  EXPECT_FALSE(ParseQuery("{\"hashes\": [\"" + hash + "\"]}").ok());
}

TEST(ParseQuery, ReadsTheMarkerOfAVllmPromptOnlyWithTokens) {
  const auto message = [](const std::string& body, QueryForm form = QueryForm::kRoute) {
    return ParseQuery(body, form).status().message();
  };
  const auto query =
      ParseQuery(R"({"tokens": [1], "vllm_checkpoint_token": 7})", QueryForm::kRoute);
  ASSERT_TRUE(query.ok()) << query.status().ToString();
  EXPECT_EQ(query->vllm_checkpoint_token, 7);
  EXPECT_EQ(message(R"({"hashes": [1], "vllm_checkpoint_token": 7})"),
            "vllm_checkpoint_token is allowed only with tokens");
  EXPECT_NE(message(R"({"tokens": [1], "vllm_checkpoint_token": -1})"), "");
  EXPECT_EQ(message(R"({"tokens": [1], "vllm_checkpoint_token": 7})", QueryForm::kQuery),
            "unknown member: vllm_checkpoint_token");
}

TEST(ParseQuery, OnlyARouteMayHaveATimeLimit) {
  const auto message = [](const char* limit, QueryForm form) {
    const std::string body = std::string(R"({"tokens": [1], "ttft_slo_ms": )") + limit + "}";
    return ParseQuery(body, form).status().message();
  };
  const auto query = ParseQuery(R"({"tokens": [1], "ttft_slo_ms": 0.5})", QueryForm::kRoute);
  ASSERT_TRUE(query.ok());
  EXPECT_EQ(query->ttft_slo_ms, 0.5);
  EXPECT_EQ(ParseQuery(R"({"tokens": [1]})", QueryForm::kRoute)->ttft_slo_ms, std::nullopt);
  EXPECT_EQ(message("0", QueryForm::kRoute), "");
  EXPECT_EQ(message("1e9", QueryForm::kRoute), "");
  const std::string refused = "ttft_slo_ms: must be a number from 0 to 1e+09";
  EXPECT_EQ(message("-1", QueryForm::kRoute), refused);
  EXPECT_EQ(message("1.1e9", QueryForm::kRoute), refused);
  EXPECT_EQ(message("\"5\"", QueryForm::kRoute), refused);
  EXPECT_EQ(message("5", QueryForm::kQuery), "unknown member: ttft_slo_ms");
}

TEST(RenderAnswers, GivesOneObjectPerWorker) {
  QueryAnswer answer;
  answer.name = "w\xff\"";
  answer.match.gpu_tokens = 48;
  answer.match.with_cpu_tokens = 64;
  answer.match.with_storage_tokens = 80;
  answer.match.per_group_tokens = {64, 48};
  answer.match.hit = HitKind::kPartial;
  answer.match.limiting_group = 1;
  answer.match.recompute_tokens = 52;
  answer.match.certain = false;
  answer.hash_block_size = 16;
  answer.state = SourceState::kSynced;
  answer.weight = 0.5;
  answer.next_seq = 9;
  answer.event_age_seconds = 1.5;
  answer.scheme = std::make_shared<const SchemeVerdict>(
      SchemeVerdict{SchemeState::kMatched, ChainScheme{HashAlgorithm::kSha256, "0", {1}, 16}, ""});
  answer.exact = answer.exact_with_cpu = true;
  EXPECT_EQ(RenderAnswers({answer}),
            "{\"workers\":[{\"certain\":false,\"event_age_seconds\":1.5,\"exact\":true,"
            "\"exact_with_cpu\":true,\"hash_block_size\":16,"
            "\"hit\":\"partial\",\"limiting_group\":1,\"model\":\"\",\"name\":"
            "\"w\xEF\xBF\xBD\\\"\",\"named_by\":\"content\","
            "\"next_seq\":9,\"per_group_tokens\":[64,48],\"reason\":\"\",\"reason_with_cpu\":\"\","
            "\"recompute_tokens\":52,"
            "\"replay_tokens\":0,"
            "\"reusable_tokens\":48,\"reusable_with_cpu_tokens\":64,"
            "\"reusable_with_storage_tokens\":80,\"scheme\":{\"algorithm\":\"sha256\","
            "\"hash_block_size\":16,\"reason\":\"\",\"seed\":\"0\",\"state\":\"matched\"},"
            "\"state\":\"synced\",\"weight\":0.5}]}\n");
}

TEST(RenderAnswers, AConnectingOrClearedStateIsNotCertain) {
  QueryAnswer answer;
  answer.match.certain = true;
  const auto certain = [&answer](SourceState state) {
    answer.state = state;
    return RenderAnswers({answer}).find("\"certain\":true") != std::string::npos;
  };
  EXPECT_FALSE(certain(SourceState::kConnecting));
  EXPECT_FALSE(certain(SourceState::kCleared));
  EXPECT_TRUE(certain(SourceState::kSynced));
  EXPECT_TRUE(certain(SourceState::kGap));
}

TEST(RenderAnswers, WritesNullForUnknownValues) {
  const std::string text = RenderAnswers({QueryAnswer()});
  EXPECT_NE(text.find("\"event_age_seconds\":null"), std::string::npos) << text;
  EXPECT_NE(text.find("\"limiting_group\":null"), std::string::npos) << text;
  EXPECT_NE(text.find("\"hit\":\"miss\""), std::string::npos) << text;
  EXPECT_EQ(RenderAnswers({}), "{\"workers\":[]}\n");
}

}  // namespace
}  // namespace kvcast::router
