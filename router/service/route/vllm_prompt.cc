// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/vllm_prompt.h"

#include <algorithm>
#include <ranges>

namespace kvcast::router {

std::optional<std::vector<TokenId>> PromptWithCheckpoint(const Query& query,
                                                         const RouteDecision& decision) {
  if (!query.vllm_checkpoint_token || decision.keep_prefix_tokens <= 0) return std::nullopt;
  int64_t position = decision.keep_prefix_tokens;
  // The items are ordered by offset, and may overlap. The start of an item can be inside an item
  // that begins earlier, but not inside an item that begins later.
  for (const MultimodalItem& item : query.inputs.mm_items | std::views::reverse) {
    if (item.offset < position && position - item.offset < item.length) position = item.offset;
  }
  const int64_t unit = decision.candidates[decision.chosen].answer.hash_block_size;
  const bool allowed =
      position >= std::max<int64_t>(unit, 1) && position < std::ssize(query.tokens);
  const bool marked = std::ranges::count(query.tokens, *query.vllm_checkpoint_token) > 0;
  if (!allowed || marked) return std::nullopt;
  std::vector<TokenId> prompt;
  prompt.reserve(query.tokens.size() + 1);
  const auto marker = query.tokens.begin() + position;
  prompt.insert(prompt.end(), query.tokens.begin(), marker);
  prompt.push_back(*query.vllm_checkpoint_token);
  prompt.insert(prompt.end(), marker, query.tokens.end());
  return prompt;
}

}  // namespace kvcast::router
