// The parser reads a rule and its parameters from a text. An error names the wrong part. The random
// draw decides between equal costs.
// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/rule_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/apps/simulate/rule_input.h"

namespace kvcast::simulate {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text) {
  const auto rule = ParseRule(text);
  EXPECT_FALSE(rule.ok()) << text;
  EXPECT_EQ(rule.status().code(), StatusCode::kInvalidArgument);
  return rule.ok() ? "" : rule.status().message();
}

TEST(RuleTable, ParametersReplaceDefaults) {
  const auto plain = ParseRule("dynamo");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->text, "dynamo");
  EXPECT_EQ(plain->parameters, plain->info->defaults);
  const auto changed = ParseRule("dynamo:overlap_weight=4:host_weight=.5");
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(changed->text, "dynamo:overlap_weight=4:host_weight=.5");
  EXPECT_EQ(changed->parameters, (RuleParameters{{"overlap_weight", 4}, {"host_weight", 0.5}}));
}

TEST(RuleTable, ErrorsNameTheWrongPart) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("unknown rule ''"));
  EXPECT_THAT(ErrorOf("oracle"), HasSubstr("unknown rule 'oracle'; expected one of: round_robin"));
  EXPECT_THAT(ErrorOf("dynamo:weight=1"),
              HasSubstr("dynamo has no parameter 'weight'; it has: host_weight, overlap_weight"));
  EXPECT_THAT(ErrorOf("dynamo:overlap_weight"), HasSubstr("has no parameter 'overlap_weight'"));
  EXPECT_THAT(ErrorOf("dynamo:"), HasSubstr("no parameter ''"));
  EXPECT_THAT(ErrorOf("round_robin:x=1"), HasSubstr("no parameter 'x'; it has: none"));
  for (const char* value : {"", "many", "1x", "nan", "inf", "-1", "1e10"}) {
    EXPECT_THAT(ErrorOf(std::string("dynamo:overlap_weight=") + value),
                HasSubstr("overlap_weight: expected a number from 0 to 1e9, got '" +
                          std::string(value) + "'"));
  }
}

TEST(RuleTable, EveryRuleIsDescribedAndChoosesOneOfItsEngines) {
  std::set<std::string> names;
  for (const RuleInfo& info : AllRules()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.description.empty()) << info.name;
    EXPECT_FALSE(info.source.empty()) << info.name;
    // Engines may be missing, so the position differs from the number of the engine.
    TestInput input(3);
    for (size_t e = 0; e < 3; ++e) input.engines[e].engine = e + 2;
    const auto rule = TestInput::Make(info.name, 5);
    for (int k = 0; k < 5; ++k) EXPECT_LT(input.Choose(*rule), 3u) << info.name;
  }
}

TEST(RuleTable, RulesWithTiesUseTheDraw) {
  for (const char* name : {"least_loaded", "sglang", "smg", "dynamo", "dynamo_two_tier", "lmetric",
                           "llmd", "llmd_sticky", "aibrix", "preble"}) {
    TestInput input(4);
    for (size_t e = 0; e < 4; ++e) {
      input.draw = 0.25 * static_cast<double>(e) + 0.1;
      EXPECT_EQ(input.Choose(name), e) << name;
    }
  }
}

TEST(Cheapest, TakesTheLowestCostAndDrawsBetweenEqualCosts) {
  EXPECT_EQ(Cheapest(std::vector<double>{3, 1, 2}, 0.99), 1u);
  const std::vector<double> equal = {5, 1, 1, 7, 1};
  EXPECT_EQ(Cheapest(equal, 0), 1u);
  EXPECT_EQ(Cheapest(equal, 0.34), 2u);
  EXPECT_EQ(Cheapest(equal, 0.67), 4u);
  EXPECT_EQ(Cheapest(equal, 1), 4u);  // the last engine, not past the end
}

}  // namespace
}  // namespace kvcast::simulate
