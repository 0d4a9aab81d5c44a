// What blocks on lower tiers add to a hit: lookups that come after the engine's own and look behind
// it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kvcast/spec/reuse.h"

namespace kvcast::router {

// Of an offloading connector.
struct OffloadQuery {
  int64_t unit = 0;              // tokens per hash; divides every block size
  int64_t units = 0;             // hashes of the chain, at most prompt_tokens / unit
  int64_t prompt_tokens = 0;     // > 0
  int64_t local_tokens = 0;      // the hit on the GPU
  int64_t blocks_per_chunk = 1;  // what is offloaded as one; announced at least by its last block
  bool full_kinds_only = false;  // the model has no other groups
  bool compatible = true;        // see OffloadLayoutConfig
  EngineRules rules = EngineRules::kMain2026August;  // likewise
};

struct OffloadReuse {
  int64_t tokens = 0;
  // False: the prefix ends inside a block, and the announced block there may be part of a longer
  // end; or it gains less than a chunk of some group, which copies under way turn into nothing.
  bool certain = true;
};

// The prefix that the worker can serve once it has loaded what `groups` hold on lower tiers: at
// least local_tokens, at most prompt_tokens - 1. Behind the local hit only offloaded chunks count,
// blocks that are on the GPU alone do not. By kind, b being the end of the prefix:
//   full, MLA, sink  every chunk from the local hit to b
//   window W         of the last ceil(W / chunk) chunks before b, those behind the local hit; not
//                    compatible: those that hold the last W - 1 tokens; from v0.32 on as many
//                    chunks as LoadWindowChunks says
//   chunked local C  as a window of C tokens; not compatible: from floor(b / C) * C on
//   Mamba            the chunk that ends at b; not compatible: there is no other b
//   EAGLE            one chunk more, which is given up; a full kind looks behind b for it from
//                    v0.32 on
// A prefix may end inside a chunk, which must then be there as a whole: so almost all of a prompt
// can be served. A gain below one chunk of the group that is asked is none. Beside Mamba groups
// whose blocks are larger than a unit it may also end inside a block of which all groups hold the
// beginning (partial_ends), where OffloadLayout::supports_partial_tail.
OffloadReuse ReusableWithOffload(std::span<const GroupResidency> groups, const OffloadQuery& query);

// Of a host pool that has the GPU's groups and blocks.
struct MirroredPoolQuery {
  int64_t unit = 0;           // tokens per hash; divides every block size
  int64_t units = 0;          // hashes of the chain, at most prompt_tokens / unit
  int64_t alignment = 0;      // of hits that end with blocks; a multiple of every block size
  size_t num_groups = 0;      // of the worker, those that take no part included
  int64_t prompt_tokens = 0;  // > 0
  int64_t local_tokens = 0;   // the hit on the GPU
  EngineRules rules = EngineRules::kMain2026August;
};

// As ReusableWithOffload, by the engine's own rule over the blocks that `groups` hold on lower
// tiers: what lies behind the local hit is looked up as if it were a prompt. Where the hit does not
// end at a multiple of the alignment, nothing is added.
int64_t ReusableWithMirroredPool(std::span<const GroupResidency> groups,
                                 const MirroredPoolQuery& query);

}  // namespace kvcast::router
