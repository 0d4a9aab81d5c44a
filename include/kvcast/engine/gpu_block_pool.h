// GpuBlockPool: an engine's own block pool, as an offload tier reads and pins it.
//
// CacheManager::gpu_blocks() is one; an engine with a pool of its own implements it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvcast/core/ids.h"
#include "kvcast/hash/block_hash.h"

namespace kvcast {

struct CacheRequest;

// What a cached block holds: the end of the prefix that the digest names, of one group.
struct BlockContent {
  Digest digest;
  GroupIdx group;
  int64_t prefix_tokens = 0;

  friend bool operator==(const BlockContent&, const BlockContent&) = default;
};

// Block 0 is the null block: it has no content and is never free; pinning it does nothing.
class GpuBlockPool {
 public:
  virtual ~GpuBlockPool() = default;

  // The request's blocks in one group, by position; the null block where it holds none. Valid until
  // the engine changes the table.
  virtual std::span<const BlockId> BlockTable(const CacheRequest& request,
                                              GroupIdx group) const = 0;
  // nullopt: the block is not cached.
  virtual std::optional<BlockContent> ContentOf(BlockId block) const = 0;

  // Free blocks in the order in which they will be taken: the first, or the one after a block.
  // REQUIRES: `after` is free.
  virtual std::optional<BlockId> NextFree(std::optional<BlockId> after) const = 0;
  virtual bool IsFree(BlockId block) const = 0;

  // A pinned block keeps its content: it is not taken until it is unpinned as often as it was
  // pinned. Blocks that become free by the unpinning do so in the order given: as if a request had
  // freed them, or, with `take_next`, before all that are free.
  virtual void Pin(std::span<const BlockId> blocks) = 0;
  virtual void Unpin(std::span<const BlockId> blocks, bool take_next) = 0;
};

}  // namespace kvcast
