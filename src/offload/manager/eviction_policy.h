// EvictionPolicy: which idle chunks are evicted first.
//
// The manager owns the chunks and tells the policy what happens to them; the policy keeps them in
// lists.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvcast/offload/offload_manager.h"
#include "src/offload/manager/chunk_table.h"

namespace kvcast::offload {

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  virtual void OnReserved(uint32_t chunk) = 0;
  // The chunk may be evicted from now on, and after all others.
  virtual void OnIdle(uint32_t chunk) = 0;
  virtual void OnLoading(uint32_t chunk) = 0;
  virtual void OnStoreFailed(uint32_t chunk) = 0;
  // A chunk of the table was used: one that is present, or one that the policy remembers.
  virtual void OnTouch(uint32_t chunk) = 0;
  // A request that used the chunk, which is present, has finished. `reused`: it did not store the
  // chunk. `rank` is greater than all before.
  virtual void OnCharged(uint32_t chunk, bool reused, uint64_t rank, int64_t end) = 0;
  // An absent chunk of the table is going to be stored; the policy may remember it.
  virtual void OnStoreMiss(uint32_t chunk) = 0;

  // Appends idle chunks with `slots` slots or more, in order of eviction, but none with `mark`.
  // False: there are not enough. Changes nothing; passes over each chunk at most once.
  virtual bool ChooseVictims(int64_t slots, uint64_t mark,
                             std::vector<uint32_t>& victims) const = 0;
  // Appends the chunks that the policy has in no list any more, victims and others.
  virtual void OnEvicted(std::span<const uint32_t> victims, std::vector<uint32_t>& forgotten) = 0;
  // The table is being cleared.
  virtual void Clear() = 0;

  // Adds the chunks and ghosts that the policy orders.
  using Describe = std::function<OffloadManager::Chunk(const ChunkEntry&)>;
  virtual void Inspect(const Describe& describe, OffloadManager::State& state) const = 0;
};

}  // namespace kvcast::offload
