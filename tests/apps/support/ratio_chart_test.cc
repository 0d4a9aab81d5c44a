// The ratio chart has a logarithmic axis of fragment sizes (the contiguous bytes of one copy) and a
// linear axis of ratios. The chart clips ratios to the picture, and escapes names.
// SPDX-License-Identifier: Apache-2.0
#include "apps/support/ratio_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/well_formed.h"

namespace kvcast::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RatioChart, TheAxisOfSizesIsLogarithmic) {
  const std::string svg = RatioChartSvg(
      "all",
      {{.title = "H2D",
        .lines = {
            {.name = "ours", .color = "red", .points = {{1024, 1.1}, {4096, 0.55}, {16384, 0}}}}}});
  // The points run from the upper left corner of the panel to its lower right corner.
  EXPECT_THAT(svg, HasSubstr("points=\"50.0,60.0 260.0,210.0 470.0,360.0 \""));
  EXPECT_THAT(svg, HasSubstr(">1 KiB<"));
  EXPECT_THAT(svg, HasSubstr(">16 KiB<"));
  EXPECT_THAT(svg, HasSubstr(">ours<"));
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_TRUE(kvcast::testing::IsWellFormed(svg));
}

TEST(RatioChart, NamesCannotBreakTheDocument) {
  const std::string svg = RatioChartSvg("a < b & \"c\"", {{.title = "<t>", .lines = {}}});
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("<t>")));
}

TEST(RatioChart, RatiosOutsideStayInThePicture) {
  const std::string svg = RatioChartSvg(
      "",
      {{.title = "", .lines = {{.name = "x", .color = "red", .points = {{1024, 7}, {2048, -1}}}}}});
  EXPECT_THAT(svg, HasSubstr("points=\"50.0,60.0 470.0,360.0 \""));
}

}  // namespace
}  // namespace kvcast::tools
