// PrefillSplit: where a scheduler ends the chunks of a prefill.
//
// A recurrent state (Mamba) is kept at the end of a chunk and nowhere else. A scheduler that ends
// chunks anywhere keeps states that no later prompt can begin with. vLLM clips each chunk of a
// prompt (Scheduler._mamba_block_aligned_split): to the grid of blocks, to the last state that a
// prompt with the same text can hit, and to the place where the prompt parts from the prefix that
// others share. Caches without such groups take chunks as they come.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast {

// All sizes are in tokens. Has no state that changes: any thread may call it.
class PrefillSplit {
 public:
  // `config`: from ValidateCacheConfig. `max_chunk_tokens`: the most that the scheduler ever gives
  // one request in a step.
  PrefillSplit(const CacheConfig& config, int64_t max_chunk_tokens);

  // Tokens of `request` to compute in this step. `computed`: already computed, a hit and a load
  // included, tokens that a hit has computed again (PrefixHit::replay_tokens) not. `tokens`: those
  // left of the request and of the step's budget. Between 0 and `tokens`; 0: the rest of the budget
  // does not reach a place where a state may be kept, and the request waits for the next step.
  // REQUIRES: request.shared_prefix_boundary is that of the request's own lookup.
  int64_t ChunkTokens(const CacheRequest& request, int64_t computed, int64_t tokens) const;

 private:
  struct Prefill;  // one prefill, and the chunk that is asked for

  int64_t CheckpointBefore(int64_t tokens, int64_t unit) const;
  bool KeepsCheckpoint(const Prefill& prefill) const;
  int64_t AlignedEnd(const Prefill& prefill, int64_t last_state) const;
  int64_t ClippedEnd(const Prefill& prefill) const;

  EngineRules rules_;
  bool splits_ = false;        // a group keeps states at the ends of chunks
  bool partial_hits_ = false;  // hits may end inside a block
  bool drops_ = false;         // a group gives up a unit for its draft head
  bool keeps_junctions_ = false;
  int64_t lookahead_ = 0;   // of hashes
  int64_t block_size_ = 0;  // the smallest of the groups in prefix caching, of one rank
  int64_t unit_ = 0;        // of hashes
  int64_t max_chunk_tokens_ = 0;
  int64_t drafted_ahead_ = 0;         // prompt tokens that a drafter reads behind a chunk
  int64_t checkpoint_alignment_ = 0;  // 0: no checkpoints inside chunks
};

}  // namespace kvcast
