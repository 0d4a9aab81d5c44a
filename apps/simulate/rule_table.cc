// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/rule_table.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace kvcast::simulate {
namespace {

Status BadRule(const std::string& text) {
  return {StatusCode::kInvalidArgument, "--rules: " + text};
}

constexpr double kMaxParameter = 1e9;

std::string Names(const auto& entries, const auto& name_of) {
  std::string names;
  for (const auto& entry : entries) names += (names.empty() ? "" : ", ") + name_of(entry);
  return names.empty() ? "none" : names;
}

}  // namespace

size_t Cheapest(std::span<const double> costs, double draw) {
  const double lowest = *std::ranges::min_element(costs);
  const auto equal = static_cast<size_t>(std::ranges::count(costs, lowest));
  auto skip = std::min(static_cast<size_t>(draw * static_cast<double>(equal)), equal - 1);
  size_t at = 0;
  while (costs[at] != lowest || skip-- > 0) ++at;
  return at;
}

const std::vector<RuleInfo>& AllRules() {
  static const auto* rules = [] {
    auto* all = new std::vector<RuleInfo>(PlainRules());
    for (std::vector<RuleInfo> more : {CacheRules(), ScoreRules()}) {
      std::move(more.begin(), more.end(), std::back_inserter(*all));
    }
    all->push_back(KvcastRule());
    all->push_back(CellsRule());
    return all;
  }();
  return *rules;
}

Result<RuleChoice> ParseRule(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  const auto info = std::ranges::find(AllRules(), name, &RuleInfo::name);
  if (info == AllRules().end()) {
    return BadRule("unknown rule '" + std::string(name) + "'; expected one of: " +
                   Names(AllRules(), [](const RuleInfo& rule) { return rule.name; }));
  }
  RuleChoice choice{std::string(text), &*info, info->defaults};
  for (std::string_view parameters_text = text.substr(name.size()); !parameters_text.empty();) {
    parameters_text.remove_prefix(1);
    const std::string_view pair = parameters_text.substr(0, parameters_text.find(':'));
    parameters_text.remove_prefix(pair.size());
    const size_t equals = pair.find('=');
    const std::string key(pair.substr(0, equals));
    const auto parameter = choice.parameters.find(key);
    if (equals == pair.npos || parameter == choice.parameters.end()) {
      return BadRule(std::string(name) + " has no parameter '" + key + "'; it has: " +
                     Names(info->defaults, [](const auto& entry) { return entry.first; }));
    }
    const std::string_view value = pair.substr(equals + 1);
    const char* const end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, parameter->second);
    // NaN is not in the range.
    const bool valid = parsed.ec == std::errc() && parsed.ptr == end && parameter->second >= 0 &&
                       parameter->second <= kMaxParameter;
    if (!valid) {
      return BadRule(key + ": expected a number from 0 to 1e9, got '" + std::string(value) + "'");
    }
  }
  return choice;
}

}  // namespace kvcast::simulate
