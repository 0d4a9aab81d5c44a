// The content keys of a prompt, for queries of the prefix index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/content_key.h"

namespace kvcast {

// contents[i] names the prompt's first (i + 1) * unit tokens as a block that ends there is named,
// whose hash covers `lookahead` tokens more: a prompt of n tokens has (n - lookahead) / unit of
// them. The list ends where the content cannot be named: at multimodal items out of order, and with
// embeddings where inputs.embedding_digests of `unit` end (inputs.prompt_embeddings is not read).
// REQUIRES: unit > 0, 0 <= lookahead <= kMaxLookahead.
std::vector<ContentKey> PromptContents(const ContentKeys& keys, std::span<const TokenId> tokens,
                                       int64_t unit, int64_t lookahead, const HashInputs& inputs);

}  // namespace kvcast
