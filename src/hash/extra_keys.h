// The extra keys of one block, with the object tags that only the pickle schemes need.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kvcast/hash/block_hash.h"

namespace kvcast::internal {

struct BlockKeys {
  ExtraKeys keys;
  // MultimodalItem::object_tag of each key; 0 for a key that names no multimodal item.
  std::vector<uint32_t> object_tags;
};

// The positions that a block's hash covers: the block [begin, end) and `lookahead` positions after
// it.
struct HashedRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t lookahead = 0;
};

// The keys that every block of the prompt has: the keys of the LoRA adapter.
ExtraKeys SharedKeys(const HashInputs& inputs, ExtraKeyScheme scheme);

// True if no block of the prompt has keys besides the shared keys.
inline bool HasSharedKeysOnly(const HashInputs& inputs) {
  return inputs.mm_items.empty() && inputs.cache_salt.empty() && !inputs.prompt_embeddings &&
         inputs.embedding_digests.empty();
}

// True if a block may have keys besides the shared keys.
bool MayHaveOwnKeys(const HashInputs& inputs, const HashedRange& range, size_t cursor);

// Replaces the content of `block` by the keys of the range. `cursor` is the index of the first
// multimodal item to examine. The call moves the cursor past the items that end inside the block. A
// walk over adjacent blocks from cursor 0 then visits each item only at the blocks that the item
// overlaps. False: the digest of the range's embeddings is not known, and is missing in `block`.
bool CollectBlockKeys(const HashInputs& inputs, const HashedRange& range, ExtraKeyScheme scheme,
                      size_t& cursor, BlockKeys& block);

}  // namespace kvcast::internal
