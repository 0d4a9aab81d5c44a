// The results of the matrix do not depend on the number of jobs, and they show which rule is worse.
// Wrong options are errors.
// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "apps/simulate/simulate_report.h"

namespace kvcast::simulate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SimulateOptions Small(const std::string& rules, const std::string& index = "exact") {
  SimulateOptions options;
  options.workloads = {"shared"};
  options.slices = 4;
  options.slice_requests = 80;
  options.engines = 3;
  options.rules = rules;
  options.index = index;
  return options;
}

Matrix RunWith(const SimulateOptions& options) {
  auto matrix = RunMatrix(options, [](size_t, size_t) {});
  EXPECT_TRUE(matrix.ok()) << matrix.status().ToString();
  return matrix.ok() ? std::move(matrix).value() : Matrix{};
}

const PairedRatio& Find(const Matrix& matrix, const std::string& a, const std::string& b) {
  for (const PairedRatio& pair : matrix.pairs) {
    if (pair.a == a && pair.b == b) return pair;
  }
  static const PairedRatio none{.ratio = -1, .low = -1, .high = -1};
  ADD_FAILURE() << a << " and " << b << " are no pair";
  return none;
}

std::vector<std::string> RulesOf(const Matrix& matrix) {
  std::vector<std::string> rules;
  for (const MatrixRun& run : matrix.runs) rules.push_back(run.rule + "/" + run.index);
  return rules;
}

std::string WriteFile(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << content;
  return path;
}

TEST(Matrix, TheResultIsEqualWithOneAndSeveralJobs) {
  SimulateOptions options = Small("kvcast,round_robin", "exact,approx");
  options.slices = 2;
  options.slice_requests = 40;
  options.loss = 0.05;
  const std::string one = RenderJson(RunWith(options));
  options.jobs = 2;
  EXPECT_EQ(RenderJson(RunWith(options)), one);
  options.seed = 2;
  EXPECT_NE(RenderJson(RunWith(options)), one);
}

TEST(Matrix, ReportsProgressOnceForEachRun) {
  SimulateOptions options = Small("round_robin,least_loaded");
  options.jobs = 2;
  std::vector<size_t> done;
  const auto matrix = RunMatrix(options, [&](size_t count, size_t total) {
    EXPECT_EQ(total, 8u);
    done.push_back(count);
  });
  EXPECT_THAT(done, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(Matrix, RepeatedRulesIndexesAndWorkloadsCountOnce) {
  SimulateOptions options = Small("round_robin,least_loaded,round_robin", "any,exact,any");
  options.slices = 1;
  options.workloads = {"shared", "shared"};
  EXPECT_THAT(RulesOf(RunWith(options)), ElementsAre("round_robin/any", "round_robin/exact",
                                                     "least_loaded/any", "least_loaded/exact"));
}

TEST(Matrix, AllIsEveryRuleOnce) {
  SimulateOptions options = Small("kvcast,all,round_robin");
  options.slices = 1;
  const std::vector<std::string> rules = RulesOf(RunWith(options));
  EXPECT_EQ(rules.size(), AllRules().size());
  EXPECT_EQ(rules[0], "kvcast/exact");
}

TEST(Matrix, FindsAWorseRule) {
  const Matrix matrix = RunWith(Small("kvcast,round_robin"));
  const PairedRatio& pair = Find(matrix, "round_robin/exact", "kvcast/exact");
  EXPECT_GT(pair.ratio, 1);
  EXPECT_GT(pair.low, 1);
  EXPECT_GE(pair.high, pair.ratio);
  EXPECT_LT(Find(matrix, "kvcast/exact", "round_robin/exact").high, 1);
}

TEST(Matrix, EqualRulesHaveTheRatioOne) {
  const Matrix matrix = RunWith(Small("kvcast,kvcast:hints=0"));
  const PairedRatio& pair = Find(matrix, "kvcast:hints=0/exact", "kvcast/exact");
  EXPECT_EQ(pair.ratio, 1);
  EXPECT_EQ(pair.low, 1);
  EXPECT_EQ(pair.high, 1);
}

constexpr char kOneRow[] =
    R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]})";

TEST(Matrix, TracesAreWorkloadsOfTheirOwn) {
  SimulateOptions options = Small("round_robin");
  const std::string a = WriteFile("a.jsonl", kOneRow);
  const std::string b = WriteFile("b.jsonl", kOneRow);
  options.workloads.clear();
  options.traces = {a, b, a};
  const Matrix matrix = RunWith(options);
  ASSERT_EQ(matrix.runs.size(), 2u);
  EXPECT_EQ(matrix.runs[0].workload, a);
  EXPECT_EQ(matrix.runs[1].workload, b);
}

TEST(Matrix, SmallTracesAndFleetsEnd) {
  SimulateOptions options = Small("kvcast,dynamo", "exact,full,any,approx");
  options.workloads.clear();
  options.traces = {WriteFile("one.jsonl", kOneRow)};
  options.engines = 1;
  for (const char* model : {"hybrid", "mamba"}) {
    options.model = model;
    const Matrix matrix = RunWith(options);
    ASSERT_EQ(matrix.runs.size(), 8u);
    for (const MatrixRun& run : matrix.runs) EXPECT_EQ(run.result.prompt_tokens, 5);
  }
}

struct BadOptions {
  void (*change)(SimulateOptions& options);
  const char* reason;
};

class RefusedMatrix : public ::testing::TestWithParam<BadOptions> {};

TEST_P(RefusedMatrix, NamesTheWrongOption) {
  SimulateOptions options = Small("kvcast");
  GetParam().change(options);
  const auto matrix = RunMatrix(options, [](size_t, size_t) { FAIL() << "a run started"; });
  ASSERT_FALSE(matrix.ok());
  EXPECT_EQ(matrix.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(matrix.status().message(), HasSubstr(GetParam().reason));
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void UseTrace(SimulateOptions& options, const std::string& content) {
  options.workloads.clear();
  options.traces = {WriteFile("refused.jsonl", content)};
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, RefusedMatrix,
    ::testing::Values(
        BadOptions{[](SimulateOptions& o) { o.rules = ""; }, "--rules: the list is empty"},
        BadOptions{[](SimulateOptions& o) { o.rules = "kvcast,oracle"; }, "unknown rule 'oracle'"},
        BadOptions{[](SimulateOptions& o) { o.index = ""; }, "--index: the list is empty"},
        BadOptions{[](SimulateOptions& o) { o.index = "exact,none"; }, "got 'none'"},
        BadOptions{[](SimulateOptions& o) { o.model = "gpt"; }, "--model: expected one of hybrid"},
        BadOptions{[](SimulateOptions& o) { o.retention = "some"; }, "--retention: expected"},
        BadOptions{[](SimulateOptions& o) { o.retention = "7"; }, "retention_interval (7)"},
        BadOptions{[](SimulateOptions& o) { o.delay_ms = kNan; }, "--delay-ms"},
        BadOptions{[](SimulateOptions& o) { o.loss = kNan; }, "--loss"},
        BadOptions{[](SimulateOptions& o) { o.slow_factor = kNan; }, "--slow-factor"},
        BadOptions{[](SimulateOptions& o) { o.kill_at_s = kNan; }, "--kill-at"},
        BadOptions{[](SimulateOptions& o) {
                     o.kill_at_s = 1;
                     o.engines = 1;
                   },
                   "--kill-at: the fleet has no other engine"},
        BadOptions{[](SimulateOptions& o) {
                     UseTrace(o, R"({"conv":"c","block_size":100,"tool_tokens":0})"
                                 "\n"
                                 R"({"timestamp":0,"agent":0,"input_length":5,)"
                                 R"("output_length":1,"hash_runs":[]})");
                   },
                   "refused.jsonl: blocks of 100 tokens do not fit the model's blocks of 64"},
        BadOptions{[](SimulateOptions& o) {
                     UseTrace(o, R"({"timestamp": 0, "input_length": 1, "output_length": 1048576, )"
                                 R"("hash_ids": [1]})");
                   },
                   "have 1048577 tokens; an engine takes at most 1048576"}));

TEST(PairedBootstrap, EqualArmsHaveTheRatioOne) {
  const std::vector<double> arm = {3, 5, 2, 8};
  const RatioInterval interval = PairedBootstrap(arm, arm);
  EXPECT_EQ(interval.ratio, 1);
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.high, 1);
}

TEST(PairedBootstrap, FindsAnArmThatIsTwentyPercentWorse) {
  std::vector<double> better;
  std::vector<double> worse;
  for (int i = 0; i < 10; ++i) {
    better.push_back(100 + 30 * (i % 4));                // the slices differ more than the arms
    worse.push_back(better.back() * (1.15 + 0.01 * i));  // 1.15 to 1.24
  }
  const RatioInterval interval = PairedBootstrap(worse, better);
  EXPECT_NEAR(interval.ratio, 1.195, 0.01);
  EXPECT_GT(interval.low, 1.15);
  EXPECT_LT(interval.high, 1.24);
  EXPECT_LT(interval.low, interval.ratio);
  EXPECT_GT(interval.high, interval.ratio);
}

TEST(PairedBootstrap, NoisyEqualArmsIncludeOne) {
  const RatioInterval interval =
      PairedBootstrap({10, 20, 10, 20, 10, 20}, {20, 10, 20, 10, 20, 10});
  EXPECT_LT(interval.low, 1);
  EXPECT_GT(interval.high, 1);
}

TEST(PairedBootstrap, RatioIsOfTheSums) {
  EXPECT_EQ(PairedBootstrap({1, 9}, {1, 4}).ratio, 2);
  EXPECT_EQ(PairedBootstrap({0}, {0}).ratio, 1);
}

}  // namespace
}  // namespace kvcast::simulate
