// BlockPool: the physical blocks of one memory tier, shared by all KV-cache groups.
//
// A block is free or referenced. A free block may still be cached. Such a block stays reusable
// until Allocate takes it for new content. Block 0 is the null block: it is never allocated and
// never cached, and Touch and Free ignore it. Thread-compatible: one owner thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/spec/reuse.h"
#include "src/engine/block_key.h"
#include "src/engine/cached_block_map.h"
#include "src/engine/event_log.h"
#include "src/engine/free_block_queue.h"

namespace kvcast::engine {

inline constexpr BlockId kNullBlock{0};

struct PoolOptions {
  int64_t num_blocks = 0;        // includes the null block
  int64_t hash_block_size = 16;  // tokens per hash
  int64_t lookahead = 0;         // the hash of a block also covers this number of tokens after it
  bool enable_caching = true;
  bool reuse_uncached_first = true;
  EventOptions events;
  std::string medium = kMediumGpu;
};

// The full blocks [begin, end) of one group's block table. CacheFullBlocks caches these blocks.
struct FullBlocks {
  const CacheRequest& request;  // its chain covers the last block
  GroupIdx group;
  int64_t block_size = 0;
  std::span<const BlockId> table;
  int64_t begin = 0;
  int64_t end = 0;
  const Bitmap* keep = nullptr;  // bit i: cache block begin + i; nullptr: cache all blocks
};

// A block, and a prefix of `prefix_tokens` tokens that ends inside the block or at its end.
struct PartialBlock {
  const CacheRequest& request;
  GroupIdx group;
  BlockId block;
  int64_t prefix_tokens = 0;
};

// The place of freed blocks in the queue. Blocks that still have references do not enter the queue.
enum class FreeTo : uint8_t {
  kUsual,  // uncached blocks go to the head, cached blocks to the tail
  // As kUsual, but cached blocks that no request ever adopted go before all other cached blocks.
  kEvictFirst,
  kHead,  // all blocks go to the head
};

class BlockPool {
 public:
  // REQUIRES: num_blocks >= 1, hash_block_size > 0.
  explicit BlockPool(const PoolOptions& options);

  int64_t num_blocks() const { return static_cast<int64_t>(refs_.size()); }
  int64_t num_free() const { return free_.size(); }
  int64_t hash_block_size() const { return options_.hash_block_size; }
  uint32_t ref_count(BlockId block) const { return refs_[block.value]; }
  bool IsFreeCandidate(BlockId block) const { return block != kNullBlock && ref_count(block) == 0; }
  const CachedBlockMap& cached() const { return cached_; }

  // The block that was cached first under (digest, group).
  std::optional<BlockId> FindCached(const Digest& digest, GroupIdx group) const {
    return cached_.Find({digest, group});
  }
  // Prefetches the memory that FindCached will read.
  void PrefetchCached(const Digest& digest, GroupIdx group) const {
    cached_.Prefetch({digest, group});
  }

  // Takes n blocks from the head of the queue and appends them to `out`. The previous content of
  // these blocks leaves the cache, with one BlockRemoved per key. With announce_once, there is no
  // event for a key that another block holds. REQUIRES: n <= num_free().
  void Allocate(int64_t n, std::vector<BlockId>& out);
  // Adds one reference to each block.
  void Touch(std::span<const BlockId> blocks);
  // Adds one reference to each block of a hit. The blocks count as adopted until they get new
  // content.
  void Adopt(std::span<const BlockId> blocks);
  // Drops one reference of each block. Blocks without references go to the queue, in the given
  // order. Without reuse_uncached_first, kUsual and kEvictFirst put uncached blocks at the tail.
  void Free(std::span<const BlockId> blocks, FreeTo place = FreeTo::kUsual);

  // Caches the full blocks of the table, except null blocks and blocks that `keep` excludes. One
  // BlockStored covers all these blocks, and is sent even if no block was cached.
  // EventOptions::exact_spans and announce_once change this rule. If a block already has keys of
  // prefixes that end inside the block, these keys are removed first.
  void CacheFullBlocks(const FullBlocks& blocks);
  // Caches a block under the hash of a prefix that ends inside the block or at its end. If the
  // first key of the block belongs to a shorter prefix, all keys of the block are removed first.
  // nullopt: the block is null, or the prefix has no hash.
  std::optional<BlockKey> CachePartialBlock(const PartialBlock& partial);
  // Announces the whole blocks of a hit again and changes nothing else. Null positions are
  // announced too, as vLLM does, except with exact_spans. Announces nothing with announce_once.
  // REQUIRES: the request's chain has the hashes of these blocks.
  void ReportBlocks(const CacheRequest& request, GroupIdx group, int64_t block_size,
                    std::span<const BlockId> hit);
  // Caches a block whose content came from another tier, without an event. REQUIRES: the block is
  // in use and has no key.
  void CacheAs(const BlockKey& key, BlockId block, int64_t covered_tokens);
  // Moves all keys of `from` to `to`, without an event. REQUIRES: `to` has no key.
  void MoveKeys(BlockId from, BlockId to) { cached_.MoveKeys(from, to); }
  // Drops all keys of these blocks. REQUIRES: the ids are below num_blocks().
  void Evict(std::span<const BlockId> blocks);
  // Drops all keys. False: a block is in use, and nothing changed.
  bool Reset();
  // Drops all keys, also the keys of blocks in use.
  void ForgetAll();

  // The events since the last drain.
  EventLog& events() { return events_; }
  const EventLog& events() const { return events_; }

  // Returns the free block that follows `after` in the queue, or the first free block if `after` is
  // nullopt. Returns nullopt if there is no such block. REQUIRES: the block `after` is free.
  std::optional<BlockId> NextFree(std::optional<BlockId> after) const { return free_.Next(after); }
  std::vector<BlockId> FreeList() const { return free_.List(); }
  Status CheckInvariants() const;

 private:
  void RemoveKeys(BlockId block);
  // Announces the blocks whose digests and first tokens are in the scratch arrays. Without
  // exact_spans, the event covers the tokens [begin, end) of the request, as vLLM's event does.
  void Announce(const CacheRequest& request, GroupIdx group, int64_t block_size, int64_t begin,
                int64_t end);
  void AnnounceRun(const CacheRequest& request, GroupIdx group, int64_t block_size, size_t first,
                   size_t count);

  PoolOptions options_;
  std::vector<uint32_t> refs_;
  std::vector<bool> adopted_;  // by block: a request adopted the block's content (see Adopt)
  FreeBlockQueue free_;
  CachedBlockMap cached_;
  EventLog events_;
  // Scratch memory; members so that the capacity is kept.
  std::vector<BlockId> to_head_;
  std::vector<BlockId> to_front_;
  std::vector<BlockId> to_tail_;
  std::vector<const Digest*> digests_;
  std::vector<int64_t> begins_;
};

}  // namespace kvcast::engine
