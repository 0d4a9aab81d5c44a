// GroupManagers: the managers of all groups of one pool.
//
// This class decides the order in which the groups act. This order determines the block ids and the
// order of events. The class also decides the last token up to which each group may be cached. The
// manager of a group does all other work of the group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "src/engine/block_pool.h"
#include "src/engine/single_type_manager.h"

namespace kvcast::engine {

class GroupManagers {
 public:
  // The pool must outlive the managers. REQUIRES: a validated config, and enough blocks for its
  // sinks.
  GroupManagers(const CacheConfig& config, BlockPool& pool);

  // The number of free blocks that all groups together will take. `hit` nullptr: no hit.
  int64_t BlocksToAllocate(RequestSlot slot, const PrefixHit* hit, const SlotDemand& demand) const;
  // First allocation of a request: the cache hits of all groups, then blocks for external tokens.
  void AddComputed(RequestSlot slot, const PrefixHit* hit, const SlotDemand& demand);
  // Appends the blocks that each group takes to `added`, which has one element per group.
  void AllocateNew(RequestSlot slot, const SlotDemand& demand,
                   std::vector<std::vector<BlockId>>& added);
  void CacheBlocks(RequestSlot slot, const CacheRequest& request, int64_t computed_tokens);
  void RemoveSkipped(RequestSlot slot, int64_t processed_tokens, int64_t prompt_tokens);
  void Free(RequestSlot slot, int64_t kept_tokens);
  void BeginStep();
  void TakeCopies(std::vector<BlockCopy>& copies);
  void TakeBlocksToZero(std::vector<BlockId>& blocks);

  size_t size() const { return managers_.size(); }
  const SingleTypeManager& operator[](size_t group) const { return *managers_[group]; }

 private:
  int64_t CacheableTokens(const SingleTypeManager& manager, int64_t computed_tokens) const;

  std::vector<std::unique_ptr<SingleTypeManager>> managers_;
  bool unitary_;  // there is only one group
  // Cached lengths are multiples of this number. EAGLE groups may cache one block more. Ignored if
  // unitary_.
  int64_t cache_step_;
  int64_t prefilled_again_;  // trailing tokens that multi-module MTP may prefill again
};

}  // namespace kvcast::engine
