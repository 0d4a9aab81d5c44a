// The parser reads the same query from MessagePack as from JSON.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/packed_query.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "router/service/json/json_fields.h"
#include "src/base/sanitizers.h"

namespace kvcast::router {
namespace {

std::string Packed(const Json& json) {
  const std::vector<uint8_t> bytes = Json::to_msgpack(json);
  return {bytes.begin(), bytes.end()};
}

Result<Query> Parse(const std::string& body, QueryForm form = QueryForm::kQuery) {
  return ParseQuery(body, form, QueryEncoding::kMessagePack);
}

std::string ErrorOf(const std::string& body) {
  const auto query = Parse(body);
  return query.ok() ? "no error" : query.status().message();
}
std::string ErrorOf(const Json& json) { return ErrorOf(Packed(json)); }

// Compares two queries, except lora_path and the embedding digests.
void ExpectEqual(const Query& a, const Query& b) {
  EXPECT_EQ(a.by_tokens, b.by_tokens);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.hashes, b.hashes);
  EXPECT_EQ(a.hash_block_size, b.hash_block_size);
  EXPECT_EQ(a.prompt_tokens, b.prompt_tokens);
  EXPECT_EQ(a.workers, b.workers);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.routing_group, b.routing_group);
  EXPECT_EQ(a.request_id, b.request_id);
  EXPECT_EQ(a.temperature, b.temperature);
  EXPECT_EQ(a.ttft_slo_ms, b.ttft_slo_ms);
  EXPECT_EQ(a.book, b.book);
  EXPECT_EQ(a.inputs.lora_name, b.inputs.lora_name);
  EXPECT_EQ(a.inputs.cache_salt, b.inputs.cache_salt);
  ASSERT_EQ(a.inputs.mm_items.size(), b.inputs.mm_items.size());
  for (size_t i = 0; i < a.inputs.mm_items.size(); ++i) {
    EXPECT_EQ(a.inputs.mm_items[i].identifier, b.inputs.mm_items[i].identifier);
    EXPECT_EQ(a.inputs.mm_items[i].offset, b.inputs.mm_items[i].offset);
    EXPECT_EQ(a.inputs.mm_items[i].length, b.inputs.mm_items[i].length);
  }
}

TEST(PackedQuery, HasTheMembersOfTheJsonForm) {
  // Token ids of all lengths that MessagePack has. The reader has a fast path for runs of short
  // ids.
  Json tokens = Json::array();
  for (int64_t i = 0; i < 1000; ++i) tokens.push_back(i * 37 % 150000);
  for (const int64_t id : {int64_t{0}, int64_t{127}, int64_t{128}, int64_t{65536}, INT64_MAX}) {
    tokens.push_back(id);
  }
  const Json bodies[] = {
      {{"tokens", tokens}},
      {{"model", "m"}, {"tokens", tokens}, {"workers", {"a", "b"}}, {"cache_salt", "s"}},
      {{"tokens", {1}},
       {"lora_name", "l"},
       {"mm_items", {{{"identifier", "x"}, {"offset", 0}, {"length", 4}}}},
       {"routing_group", "g"}},
      {{"hashes", {1, UINT64_MAX, -3, "00ff"}}, {"hash_block_size", 16}, {"prompt_tokens", 65}},
      {{"hashes", Json::array()}},
      {{"tokens", {5}}, {"request_id", "r"}, {"temperature", 0.5}, {"book", false}},
      {{"tokens", {5}}, {"ttft_slo_ms", 250.5}}};
  for (const Json& json : bodies) {
    const auto expected = ParseQuery(json.dump(), QueryForm::kRoute);
    const auto packed = Parse(Packed(json), QueryForm::kRoute);
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    ExpectEqual(*packed, *expected);
  }
}

TEST(PackedQuery, HashesMayBeBytes) {
  const auto query = Parse(Packed({{"hashes", {Json::binary({0x00, 0xff}), "00ff"}}}));
  ASSERT_TRUE(query.ok());
  ASSERT_EQ(query->hashes.size(), 2u);
  EXPECT_EQ(query->hashes[0], query->hashes[1]);
}

TEST(PackedQuery, IsRefusedWithOneLineThatNamesTheMember) {
  EXPECT_EQ(ErrorOf(std::string()), "body: not MessagePack");
  EXPECT_EQ(ErrorOf(Packed({{"tokens", {1}}}) + "x"), "body: not MessagePack");
  EXPECT_EQ(ErrorOf(Json::array()), "body: must be a map");
  EXPECT_EQ(ErrorOf(Json(5)), "body: must be a map");
  EXPECT_EQ(ErrorOf(std::string("\x81\x01\x01")), "body: a member's name is not a string");
  EXPECT_EQ(ErrorOf(Json({{"model", "m"}})), "exactly one of tokens and hashes is required");
  EXPECT_EQ(ErrorOf(Json({{"tokens", {1}}, {"hashes", {1}}})),
            "exactly one of tokens and hashes is required");
  EXPECT_EQ(ErrorOf(std::string("\x82\xa6tokens\x91\x01\xa6tokens\x91\x01")),
            "exactly one of tokens and hashes is required");
  EXPECT_EQ(ErrorOf(Json({{"tokens", 5}})), "tokens: must be an array");
  EXPECT_EQ(ErrorOf(Json({{"tokens", Json::array()}})), "tokens: must be a non-empty array");
  EXPECT_EQ(ErrorOf(Json({{"tokens", {1, -1}}})), "tokens[1]: not a token id");
  EXPECT_EQ(ErrorOf(Json({{"tokens", {1, 2, 0.5}}})), "tokens[2]: not a token id");
  EXPECT_EQ(ErrorOf(Json({{"tokens", {uint64_t{1} << 63}}})), "tokens[0]: not a token id");
  EXPECT_EQ(ErrorOf(Json({{"hashes", {1, "0"}}})),
            "hashes[1]: neither an integer, nor bytes, nor hex digits");
  EXPECT_EQ(ErrorOf(Json({{"tokens", {1}}, {"cache_slat", "s"}})), "unknown member: cache_slat");
  EXPECT_EQ(ErrorOf(Json({{"hashes", {1}}, {"cache_salt", "s"}})),
            ParseQuery(R"({"hashes": [1], "cache_salt": "s"})").status().message());
  EXPECT_EQ(ErrorOf(Json({{"tokens", {1}}, {"model", Json::binary({1})}})),
            "model: must be a string");
}

TEST(PackedQuery, IsBounded) {
  // nlohmann-json would read this value recursively.
  const std::string deep =
      "\x82\xa6tokens\x91\x01\xa5model" + std::string(1 << 20, '\x91') + "\x01";
  EXPECT_EQ(ErrorOf(deep), "body: nested too deep");
  std::string many = "\x81\xa6tokens\xdd";
  const uint32_t count = kMaxQueryTokens + 1;
  for (int shift = 24; shift >= 0; shift -= 8) many.push_back(static_cast<char>(count >> shift));
  EXPECT_EQ(ErrorOf(many + std::string(count, '\x01')),
            "tokens: more than " + std::to_string(kMaxQueryTokens) + " elements");
  // For a large count without elements, the parser reserves no memory.
  EXPECT_EQ(ErrorOf(many), "body: not MessagePack");
  std::string hashes = "\x81\xa6hashes\xdd";
  const uint32_t hash_count = kMaxQueryHashes + 1;
  for (int shift = 24; shift >= 0; shift -= 8) {
    hashes.push_back(static_cast<char>(hash_count >> shift));
  }
  EXPECT_EQ(ErrorOf(hashes + std::string(hash_count, '\x01')),
            "hashes: more than " + std::to_string(kMaxQueryHashes) + " elements");
  const Json large = {{"tokens", {1}}, {"model", std::string(kMaxQueryRestBytes, 'x')}};
  EXPECT_EQ(ErrorOf(large), "body: longer than " + std::to_string(kMaxQueryRestBytes) +
                                " bytes besides the prompt");
}

// A damaged body is refused, or gives the query that a MessagePack library reads from it.
TEST(PackedQuery, AgreesWithALibraryOnDamagedBodies) {
  const std::string body =
      Packed({{"model", "m"}, {"tokens", {1, 200, 70000, 5}}, {"workers", {"a", "b"}}});
  std::mt19937 random(1);
  constexpr int kBodies = kSanitized ? 25000 : 100000;
  int taken = 0;
  for (int i = 0; i < kBodies; ++i) {
    std::string damaged = body;
    for (unsigned changes = random() % 3; changes > 0; --changes) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    const auto query = Parse(damaged);
    if (!query.ok()) continue;
    ++taken;
    const Json json = Json::from_msgpack(damaged, true, false);
    ASSERT_FALSE(json.is_discarded());
    const auto expected = ParseQuery(json.dump(-1, ' ', false, Json::error_handler_t::ignore));
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    EXPECT_EQ(query->tokens, expected->tokens);
  }
  EXPECT_GT(taken, kBodies / 10);
}

TEST(PackedQuery, IsChosenByTheContentType) {
  for (const char* type : {"application/msgpack", "application/x-msgpack; charset=binary",
                           "Application/MsgPack", "application/vnd.msgpack"}) {
    EXPECT_TRUE(IsPackedType(type)) << type;
  }
  for (const char* type : {"", "application/json", "msgpack", "application/msgpack2"}) {
    EXPECT_FALSE(IsPackedType(type)) << type;
  }
}

}  // namespace
}  // namespace kvcast::router
