// ContentState: the running 64-bit name of a prefix, token by token.
//
// One step per token, not per block: the name of a prefix does not depend on the block sizes of the
// groups that announce it. A step is a bijection of the state, so that prefixes that differ stay
// different while equal tokens follow.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvcast/event.h"
#include "kvcast/extra_key.h"
#include "kvcast/ids.h"

namespace kvcast::router {

using ContentState = uint64_t;

// The empty prefix. What differs in any argument never shares a key.
ContentState ContentRoot(std::string_view lora_name, std::string_view salt,
                         int tokens_per_position);
// A multimodal item begins before the next token.
ContentState AddItem(ContentState state, std::string_view identifier);
ContentState AddPosition(ContentState state, std::span<const TokenId> tokens);

// A multimodal item that begins in a block.
struct ItemStart {
  int64_t position = 0;  // from the block's start
  std::string_view identifier;
};

// What the extra keys of one block say, beyond its tokens.
struct BlockContent {
  std::string_view salt;
  std::vector<ItemStart> items;
  // Some of it cannot be named: embeddings, keys of an unknown form, or items that the engine may
  // have hashed incompletely.
  bool hidden = false;
};

// `extra` is block `index` of the event. vLLM's order: LoRA name, (identifier, offset from the
// block's start) of each item that touches the block, salt (first block of the prompt only).
BlockContent ReadBlockContent(const BlockStored& event, size_t index, bool first_block);

}  // namespace kvcast::router
