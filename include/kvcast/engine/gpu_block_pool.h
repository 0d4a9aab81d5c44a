// GpuBlockPool: the interface through which an offload tier reads and pins the blocks of an
// engine's own pool.
//
// CacheManager::gpu_blocks() returns an implementation. An engine with its own block pool
// implements this interface.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/core/ids.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast {

struct CacheRequest;

// Content of a cached block: the KV, or the Mamba state, at the end of a prefix, for one group.
struct BlockContent {
  Digest digest;  // identifies the prefix
  GroupIdx group;
  int64_t prefix_tokens = 0;  // length of the prefix

  friend bool operator==(const BlockContent&, const BlockContent&) = default;
};

// Block 0 is the null block. It has no content and is never free. Pin and Unpin ignore it. All
// calls must come from the thread that owns the pool.
class GpuBlockPool {
 public:
  virtual ~GpuBlockPool() = default;

  // The request's blocks in one group, by position. The null block stands for a position without a
  // block. The span is valid until the engine changes the table.
  virtual std::span<const BlockId> BlockTable(const CacheRequest& request,
                                              GroupIdx group) const = 0;
  // The content of a block. nullopt: the block is not cached.
  virtual std::optional<BlockContent> ContentOf(BlockId block) const = 0;

  // Iterates over the free blocks in the order in which the pool will allocate them. If `after` is
  // nullopt, returns the first free block. Otherwise returns the free block that follows `after`.
  // Returns nullopt at the end. REQUIRES: `after` is free.
  virtual std::optional<BlockId> NextFree(std::optional<BlockId> after) const = 0;
  virtual bool IsFree(BlockId block) const = 0;

  // A pinned block keeps its content. The pool does not allocate the block before the number of
  // Unpin calls for it is equal to the number of Pin calls. Unpin may make blocks free, in the
  // order of `blocks`. With `take_next` false, these blocks become free as if a request had freed
  // them. With `take_next` true, the pool allocates these blocks before all other free blocks.
  virtual void Pin(std::span<const BlockId> blocks) = 0;
  virtual void Unpin(std::span<const BlockId> blocks, bool take_next) = 0;
};

}  // namespace kvcast
