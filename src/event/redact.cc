// SPDX-License-Identifier: Apache-2.0
#include "kvcast/core/redact.h"

#include <algorithm>
#include <variant>

namespace kvcast {

void Redact(EventBatch& batch) {
  for (Event& event : batch.events) {
    auto* const stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr) continue;
    stored->token_ids.emplace();
    stored->tokens_per_position = 1;
    stored->extra_keys.reset();
    stored->lora_name.reset();
    stored->cache_salt.reset();
    stored->metadata.reset();
    stored->session_id.reset();
    if (stored->lookahead) {
      std::fill(stored->lookahead->token_ids.begin(), stored->lookahead->token_ids.end(), 0);
    }
  }
}

}  // namespace kvcast
