// RequestState: the scheduler's data of one request, and the keys of its chunks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/offload/offload_scheduler.h"

namespace kvcast::offload {

// A block of a request's table, and the step in which the request got it.
struct TableEntry {
  BlockId block;
  uint64_t step = 0;
};

struct GroupState {
  std::vector<TableEntry> table;
  int64_t next_stored_chunk = 0;  // chunks before this index are not offered for storing again
  // Number of complete chunks in the prefix of the latest match. The prefix has the tokens on the
  // GPU and the tokens to load.
  int64_t hit_chunks = 0;
};

struct RequestState {
  OffloadRequestId id;
  const CacheRequest* request = nullptr;
  OffloadRequestOptions options;
  std::vector<GroupState> groups;
  int64_t local_tokens = 0;                 // leading tokens on the GPU at the latest match
  std::optional<int64_t> tail_boundary;     // end of the latest match, if it is inside a block
  std::optional<int64_t> pending_since_ms;  // time of the first match of a wait; nullopt: no wait
  int64_t last_match_ms = 0;                // time of the latest match
  bool within_step = false;                 // the latest match is loaded within the step
  std::vector<OffloadJobId> jobs;           // one load, or any number of stores
  bool loaded = false;                      // at least one load was started
  bool load_failed = false;                 // a load failed or was late; no further lookups
  bool finished = false;
  bool closed = false;       // finished, and no further stores follow
  int64_t final_tokens = 0;  // leading tokens that may be stored after the request has finished

  int64_t num_tokens() const { return std::ssize(request->tokens); }
  int64_t NumChunks(const OffloadGroup& group) const {
    return std::ssize(request->chain) / group.hashes_per_chunk;
  }
  // REQUIRES: chunk < NumChunks(group).
  OffloadKey ChunkKey(const OffloadLayout& layout, size_t group, int64_t chunk) const {
    const int64_t hashes = layout.groups[group].hashes_per_chunk;
    return {BlockDigest(request->chain, chunk, hashes), layout.groups[group].index};
  }
  // The key of the prefix of `tokens` tokens. REQUIRES: the chain covers the prefix.
  OffloadKey PrefixKey(const OffloadLayout& layout, size_t group, int64_t tokens) const {
    return {BlockDigest(request->chain, tokens / layout.tokens_per_hash - 1, 1),
            layout.groups[group].index};
  }
  // The key of the stored end of a prefix. The prefix ends at `boundary` tokens, inside a block.
  // REQUIRES: the chain covers tail_margin tokens more than the prefix.
  OffloadKey TailKey(const OffloadLayout& layout, size_t group, int64_t boundary) const {
    return PrefixKey(layout, group, boundary + layout.groups[group].tail_margin);
  }
};

}  // namespace kvcast::offload
