// FreeBlockQueue: the free blocks, in the order in which they will be taken.
//
// A doubly linked list in an array that is indexed by block id. Every operation is O(1) per block.
// No operation except List allocates memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcast/core/ids.h"
#include "src/base/huge_pages.h"

namespace kvcast::engine {

class FreeBlockQueue {
 public:
  // The queue starts with all blocks [0, num_blocks) in ascending order.
  explicit FreeBlockQueue(uint32_t num_blocks);

  int64_t size() const { return size_; }
  bool Contains(BlockId id) const { return links_[id.value].next != kNotQueued; }

  // Takes the head block. REQUIRES: size() > 0.
  BlockId PopFront();
  // REQUIRES: Contains(id).
  void Remove(BlockId id);
  // Append adds blocks at the tail. Prepend adds blocks before the head. InsertEarly adds blocks
  // before all blocks that Append added, and after all other blocks. The added blocks keep the
  // order of `ids`. REQUIRES: the queue contains none of these blocks.
  void Append(std::span<const BlockId> ids);
  void Prepend(std::span<const BlockId> ids);
  void InsertEarly(std::span<const BlockId> ids);

  // If `after` is nullopt, the head; otherwise the block that follows `after`. nullopt: there is no
  // such block. REQUIRES: the queue contains `after`.
  std::optional<BlockId> Next(std::optional<BlockId> after) const;

  // All blocks from head to tail. For tests and invariant checks.
  std::vector<BlockId> List() const;

 private:
  static constexpr uint32_t kNotQueued = UINT32_MAX;
  struct Link {
    uint32_t prev;
    uint32_t next;
  };
  void InsertBefore(uint32_t position, BlockId id);
  // The next block after `position`, or the sentinel. Skips the divider.
  uint32_t After(uint32_t position) const;

  // By block id. Two elements follow the blocks: the sentinel, which closes the ring, and the
  // divider, which is linked before all blocks that Append added.
  std::vector<Link, HugePageAllocator<Link>> links_;
  uint32_t sentinel_;
  uint32_t divider_;
  int64_t size_;
};

}  // namespace kvcast::engine
