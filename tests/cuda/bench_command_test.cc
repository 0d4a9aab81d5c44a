// `kvcast bench copy` prints its results on a fake GPU.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "apps/dev/dev_commands.h"
#include "tests/cuda/fake_driver.h"

namespace kvcast::cuda {
namespace {

using testing::FakeDriver;

TEST(CudaBenchCommand, PrintsLinesAndThenOneObject) {
  FakeDriver driver;
  ::testing::internal::CaptureStdout();
  const int code =
      tools::RunCudaBenchCommand(driver.Open(), {.mib = 4, .questions = true, .json = true});
  std::istringstream out(::testing::internal::GetCapturedStdout());
  ASSERT_EQ(code, 0);
  std::vector<std::string> lines;
  for (std::string line; std::getline(out, line);) lines.push_back(line);
  ASSERT_GT(lines.size(), 1u);
  const auto report = nlohmann::json::parse(lines.back());
  lines.pop_back();
  EXPECT_EQ(report["gpu"], "Fake GPU");
  std::vector<std::string> answers;
  for (const auto& answer : report["answers"]) {
    answers.push_back(std::to_string(answer["question"].get<int>()) + " " +
                      answer["answer"].get<std::string>());
  }
  EXPECT_EQ(answers, lines);
}

TEST(CudaBenchCommand, WithoutJsonThereAreOnlyTheAnswers) {
  FakeDriver driver;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(tools::RunCudaBenchCommand(driver.Open(), {.mib = 4, .questions = true}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), ::testing::Not(::testing::HasSubstr("{")));
}

}  // namespace
}  // namespace kvcast::cuda
