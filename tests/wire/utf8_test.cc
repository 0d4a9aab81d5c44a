// The UTF-8 check is correct at every boundary of the encoding.
// SPDX-License-Identifier: Apache-2.0
#include "src/wire/utf8.h"

#include <gtest/gtest.h>

namespace kvcast::wire {
namespace {

using std::string_literals::operator""s;

TEST(Utf8, TakesWellFormedText) {
  for (const std::string& text :
       {""s, "plain"s, "\0"s, "\x7f"s, "\xc2\x80"s, "\xdf\xbf"s, "\xe0\xa0\x80"s, "\xed\x9f\xbf"s,
        "\xee\x80\x80"s, "\xef\xbf\xbf"s, "\xf0\x90\x80\x80"s, "\xf4\x8f\xbf\xbf"s}) {
    EXPECT_TRUE(IsUtf8(text)) << testing::PrintToString(text);
  }
}

TEST(Utf8, RefusesStrayCutOverlongSurrogateAndTooLarge) {
  for (const std::string& text :
       {"\x80"s, "\xbf"s, "a\xff"s, "\xc2"s, "\xc2z"s, "\xc0\x80"s, "\xc1\xbf"s, "\xe0\x9f\xbf"s,
        "\xe1\x80"s, "\xe1\x80z"s, "\xed\xa0\x80"s, "\xed\xbf\xbf"s, "\xf0\x8f\xbf\xbf"s,
        "\xf1\x80\x80"s, "\xf1\x80\x80z"s, "\xf4\x90\x80\x80"s, "\xf5\x80\x80\x80"s}) {
    EXPECT_FALSE(IsUtf8(text)) << testing::PrintToString(text);
  }
}

}  // namespace
}  // namespace kvcast::wire
