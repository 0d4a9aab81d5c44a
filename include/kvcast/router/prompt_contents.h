// PromptContents: the content keys of a prompt, for queries of the prefix index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/content_key.h"

namespace kvcast {

// Returns the content keys of the blocks of a prompt. contents[i] is the name of a block that ends
// after the first (i + 1) * hash_block_size tokens, and whose hash covers `lookahead` more tokens.
// A prompt of n tokens has (n - lookahead) / hash_block_size such blocks.
//
// The list ends early at content that has no key. Such content is a multimodal item that is empty,
// overlaps another item or is out of order. For a prompt with embeddings, the list has at most as
// many elements as inputs.embedding_digests has digests for `hash_block_size`. The function does
// not read the rows of inputs.prompt_embeddings. REQUIRES: hash_block_size > 0, 0 <= lookahead <=
// kMaxLookahead.
std::vector<ContentKey> PromptContents(const ContentKeys& keys, std::span<const TokenId> tokens,
                                       int64_t hash_block_size, int64_t lookahead,
                                       const HashInputs& inputs);

}  // namespace kvcast
