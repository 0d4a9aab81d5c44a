// Extra keys of one block together with what only the pickle schemes need to know of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kvcast/block_hash.h"

namespace kvcast::internal {

struct BlockKeys {
  ExtraKeys keys;
  // MultimodalItem::object_tag of each key, 0 for keys that are not a multimodal pair.
  std::vector<uint32_t> object_tags;
};

// Whether a block may have keys besides the LoRA name; if not, its keys are those of its
// neighbours.
bool MayHaveOwnKeys(const HashInputs& inputs, int64_t begin, int64_t end, size_t cursor);

// Replaces `block` by the keys of the positions [begin, end). `cursor` is the first multimodal item
// to look at; it moves past the items that end inside the block, so a walk over adjacent blocks
// from cursor 0 visits each item only where it matters.
void CollectBlockKeys(const HashInputs& inputs, int64_t begin, int64_t end, size_t& cursor,
                      BlockKeys& block);

}  // namespace kvcast::internal
