// Inputs of rules for tests: a prompt of 1000 tokens in blocks of 10 tokens, and engines with
// values that a test sets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "apps/simulate/rule_table.h"

namespace kvcast::simulate {

struct TestInput {
  explicit TestInput(size_t count) : engines(count), matches(count) {
    for (size_t e = 0; e < count; ++e) engines[e].engine = e;
    for (PrefixNumber p = 0; p < 100; ++p) prefixes.push_back(p);
    for (size_t p = 0; p < 100; ++p) hashes.push_back(1000 + p);
  }

  // Returns the position of the chosen engine. If `draw` is 0, this is the first of equal engines.
  size_t Choose(Rule& rule) {
    RuleInput input;
    input.request = request++;
    input.session = session;
    input.prompt_tokens = 1000;
    input.block_tokens = 10;
    input.prefixes = prefixes;
    input.engines = engines;
    input.draw = draw;
    input.now_s = now_s;
    for (size_t i = 0; i < engines.size(); ++i) {
      RuleEngine& engine = engines[i];
      engine.hit_with_cpu_tokens = std::max(engine.hit_with_cpu_tokens, engine.hit_tokens);
      matches[i].worker = WorkerId(static_cast<uint32_t>(engine.engine));
      matches[i].gpu_tokens = engine.hit_tokens;
      matches[i].with_cpu_tokens = engine.hit_with_cpu_tokens;
      matches[i].with_storage_tokens = engine.hit_with_cpu_tokens;
    }
    input.matches = matches;
    input.names = std::make_shared<const std::vector<uint64_t>>(hashes);
    return rule.Choose(input);
  }
  size_t Choose(std::string_view rule) { return Choose(*Make(rule, engines.size())); }

  static std::unique_ptr<Rule> Make(std::string_view text, size_t engines) {
    const auto choice = ParseRule(text);
    RuleFleet fleet;
    fleet.engines = engines;
    fleet.block_tokens = 10;
    fleet.prefill_tokens_per_s = 1000;
    fleet.load_tokens_per_s = 10000;
    fleet.cache_tokens = 100000;
    return choice.value().info->make(choice.value().parameters, fleet);
  }

  std::vector<RuleEngine> engines;
  std::vector<WorkerMatch> matches;
  std::vector<PrefixNumber> prefixes;
  std::vector<uint64_t> hashes;
  size_t request = 0;
  int64_t session = 7;
  double draw = 0;
  double now_s = 0;
};

}  // namespace kvcast::simulate
