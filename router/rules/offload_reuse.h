// Computes how blocks on lower tiers extend a hit. The lookup in the lower tiers comes after the
// engine's own lookup and starts behind the local hit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// Query for an offloading connector.
struct OffloadQuery {
  int64_t hash_block_size = 0;  // tokens per block hash; divides every block size
  int64_t units = 0;            // hashes of the chain, at most prompt_tokens / hash_block_size
  int64_t prompt_tokens = 0;    // > 0
  int64_t local_tokens = 0;     // the hit on the GPU
  // Blocks per chunk. Events announce at least the last block of each offloaded chunk.
  int64_t blocks_per_chunk = 1;
  bool full_kinds_only = false;                      // the model has only groups of full kinds
  bool compatible = true;                            // see OffloadLayoutConfig
  EngineRules rules = EngineRules::kMain2026August;  // see OffloadLayoutConfig
};

struct OffloadReuse {
  int64_t tokens = 0;
  // False in two cases. First: the prefix ends inside a block, and the announced beginning of that
  // block may be part of a longer beginning. Second: the gain is less than a chunk of some group,
  // and copies in progress would make the gain 0.
  bool certain = true;
};

// Returns the prefix that the worker can serve after it has loaded the blocks that `groups` hold on
// lower tiers: at least local_tokens, at most prompt_tokens - 1. Behind the local hit only
// offloaded chunks count. Blocks that are only on the GPU do not count. The chunks that each kind
// needs (b: the end of the prefix; "not compatible": `compatible` is false):
//   full, MLA, sink  every chunk from the local hit to b
//   window W         the last ceil(W / chunk) chunks before b, if they lie behind the local hit;
//                    from v0.32 on, the number of chunks that LoadWindowChunks returns; not
//                    compatible: the chunks that hold the last W - 1 tokens, in every release
//   chunked local C  like a window of C tokens; not compatible: from floor(b / C) * C on
//   Mamba            the chunk that ends at b; not compatible: b must be the end of a Mamba chunk
//   EAGLE            one more chunk, which is given up; from v0.32 on, a full kind has this
//                    chunk behind b
// A prefix may end inside a chunk if the whole chunk is present. Almost the whole prompt can
// therefore be served. A gain below one chunk of the queried group counts as no gain. If Mamba
// groups have blocks larger than a hash unit and OffloadLayout::supports_partial_tail is true, the
// prefix may also end inside a block. All groups must then hold the beginning of that block
// (partial_ends).
OffloadReuse ReusableWithOffload(std::span<const GroupResidency> groups, const OffloadQuery& query);

// Query for a host pool that has the GPU's groups and blocks.
struct MirroredPoolQuery {
  int64_t hash_block_size = 0;  // tokens per block hash; divides every block size
  int64_t units = 0;            // hashes of the chain, at most prompt_tokens / hash_block_size
  int64_t alignment = 0;        // of hits that end with blocks; a multiple of every block size
  size_t num_groups = 0;        // all groups of the worker, also those that take no part
  int64_t prompt_tokens = 0;    // > 0
  int64_t local_tokens = 0;     // the hit on the GPU
  EngineRules rules = EngineRules::kMain2026August;
};

// Like ReusableWithOffload, but with the engine's own reuse rule over the blocks that `groups` hold
// on lower tiers: the part of the prompt behind the local hit is looked up like a prompt. If the
// local hit does not end at a multiple of the alignment, it is not extended.
int64_t ReusableWithMirroredPool(std::span<const GroupResidency> groups,
                                 const MirroredPoolQuery& query);

}  // namespace kvcast::router
