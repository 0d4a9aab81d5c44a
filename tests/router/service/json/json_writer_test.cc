// A JSON parser reads back the values that JsonWriter wrote.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/json/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

TEST(JsonWriter, WritesNestedValuesInOrder) {
  JsonWriter json;
  json.BeginObject();
  json.Member("a", 1);
  json.Key("b");
  json.BeginArray();
  json.BeginObject();
  json.EndObject();
  json.BeginArray();
  json.EndArray();
  json.Value(true);
  json.Null();
  json.EndArray();
  json.Member("c", std::vector<int64_t>{-1, 2});
  json.Member("d", std::optional<int>());
  json.Member("e", std::optional<double>(0.5));
  json.EndObject();
  EXPECT_EQ(json.Take(), "{\"a\":1,\"b\":[{},[],true,null],\"c\":[-1,2],\"d\":null,\"e\":0.5}\n");
}

TEST(JsonWriter, NumbersReadBackAsTheyAre) {
  for (const double number : {0.0, 1.0, -1.5, 0.1, 1e300, 5e-324, 123456789.0, 1e21}) {
    JsonWriter json;
    json.Value(number);
    const Json read = Json::parse(json.Take());
    EXPECT_TRUE(read.is_number_float()) << number;
    EXPECT_EQ(read.get<double>(), number);
  }
  for (const double number : {double{INFINITY}, double{-INFINITY}, double{NAN}}) {
    JsonWriter json;
    json.Value(number);
    EXPECT_EQ(json.Take(), "null\n");
  }
  JsonWriter json;
  json.Value(std::vector<uint64_t>{UINT64_MAX});
  EXPECT_EQ(json.Take(), "[18446744073709551615]\n");
}

TEST(JsonWriter, TextOfAnyBytesIsJson) {
  for (const std::string text :
       {"", "plain", "\"quoted\\", "line\nfeed\t", "\x01\x7f", "gr\xc3\xbc\xc3\x9f", "</script>"}) {
    JsonWriter json;
    json.Value(text);
    EXPECT_EQ(Json::parse(json.Take()), text);
  }
  JsonWriter json;
  json.Value("bad \xff");
  EXPECT_EQ(Json::parse(json.Take()), "bad \xef\xbf\xbd");
}

}  // namespace
}  // namespace kvcast::router
