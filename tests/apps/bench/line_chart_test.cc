// The line chart places points on logarithmic axes.
// SPDX-License-Identifier: Apache-2.0
#include "apps/support/line_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/well_formed.h"

namespace kvcast::bench {
namespace {

using ::testing::HasSubstr;

TEST(LineChart, PlacesPointsByPowersOfTen) {
  const std::string svg =
      LineChartSvg({{"apply", {{"ours", "red", {{1e5, 1}, {1e6, 10}, {1e7, 100}}}}}});
  // The points run from the lower left corner of the panel to its upper right corner.
  EXPECT_THAT(svg, HasSubstr("points=\"60.0,280.0 210.0,160.0 360.0,40.0 \""));
  EXPECT_THAT(svg, HasSubstr(">1e+07<"));
  EXPECT_THAT(svg, HasSubstr(">100<"));
  EXPECT_THAT(svg, HasSubstr(">ours<"));
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_TRUE(kvcast::testing::IsWellFormed(svg));
}

TEST(LineChart, AxesReachToTheNextPowersOfTen) {
  const std::string svg =
      LineChartSvg({{"", {{"a", "red", {{30, 0.5}}}, {"b", "blue", {{30, 20}}}}}});
  // On a logarithmic axis 30 lies about half way between 10 and 100. The y axis covers 0.1 to 100.
  EXPECT_THAT(svg, HasSubstr("points=\"203.1,"));
  EXPECT_THAT(svg, HasSubstr(">0.1<"));
  EXPECT_THAT(svg, HasSubstr(">100<"));
}

TEST(LineChart, PanelsStandSideBySideAndMayBeEmpty) {
  const std::string svg =
      LineChartSvg({{"first", {}}, {"second", {{"x", "red", {{1, 1}, {10, 10}}}}}});
  EXPECT_THAT(svg, HasSubstr(">first<"));
  EXPECT_THAT(svg, HasSubstr("points=\"430.0,280.0 730.0,40.0 \""));
}

}  // namespace
}  // namespace kvcast::bench
