// PrefillSplit: computes where a scheduler must end the chunks of a prefill.
//
// A Mamba group in mode kAlign keeps the recurrent state at the end of a chunk. A state inside a
// chunk is kept only in the last chunk of a prompt (GroupSpec::prefill_checkpoint_blocks). If a
// scheduler ends chunks at arbitrary positions, the cache keeps states that no later prompt can
// use. vLLM therefore shortens each chunk of a prompt (Scheduler._mamba_block_aligned_split). The
// chunk then ends at one of these positions:
// - a multiple of the block size
// - the last state that a prompt with the same text can hit
// - with CacheConfig::mamba_shared_prefix_checkpoint, the position where the prompt diverges from a
//   prefix that other prompts share
// - the end of the prompt
//
// Exceptions: a block that is larger than any chunk is filled by several chunks. With rules before
// kMain2026August, a chunk that begins at or after the last state may end at any position. If no
// Mamba group is in mode kAlign, or if caching is off, these positions do not limit a chunk.
//
// One more rule applies with or without Mamba groups. The draft modules of multi-module MTP read
// CacheConfig::mtp_lookahead_tokens tokens after a chunk. Therefore either no known token follows a
// chunk, or at least mtp_lookahead_tokens known tokens follow it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast {

// All sizes are in tokens. Thread-safe: the object is immutable.
class PrefillSplit {
 public:
  // `config`: a result of ValidateCacheConfig. `max_chunk_tokens`: the maximum number of tokens
  // that the scheduler gives one request in one step.
  PrefillSplit(const CacheConfig& config, int64_t max_chunk_tokens);

  // Returns the number of tokens of `request` to compute in this step, 0 to `tokens`. 0: the
  // remaining budget does not reach a position where the chunk may end; the request must wait for
  // the next step.
  //
  // `computed`: tokens that are already computed. The tokens of a hit and of a load count. The
  // tokens of a hit that are computed again (PrefixHit::replay_tokens) do not count. `tokens`: the
  // smaller of the request's remaining tokens and the remaining budget of the step. REQUIRES:
  // request.shared_prefix_boundary is the result of the request's own lookup.
  int64_t ChunkTokens(const CacheRequest& request, int64_t computed, int64_t tokens) const;

 private:
  struct Prefill;  // one prefill, and the requested chunk

  int64_t CheckpointBefore(int64_t tokens, int64_t hash_block_size) const;
  bool KeepsCheckpoint(const Prefill& prefill) const;
  int64_t AlignedEnd(const Prefill& prefill, int64_t last_state) const;
  int64_t ClippedEnd(const Prefill& prefill) const;

  EngineRules rules_;
  bool splits_ = false;           // a group keeps states at the ends of chunks
  bool partial_hits_ = false;     // hits may end inside a block
  bool drops_ = false;            // a group drops a part of its hit for its draft head
  bool keeps_junctions_ = false;  // CacheConfig::mamba_shared_prefix_checkpoint
  int64_t lookahead_ = 0;         // lookahead tokens of a block hash
  int64_t block_size_ = 0;        // per rank; the smallest of the groups in prefix caching
  int64_t hash_block_size_ = 0;   // tokens per block hash
  int64_t max_chunk_tokens_ = 0;
  int64_t drafted_ahead_ = 0;         // number of tokens after a chunk that a drafter reads
  int64_t checkpoint_alignment_ = 0;  // 0: no checkpoints inside chunks
};

}  // namespace kvcast
