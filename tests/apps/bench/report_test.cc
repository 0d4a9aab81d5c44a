// The report prints one line for each figure and each target. With --json, it ends with one JSON
// object. On a busy machine, the report judges no target.
// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace kvcast::bench {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Returns a function that reports these shares of the CPU for other processes and the hypervisor.
Report::ReadShares Used(double others, double stolen = 0) {
  return [others, stolen] { return MachineShare::Shares{.others = others, .stolen = stolen}; };
}

TEST(Report, ALineForEachFigureAndOneObjectAtTheEnd) {
  ::testing::internal::CaptureStdout();
  Report report("apply", "first\nsecond", true, Used(0.021, 0.01));
  report.Figure("a", 12.5, "ns");
  report.Target("b", 0.5, "ratio", 0.6);
  report.Target("c", 0.7, "ratio", 0.6);
  report.Target("d", 5, "x", 5, Bound::kAtLeast);
  report.Target("e", 4.9, "x", 5, Bound::kAtLeast);
  EXPECT_EQ(report.Finish(), 0);
  const std::vector<std::string> lines = Lines(::testing::internal::GetCapturedStdout());
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines[0], "# first");
  EXPECT_EQ(lines[1], "# second");
  EXPECT_TRUE(lines[2].starts_with("a ") && lines[2].find("12.5 ns") != std::string::npos);
  EXPECT_TRUE(lines[3].ends_with("<= 0.6      ok")) << lines[3];
  EXPECT_TRUE(lines[4].ends_with("<= 0.6      MISSED")) << lines[4];
  EXPECT_TRUE(lines[5].ends_with(">= 5        ok")) << lines[5];
  EXPECT_TRUE(lines[6].ends_with(">= 5        MISSED")) << lines[6];
  EXPECT_EQ(
      lines[7],
      "# other processes used 2.1 % of the CPU, 1.0 % was stolen; targets are judged up to 5 %");
  const auto json = nlohmann::json::parse(lines[8]);
  EXPECT_EQ(json["machine"], (nlohmann::json{{"others", 0.021}, {"stolen", 0.01}}));
  EXPECT_EQ(json["name"], "apply");
  ASSERT_EQ(json["targets"].size(), 4u);
  EXPECT_EQ(json["targets"][1], (nlohmann::json{{"name", "c"},
                                                {"figure", 0.7},
                                                {"unit", "ratio"},
                                                {"target", 0.6},
                                                {"at_least", false},
                                                {"met", false}}));
  ASSERT_EQ(json["figures"].size(), 1u);
  EXPECT_EQ(json["figures"][0]["figure"], 12.5);
}

TEST(Report, WithoutJsonThereAreOnlyLines) {
  ::testing::internal::CaptureStdout();
  Report report("apply", "first", false, [] { return std::nullopt; });
  report.Finish();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "# first\n");
}

TEST(Report, ATableHasARowPerLineAndAnObjectPerRow) {
  ::testing::internal::CaptureStdout();
  Report report("growth", "first", true, [] { return std::nullopt; });
  report.BeginTable("points", {"residencies", "a_longer_name_ns"});
  report.Row({1'048'576, 12.5});
  report.Row({2'097'152, 0.123456});
  report.Finish();
  const std::vector<std::string> lines = Lines(::testing::internal::GetCapturedStdout());
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[1], " residencies a_longer_name_ns");
  EXPECT_EQ(lines[2], "     1048576             12.5");
  EXPECT_EQ(lines[3], "     2097152           0.1235");
  const auto json = nlohmann::json::parse(lines[4]);
  ASSERT_EQ(json["points"].size(), 2u);
  EXPECT_EQ(json["points"][0],
            (nlohmann::json{{"residencies", 1'048'576.0}, {"a_longer_name_ns", 12.5}}));
}

TEST(Report, NoTargetIsJudgedOnABusyMachine) {
  for (const auto& shares : {Used(0.06), Used(0, 0.06), Used(0.03, 0.03)}) {
    ::testing::internal::CaptureStdout();
    Report report("apply", "first", true, shares);
    report.Target("b", 0.5, "ratio", 0.6);
    report.Target("c", 0.7, "ratio", 0.6);
    report.Finish();
    const std::vector<std::string> lines = Lines(::testing::internal::GetCapturedStdout());
    ASSERT_EQ(lines.size(), 5u);
    EXPECT_TRUE(lines[1].ends_with("not judged")) << lines[1];
    EXPECT_TRUE(lines[2].ends_with("not judged")) << lines[2];
    const auto json = nlohmann::json::parse(lines[4]);
    ASSERT_EQ(json["targets"].size(), 2u);
    for (const auto& target : json["targets"]) EXPECT_EQ(target["met"], nullptr);
  }
}

}  // namespace
}  // namespace kvcast::bench
