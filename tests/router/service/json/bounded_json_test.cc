// ReadJson returns the same document as nlohmann's parser. It takes linear time, and bounds the
// depth and the number of values.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/json/bounded_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "router/service/json/json_fields.h"
#include "tests/support/colliding_texts.h"

namespace kvcast::router {
namespace {

using kvcast::testing::ThreadNsOf;

std::string Listed(const std::string& element, size_t count) {
  std::string text = "[" + element;
  for (size_t i = 1; i < count; ++i) text += "," + element;
  return text + "]";
}

// nlohmann's parser with a callback that leaves deep values out.
Json Expected(const std::string& text, size_t max_depth) {
  const Json::parser_callback_t shallow = [max_depth](int depth, Json::parse_event_t, Json&) {
    return static_cast<size_t>(depth) <= max_depth;
  };
  return Json::parse(text, shallow, /*allow_exceptions=*/false);
}

TEST(BoundedJson, AgreesWithAParserOnValidAndDamagedTexts) {
  const std::string text =
      R"({"a": [1, -2, 3.5, "x\u00e9", null, true, {"b": [[[]]], "c": {"d": {"e": {}}}}], "a2": {},)"
      R"( "twice": 1, "twice": [18446744073709551615], "": "", "deep": [[1, [2, [3, [4]]]], 5]})";
  std::mt19937 random(7);
  int malformed = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    std::string damaged = text;
    for (int i = 0; i < turn % 4; ++i) {
      const size_t at = random() % damaged.size();
      damaged[at] = "{}[],:\"\\ 1e-x\xff"[random() % 14];
    }
    const size_t max_depth = random() % 8;
    const auto read = ReadJson(damaged, {.max_depth = max_depth});
    const Json expected = Expected(damaged, max_depth);
    ASSERT_EQ(read.ok(), !expected.is_discarded()) << damaged;
    malformed += !read.ok();
    if (read.ok()) {
      ASSERT_EQ(*read, expected) << damaged << " to depth " << max_depth;
    }
  }
  EXPECT_GT(malformed, 5000);
  EXPECT_LT(malformed, 15000);
}

TEST(BoundedJson, ValuesAreBounded) {
  for (const char* element : {"0", "\"\"", "{}", "[]", "null"}) {
    const std::string text = Listed(element, 1000);
    EXPECT_TRUE(ReadJson(text, {.max_values = 1001}).ok()) << element;
    EXPECT_EQ(ReadJson(text, {.max_values = 1000}).status().code(), StatusCode::kLimit) << element;
    EXPECT_TRUE(ReadJson(text, {.max_depth = 0, .max_values = 1}).ok()) << "left out";
  }
}

TEST(BoundedJson, DeepTextsCostNoStack) {
  const size_t depth = 1 << 20;
  const std::string text = std::string(depth, '[') + std::string(depth, ']');
  EXPECT_EQ(ReadJson(text, {.max_depth = 2}).value(), Json::parse("[[[]]]"));
  EXPECT_TRUE(ReadJson(text, {}).ok());
}

// A parser that searches all earlier elements for each element would take 64 times as long.
TEST(BoundedJson, EightTimesTheElementsCostEightTimesTheTime) {
  for (const std::string element : {"{}", "[]", "{\"a\":0}", "[[]]"}) {
    const auto read_ns = [&](size_t count) {
      const std::string text = "{\"a\":" + Listed(element, count) + "}";
      int64_t least = std::numeric_limits<int64_t>::max();
      for (int run = 0; run < 3; ++run) {
        least = std::min(least, ThreadNsOf([&] { EXPECT_TRUE(ParseObject(text, 4).ok()); }));
      }
      return least;
    };
    const int64_t few_ns = read_ns(4000);
    EXPECT_LT(read_ns(32000), 24 * few_ns) << element << ": " << few_ns << " ns for 4,000";
  }
}

}  // namespace
}  // namespace kvcast::router
