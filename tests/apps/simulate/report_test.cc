// The JSON has fixed members. An arm is a rule with an index. The table, the page and the pictures
// of the page contain every arm. All outputs are valid for any name of a workload.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/simulate/simulate_report.h"
#include "apps/support/file.h"
#include "tests/support/well_formed.h"

namespace kvcast::simulate {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Two arms over two slices of one workload.
Matrix Example(const std::string& workload = "shared") {
  Matrix matrix;
  for (int64_t slice = 0; slice < 2; ++slice) {
    for (const char* rule : {"kvcast", "round_robin"}) {
      MatrixRun run{.workload = workload, .slice = slice, .rule = rule, .index = "exact"};
      RunResult& result = run.result;
      result.first_token_s = {0.1, 0.3};
      if (run.rule == "kvcast") result.prediction_error = {0.25, 0.5};
      result.prompt_tokens = 1000;
      result.reused_tokens = 250;
      result.loaded_tokens = 100;
      result.wrong_promise_tokens = 50;
      result.exact_checked = 8;
      result.exact_equal = 7;
      result.refused = 1;
      result.preempted = 2;
      result.seconds = 12.3456;
      result.by_engine = {3, 1};
      result.reuse_over_time.assign(10, 0.5);
      matrix.runs.push_back(std::move(run));
    }
  }
  matrix.pairs = {{workload, "kvcast/exact", "round_robin/exact", 0.5, 0.4, 0.61234},
                  {workload, "round_robin/exact", "kvcast/exact", 2, 1.5, 2.5}};
  return matrix;
}

TEST(RenderJson, HasTheMembersOfTheFormat) {
  const std::string text = RenderJson(Example());
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  const auto json = nlohmann::json::parse(text);
  ASSERT_EQ(json.at("runs").size(), 4u);
  const auto& run = json.at("runs")[2];
  EXPECT_EQ(run.at("workload"), "shared");
  EXPECT_EQ(run.at("slice"), 1);
  EXPECT_EQ(run.at("rule"), "kvcast");
  EXPECT_EQ(run.at("index"), "exact");
  EXPECT_EQ(run.at("ttft_mean_ms"), 200);
  EXPECT_EQ(run.at("ttft_p99_ms"), 300);
  EXPECT_EQ(run.at("ttft_p50_ms"), 100);
  EXPECT_EQ(run.at("prompt_tokens"), 1000);
  EXPECT_EQ(run.at("reused_tokens"), 250);
  EXPECT_EQ(run.at("loaded_tokens"), 100);
  EXPECT_EQ(run.at("wrong_promise_tokens"), 50);
  EXPECT_EQ(run.at("exact_checked"), 8);
  EXPECT_EQ(run.at("exact_equal"), 7);
  EXPECT_EQ(run.at("ttft_error_p50"), 0.25);
  EXPECT_EQ(run.at("ttft_error_p90"), 0.5);
  EXPECT_EQ(run.at("refused"), 1);
  EXPECT_EQ(run.at("preempted"), 2);
  EXPECT_EQ(run.at("seconds"), 12.346);
  EXPECT_EQ(run.at("imbalance"), 1.5);
  ASSERT_EQ(json.at("pairs").size(), 2u);
  EXPECT_EQ(json.at("pairs")[0],
            nlohmann::json::parse(R"({"workload": "shared", "a": "kvcast/exact",
              "b": "round_robin/exact", "ratio": 0.5, "low": 0.4, "high": 0.6123})"));
}

TEST(RenderJson, PathThatIsNotUtf8IsReplaced) {
  const auto json = nlohmann::json::parse(RenderJson(Example("/tmp/\xff.jsonl")));
  EXPECT_EQ(json.at("runs")[0].at("workload"), "/tmp/\xef\xbf\xbd.jsonl");
}

TEST(RenderJson, EmptyMatrixIsValid) { EXPECT_EQ(RenderJson({}), R"({"runs":[],"pairs":[]})"); }

TEST(RenderTable, HasARowForEachArmWithItsRatioToTheFirst) {
  const std::string table = RenderTable(Example());
  EXPECT_THAT(table, HasSubstr("shared, slices: 2\n"));
  EXPECT_THAT(table, HasSubstr("200.0 ms    300 ms   25.0%   10.0%     5.00%      1.50"));
  EXPECT_THAT(table, HasSubstr("2.000 (1.500 .. 2.500)"));
  EXPECT_THAT(table, HasSubstr("25/50%"));
  EXPECT_THAT(table, HasSubstr("at 28 of 32 admissions.\n"));
}

TEST(RenderTable, OneSliceHasNoInterval) {
  Matrix matrix = Example();
  matrix.runs.resize(2);
  const std::string table = RenderTable(matrix);
  EXPECT_THAT(table, HasSubstr(" 2.000\n"));
  EXPECT_THAT(table, Not(HasSubstr("..")));
}

TEST(RenderTable, LongNamesStayWhole) {
  const std::string name(2000, 'x');
  EXPECT_THAT(RenderTable(Example(name)), HasSubstr(name + ", slices: 2\n"));
}

TEST(RenderRules, NamesEveryRuleItsParametersAndItsSource) {
  const std::string text = RenderRules();
  EXPECT_THAT(text, HasSubstr("round_robin: one engine after the other\n"));
  EXPECT_THAT(text, HasSubstr("    overlap_weight=1\n"));
  EXPECT_THAT(text, HasSubstr("    source: NVIDIA Dynamo"));
  EXPECT_THAT(text, HasSubstr("kvcast: "));
}

class Report : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  std::string Read(const std::string& name) const {
    auto text = tools::ReadFile((folder_ / name).string());
    return text.ok() ? *text : "";
  }
  const fs::path folder_ = fs::path(::testing::TempDir()) / "simulate" / "report";
};

TEST_F(Report, IsAPageWithThreePicturesPerWorkload) {
  Matrix matrix = Example();
  const Matrix second = Example("chat");
  matrix.runs.insert(matrix.runs.end(), second.runs.begin(), second.runs.end());
  ASSERT_TRUE(WriteReport(folder_.string(), matrix).ok());
  const std::string page = Read("report.html");
  EXPECT_THAT(page, HasSubstr("<h2>shared</h2>"));
  EXPECT_THAT(page, HasSubstr("<h2>chat</h2>"));
  for (const std::string kind : {"ttft", "reuse", "load"}) {
    for (const std::string number : {"0", "1"}) {
      const std::string name = number + "-" + kind + ".svg";
      EXPECT_THAT(page, HasSubstr("<img src=\"" + name + "\""));
      const std::string picture = Read(name);
      EXPECT_TRUE(picture.starts_with("<svg ") && picture.ends_with("</svg>\n")) << name;
      EXPECT_TRUE(kvcast::testing::IsWellFormed(picture)) << name;
      EXPECT_THAT(picture, HasSubstr("<line ")) << name;
      EXPECT_THAT(picture, HasSubstr(">kvcast/exact<"));
      EXPECT_THAT(picture, HasSubstr(">round_robin/exact<"));
    }
  }
}

TEST_F(Report, NamesCannotBreakThePageOrThePictures) {
  ASSERT_TRUE(WriteReport(folder_.string(), Example("/tmp/<b>&\"x\".jsonl")).ok());
  for (const char* name : {"report.html", "0-ttft.svg", "0-reuse.svg", "0-load.svg"}) {
    const std::string text = Read(name);
    EXPECT_THAT(text, HasSubstr("/tmp/&lt;b")) << name;
    EXPECT_THAT(text, HasSubstr("&amp;&quot;x&quot;.jsonl")) << name;
    EXPECT_THAT(text, Not(HasSubstr("<b>"))) << name;
    if (std::string_view(name).ends_with(".svg")) {
      EXPECT_TRUE(kvcast::testing::IsWellFormed(text)) << name;
    }
  }
}

TEST_F(Report, ManyNamesMakeThePictureHigher) {
  Matrix matrix = Example();
  ASSERT_TRUE(WriteReport(folder_.string(), matrix).ok());
  EXPECT_THAT(Read("0-ttft.svg"), HasSubstr("height=\"380.0\""));
  const MatrixRun first = matrix.runs[0];
  for (int i = 0; i < 58; ++i) {
    matrix.runs.push_back(first);
    matrix.runs.back().rule = "rule" + std::to_string(i);
  }
  ASSERT_TRUE(WriteReport(folder_.string(), matrix).ok());
  EXPECT_THAT(Read("0-ttft.svg"), HasSubstr("height=\"884.0\""));  // 36 + 60 * 14 + 8
}

TEST_F(Report, FolderThatCannotBeMadeIsAnError) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "file") << "x";
  const std::string path = (folder_ / "file" / "below").string();
  for (const Status& status : {CreateReportFolder(path), WriteReport(path, Example())}) {
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr("--report: cannot create " + path));
  }
}

TEST_F(Report, FileThatCannotBeWrittenIsAnError) {
  fs::create_directories(folder_ / "report.html");
  const Status status = WriteReport(folder_.string(), Example());
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("--report: cannot write"));
  EXPECT_THAT(status.message(), HasSubstr("report.html"));
}

}  // namespace
}  // namespace kvcast::simulate
