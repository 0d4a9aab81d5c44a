// Redact: removes the content of prompts from events.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/core/event.h"

namespace kvcast {

// Removes from each store the token ids, extra keys, adapter name, cache salt, session and
// metadata. The hashes, parents, sizes, groups and tiers stay. The list of token ids becomes empty,
// because readers of vLLM's format require the field. The number of lookahead tokens also stays,
// because it determines how hits are counted; the tokens become 0.
void Redact(EventBatch& batch);

}  // namespace kvcast
