// StorePath: the part of a prompt that a store describes, in units of the hash block size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/router/content_key.h"
#include "router/names/store_content.h"

namespace kvcast::router {

ContentScope ScopeOf(const BlockStored& event);

struct StorePath {
  // For each unit of the span: the key of the prefix that ends there; kUnnamed: not known. Empty:
  // the positions of the blocks, or the name of the first block, are not known.
  std::vector<ContentKey> keys;
  // The units of the span at which a stored block ends.
  std::vector<uint32_t> ends;
  bool whole = true;  // the path has all blocks of the span
};

// Replaces `path` by the path of the store. `lookahead`: the lookahead of the content keys, in
// tokens. REQUIRES: hash_block_size > 0, and hash_block_size divides the block size.
void ReadStorePath(const BlockStored& event, const SpanStart& start, const StoreContent& content,
                   int64_t hash_block_size, int64_t lookahead, const ContentKeys& keys,
                   StorePath& path);

}  // namespace kvcast::router
