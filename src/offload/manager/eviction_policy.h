// EvictionPolicy: decides which idle chunks are evicted first.
//
// The manager owns the chunks and reports their changes to the policy. The policy keeps the chunks
// in lists. A ghost is an evicted chunk that the policy still keeps in a list.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvcast/offload/offload_manager.h"
#include "src/offload/manager/chunk_table.h"

namespace kvcast::offload {

// The use of a chunk by one request.
enum class ChunkUse : uint8_t {
  kOffered,  // the request offered the chunk, but did not store it, and did not find it readable
  kStored,   // the request stored the chunk
  kReused,   // the request found the chunk readable, before it stored the chunk itself
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  virtual void OnReserved(uint32_t chunk) = 0;
  // From this call on, the chunk may be evicted.
  virtual void OnIdle(uint32_t chunk) = 0;
  virtual void OnLoading(uint32_t chunk) = 0;
  virtual void OnStoreFailed(uint32_t chunk) = 0;
  // A chunk of the table was used. The chunk is present or a ghost.
  virtual void OnTouch(uint32_t chunk) = 0;
  // A running request has used the chunk for the first time. The chunk is present. `rank` is the
  // rank of the request; `end`: tokens of the prefix that ends with the chunk.
  virtual void OnAccess(uint32_t chunk, uint64_t rank, int64_t end) = 0;
  // A request that used the chunk has finished. The chunk is present. `rank` is greater than all
  // earlier ranks.
  virtual void OnRequestFinished(uint32_t chunk, ChunkUse use, uint64_t rank) = 0;
  // An absent chunk of the table will be stored. The chunk may be a ghost.
  virtual void OnStoreMiss(uint32_t chunk) = 0;

  // Appends idle chunks with at least `slots` slots in total, in order of eviction. Chunks with the
  // mark `mark` are left out. False: there are not enough chunks. The call does not change the
  // policy, and visits each chunk at most once.
  virtual bool ChooseVictims(int64_t slots, uint64_t mark,
                             std::vector<uint32_t>& victims) const = 0;
  // Appends the chunks that left all lists of the policy. These chunks may include chunks that are
  // not victims.
  virtual void OnEvicted(std::span<const uint32_t> victims, std::vector<uint32_t>& forgotten) = 0;
  // Called when the table is being cleared.
  virtual void Clear() = 0;

  // Adds the chunks and ghosts of the policy's lists to `state`.
  using Describe = std::function<OffloadManager::Chunk(const ChunkEntry&)>;
  virtual void Inspect(const Describe& describe, OffloadManager::State& state) const = 0;
};

}  // namespace kvcast::offload
