// The fast reader of a prompt returns the same numbers as a JSON parser, or returns nothing.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/json/number_array.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "router/service/json/json_fields.h"
#include "src/base/sanitizers.h"

namespace kvcast::router {
namespace {

constexpr std::array<std::string_view, 2> kMembers = {"tokens", "hashes"};

std::optional<NumberArray> Take(std::string_view body) {
  return TakeNumberArray(body, kMembers, 1000);
}

TEST(NumberArray, IsTakenOutOfItsObject) {
  const auto array = Take(R"( { "model" : "a\"]", "hashes": [ 0, 7 ,18446744073709551615 ],
                               "x": {"y": [1, {"z": "}"}]}, "b": true } )");
  ASSERT_TRUE(array);
  EXPECT_EQ(array->member, "hashes");
  EXPECT_EQ(array->numbers, (std::vector<uint64_t>{0, 7, UINT64_MAX}));
  EXPECT_EQ(Json::parse(array->rest), Json::parse(R"({"model": "a\"]", "hashes": [],
                                                      "x": {"y": [1, {"z": "}"}]}, "b": true})"));
}

TEST(NumberArray, OtherBodiesAreNotTaken) {
  for (const char* body : {"",
                           "[1]",
                           "{}",
                           "5",
                           "{\"hashes\"}",
                           "{\"hashes\": 5}",
                           "{\"hashes\": []}",
                           "{\"hashes\": [-1]}",
                           "{\"hashes\": [1.0]}",
                           "{\"hashes\": [1e3]}",
                           "{\"hashes\": [01]}",
                           "{\"hashes\": [\"1\"]}",
                           "{\"hashes\": [[1]]}",
                           "{\"hashes\": [true]}",
                           "{\"hashes\": [18446744073709551616]}",
                           "{\"hashes\": [99999999999999999999]}",
                           "{\"hashes\": [1,]}",
                           "{\"hashes\": [,1]}",
                           "{\"hashes\": [1 2]}",
                           "{\"hashes\": [1",
                           "{\"hashes\": [1]",
                           "{\"hashes\": [1]} x",
                           "{\"hashes\": [1]]",
                           "{\"hashes\": [1],}",
                           "{\"hashes\": [1], \"hashes\": [2]}",
                           "{\"hashes\": [1], \"tokens\": [2]}",
                           "{\"hashes\": [1], \"hash\\u0065s\": [2]}",
                           "{\"x\": {\"hashes\": [1]}}",
                           "{\"x\": \"hashes\", \"y\": [1]}",
                           "{\"x\": \"\\\",\\\"hashes\\\":[1]\"}"}) {
    EXPECT_FALSE(Take(body)) << body;
  }
}

TEST(NumberArray, EndsWhereItIsTooLong) {
  EXPECT_FALSE(TakeNumberArray(R"({"hashes": [1, 2]})", kMembers, 2)->too_long);
  EXPECT_TRUE(TakeNumberArray(R"({"hashes": [1, 2, 3]})", kMembers, 2)->too_long);
}

TEST(HashArray, HoldsIntegersOfEitherSignAndHexDigits) {
  const auto array = TakeHashArray(
      R"({"x": 1, "hashes": [18446744073709551615, -3, "00fF", -9223372036854775808]})", "hashes",
      4);
  ASSERT_TRUE(array);
  const uint8_t bytes[] = {0x00, 0xff};
  const std::vector<BlockHash> expected = {BlockHash::FromUnsigned(UINT64_MAX),
                                           BlockHash::FromSigned(-3), BlockHash::FromBytes(bytes),
                                           BlockHash::FromSigned(INT64_MIN)};
  EXPECT_EQ(array->hashes, expected);
  EXPECT_FALSE(array->too_long);
  EXPECT_EQ(array->rest, R"({"x": 1, "hashes": []})");
  EXPECT_TRUE(TakeHashArray(R"({"hashes": ["00", "01"]})", "hashes", 1)->too_long);
  EXPECT_EQ(TakeHashArray(R"({"hashes": ["\u0030\u0030"]})", "hashes", 1)->hashes,
            TakeHashArray(R"({"hashes": ["00"]})", "hashes", 1)->hashes);
}

TEST(HashArray, OtherBodiesAreNotTaken) {
  for (const char* element : {"", "0.5", "\"abc\"", "\"\"", "\"0x12\"", "-", "- 1", "-0",
                              "-9223372036854775809", "\"00", "true", "[1]", "--1", "-01"}) {
    const std::string body = std::string("{\"hashes\": [") + element + "]}";
    EXPECT_FALSE(TakeHashArray(body, "hashes", 9)) << body;
  }
}

// If a damaged body is accepted, the numbers equal the parser's numbers. `rest` is valid JSON if
// and only if the body is valid JSON.
TEST(NumberArray, AgreesWithAParserOnDamagedBodies) {
#ifdef KVCAST_THREAD_SANITIZER
  GTEST_SKIP() << "the test has no threads";
#endif
  const std::string bodies[] = {
      R"({"hashes": [1, 22, 333], "model": "m", "workers": ["a", "b"], "book": false})",
      R"({"model": "\"tokens\": [1]", "temperature": 0.5, "tokens": [10, 20], "request_id": "x"})",
      R"({"a": {"tokens": [1]}, "b": [[], {}], "tokens":[3]})"};
  constexpr std::string_view kAlphabet = "{}[]\",:\\ 0123456789-.eau\n\xff";
  std::mt19937 random(1);
  int taken = 0;
  int broken = 0;
  for (int i = 0; i < (kSanitized ? 50000 : 200000); ++i) {
    std::string body = bodies[random() % std::size(bodies)];
    for (unsigned changes = random() % 4; changes > 0; --changes) {
      const size_t at = random() % body.size();
      const char with = kAlphabet[random() % kAlphabet.size()];
      if (random() % 3 == 0) {
        body.insert(at, 1, with);
      } else if (random() % 2 == 0) {
        body.erase(at, 1 + random() % 3);
      } else {
        body[at] = with;
      }
    }
    const auto array = Take(body);
    if (!array) continue;
    const Json whole = Json::parse(body, nullptr, false);
    Json rest = Json::parse(array->rest, nullptr, false);
    ASSERT_EQ(whole.is_discarded(), rest.is_discarded()) << body << "\n" << array->rest;
    broken += whole.is_discarded();
    if (whole.is_discarded()) continue;
    ++taken;
    rest[std::string(array->member)] = array->numbers;
    ASSERT_EQ(whole, rest) << body;
  }
  EXPECT_GT(taken, 10000);
  EXPECT_GT(broken, 1000);
}

}  // namespace
}  // namespace kvcast::router
