// The token ids of the prompts of a recorded run. A prompt may begin with the tokens of an earlier
// request, including its sampled tokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "apps/conformance/scenario/scenario.h"

namespace kvcast::tools {

class ScenarioPrompts {
 public:
  // Applies an operation to its requests. The caller must pass the operations in the order of the
  // run.
  void Follow(const ScenarioOp& op) {
    if (op.kind == OpKind::kAdd) requests_[op.request] = TokensOf(op.prompt);
    if (op.kind != OpKind::kOutput) return;
    for (const auto& [request, token] : op.sampled) requests_[request].push_back(token);
  }
  std::vector<TokenId> TokensOf(const ScenarioPrompt& prompt) const {
    std::vector<TokenId> tokens;
    if (const auto from = requests_.find(prompt.from); from != requests_.end()) {
      tokens = from->second;
      tokens.resize(std::min(tokens.size(), static_cast<size_t>(prompt.take)));
    }
    tokens.insert(tokens.end(), prompt.tokens.begin(), prompt.tokens.end());
    return tokens;
  }

 private:
  std::map<std::string, std::vector<TokenId>> requests_;
};

}  // namespace kvcast::tools
