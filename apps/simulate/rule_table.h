// The rules of `kvcast simulate`, by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/simulate/rule.h"
#include "kvcast/core/status.h"

namespace kvcast::simulate {

const std::vector<RuleInfo>& AllRules();

// A rule with its parameters: "dynamo", or "dynamo:overlap_weight=4". Several parameters are
// separated by colons.
struct RuleChoice {
  std::string text;
  const RuleInfo* info = nullptr;
  RuleParameters parameters;  // all parameters; the default if `text` sets no value
};
// Error: an unknown rule or parameter, or a value that is not a number from 0 to 1e9.
Result<RuleChoice> ParseRule(std::string_view text);

// Rules that do not read the index. Some of them read the load.
std::vector<RuleInfo> PlainRules();
// Rules of other routers. These rules read the index.
std::vector<RuleInfo> CacheRules();
// Rules that score each engine by several signals.
std::vector<RuleInfo> ScoreRules();
RuleInfo KvcastRule();
// kvcast in cells of the fleet.
RuleInfo CellsRule();

}  // namespace kvcast::simulate
