// Redact: removes the content of prompts from events.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/core/event.h"

namespace kvcast {

// Removes the token ids, extra keys, adapter name, cache salt, session and metadata from each
// store. All other fields stay, for example hashes, parents, sizes, groups and tiers. token_ids
// becomes an empty list and not nullopt, because readers of vLLM's format require the field.
// tokens_per_position becomes 1. The number of lookahead tokens stays, because readers need it to
// count hits. Each lookahead token becomes 0.
void Redact(EventBatch& batch);

}  // namespace kvcast
