// The state of a SimpleOffload, and the steps that its calls share.
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
  // Removes the load's host blocks from the cache, so that lookups do not find them.
  void ForgetHost(const offload::Load& load);
  void HandOutLoads(TransferStep& step);
  // Drops the loads and stores that BuildStep has not returned.
  void DropNotHandedOut();

  // Stores. StoreRequest starts at the request's cursors, or with `from_start` at its first block.
  void StoreRequest(const CacheRequest& request, int64_t confirmed_tokens, bool from_start);
  void CollectGroup(const CacheRequest& request, GroupIdx group, int64_t tokens, bool from_start,
                    int64_t& cursor);
  bool IsMissing(BlockId block, const BlockContent& content);
  // Adds a reference to each block in `present`, so that the stores of the candidates do not evict
  // these blocks. If there is not enough room for all, the blocks and candidates of shorter
  // prefixes have priority.
  void ProtectPresent();
  // Removes candidates from the end of the list until there is room for the remaining candidates.
  // The list is ordered by the prefix lengths.
  void KeepFittingCandidates(offload::StoreProgress& progress);
  void ReserveCandidates();
  void StoreFreeBlocks();
  bool HasFailed(BlockId block, const BlockContent& content) const;
  void HandOutStores(TransferStep& step);
  void EndStore(offload::Store& store);

  // Makes an event of blocks [first, first + count) of a request's group. DescribeUnknown makes an
  // event only from the content of a block, because the request of the block is not known.
  BlockStored Describe(const CacheRequest& request, GroupIdx group, int64_t first, int64_t count);
  BlockStored DescribeUnknown(const BlockContent& content);
  void DescribeCandidates(const CacheRequest& request);
  void DescribeFreeBlocks();
  // Lazy mode: keeps the events of the request's blocks, because the request may have ended when
  // the blocks are stored.
  void DescribeTables(const CacheRequest& request, int64_t confirmed_tokens);
  void DescribeBlock(const CacheRequest& request, GroupIdx group, int64_t index, BlockId block);
  bool announces_stores() const { return !config.compatible && cpu.events().enabled(); }

  // Release frees the host blocks of loads or stores, and unpins their GPU blocks. FreeHost and
  // FreeMatched drop references to host blocks. Unless `compatible` is set, blocks at the end of a
  // prefix become free first, and Release and FreeHost reorder their arguments.
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

  // By request id. The map is ordered, because a reset frees the pins in this order.
  std::map<std::string, offload::MatchPin> pins;
  absl::flat_hash_map<std::string, offload::Load> loads;  // by request id
  std::vector<std::string> new_loads;  // requests whose loads BuildStep has not returned yet
  std::map<int64_t, offload::Store> stores;
  offload::Store next_store;
  absl::flat_hash_map<std::string, offload::StoreProgress> progress;
  // The keys of the stores in progress, except the keys of abandoned stores.
  absl::flat_hash_set<OffloadKey> storing_keys;
  absl::flat_hash_set<BlockId> storing_gpu_blocks;
  std::optional<BlockId> lazy_cursor;
  // Lazy mode: blocks whose store failed. Without this list, each step would start the same store
  // again.
  absl::flat_hash_map<BlockId, BlockContent> failed_stores;
  struct Described {
    BlockContent content;
    BlockStored event;
  };
  std::vector<Described> described;  // lazy mode, by GPU block: the event of its store
  int64_t next_load_event = 0;
  int64_t next_store_event = 0;
  bool preempted = false;

  // Scratch data of the current call; members so that their memory is reused.
  std::vector<offload::StoreCandidate> candidates;
  std::vector<BlockId> present;  // host blocks that already hold the content of examined blocks
  std::vector<BlockId> host_blocks;
  std::vector<BlockId> gpu_blocks;
};

}  // namespace kvcast
