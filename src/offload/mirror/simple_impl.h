// What a SimpleOffload holds, and the steps that its calls share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "kvcast/offload/offload_manager.h"
#include "kvcast/offload/simple_offload.h"
#include "src/engine/block_pool.h"
#include "src/engine/prefix_lookup.h"
#include "src/offload/mirror/simple_transfers.h"

namespace kvcast {

class SimpleOffload::Impl {
 public:
  Impl(SimpleOffloadConfig valid, GpuBlockPool& gpu_blocks);

  // Loads.
  void DropPin(const std::string& request_id);
  PrefixHit Search(const CacheRequest& request, int64_t local_tokens, int64_t max_tokens);
  void StartLoad(const CacheRequest& request, int64_t local_tokens, int64_t tokens,
                 std::span<const std::vector<BlockId>> blocks);
  void EndLoad(offload::Load& load, bool success);
  // Its host blocks are not found any more.
  void ForgetHost(const offload::Load& load);
  void HandOutLoads(TransferStep& step);
  // Of both kinds.
  void DropNotHandedOut();

  // Stores: of a request, everything from its cursors on, or from the start.
  void StoreRequest(const CacheRequest& request, int64_t confirmed_tokens, bool from_start);
  void CollectGroup(const CacheRequest& request, GroupIdx group, int64_t tokens, bool from_start,
                    int64_t& cursor);
  bool IsMissing(BlockId block, const BlockContent& content);
  // Holds the host blocks of the request that are to stay while the candidates are stored: of both,
  // those that a hit needs first.
  void ProtectPresent();
  // Cuts the candidates, in order of their place, down to what there is room for.
  void KeepWhatFits(offload::StoreProgress& progress);
  void ReserveCandidates();
  void StoreFreeBlocks();
  bool HasFailed(BlockId block, const BlockContent& content) const;
  void HandOutStores(TransferStep& step);
  void EndStore(offload::Store& store);

  // Blocks [first, first + count) of a request's group as an event; or all that is known of a block
  // that was cached before its request was seen.
  BlockStored Describe(const CacheRequest& request, GroupIdx group, int64_t first, int64_t count);
  BlockStored DescribeUnknown(const BlockContent& content);
  void DescribeCandidates(const CacheRequest& request);
  void DescribeFreeBlocks();
  // Lazy: notes what the request's blocks will be announced as, while the request is known.
  void DescribeTables(const CacheRequest& request, int64_t confirmed_tokens);
  void DescribeBlock(const CacheRequest& request, GroupIdx group, int64_t index, BlockId block);
  bool announces_stores() const { return !config.compatible && cpu.events().enabled(); }

  // The end of copies, of either kind, and of references to host blocks: those at the end of a
  // prefix become free first. Reorders what it is given.
  void Release(std::vector<offload::BlockCopyPair>& copies, bool take_gpu_blocks_next = false);
  void FreeHost(std::vector<BlockId>& blocks);
  void FreeMatched(const offload::MatchPin& pin);

  offload::StoreProgress& ProgressOf(const CacheRequest& request);
  int64_t units(GroupIdx group) const {
    return config.cache.groups[group.value].block_size / config.cache.hash_block_size;
  }

  const SimpleOffloadConfig config;
  GpuBlockPool& gpu;
  engine::BlockPool cpu;
  engine::PrefixLookup lookup;

  std::map<std::string, offload::MatchPin> pins;  // in order: a reset frees them all
  absl::flat_hash_map<std::string, offload::Load> loads;
  std::vector<std::string> new_loads;  // not handed out yet
  std::map<int64_t, offload::Store> stores;
  offload::Store next_store;
  absl::flat_hash_map<std::string, offload::StoreProgress> progress;
  // What is being stored, abandoned stores left out.
  absl::flat_hash_set<OffloadKey> storing_keys;
  absl::flat_hash_set<BlockId> storing_gpu_blocks;
  std::optional<BlockId> lazy_cursor;
  // Lazy: what could not be stored; in every step it would fail again, and there would be no rest.
  absl::flat_hash_map<BlockId, BlockContent> failed_stores;
  struct Described {
    BlockContent content;
    BlockStored event;
  };
  std::vector<Described> described;  // lazy, by GPU block: what its stored event will say
  int64_t next_load_event = 0;
  int64_t next_store_event = 0;
  bool preempted = false;

  // Of the call under way; members for their memory.
  std::vector<offload::StoreCandidate> candidates;
  std::vector<BlockId> present;  // host blocks that hold blocks looked at already
  std::vector<BlockId> host_blocks;
  std::vector<BlockId> gpu_blocks;
};

}  // namespace kvcast
