// SingleTypeManager: the block tables of one KV-cache group.
//
// Everything that depends on the kind of a group's cache is behind this class: how many blocks a
// step needs, which blocks attention will never read again, what is worth caching. The base class
// is full attention without its partial entries; other kinds override what differs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcast/engine/cache_manager.h"
#include "kvcast/spec/cache_spec.h"
#include "src/engine/block_pool.h"
#include "src/engine/request_slots.h"

namespace kvcast::engine {

// What a manager knows about its group. The pool outlives the manager.
struct GroupContext {
  GroupSpec spec;
  GroupIdx group;
  int64_t alignment = 0;      // scheduler_block_size
  int64_t hit_alignment = 0;  // of hits
  bool drops = false;         // some group of the cache drops a block for its draft head
  int64_t lookahead = 0;      // tokens behind a block that its hash covers
  std::optional<int64_t> retention_interval;
  EngineRules rules = EngineRules::kMain2026August;
  std::optional<int64_t> max_admission_blocks;
  // The tokens given to CacheBlocks are fewer than were computed: a state that is kept inside a
  // block is of a longer prefix than they name.
  bool caching_lags = false;
  bool caches_junctions = false;  // CacheConfig::mamba_shared_prefix_checkpoint
  bool zero_new_blocks = false;
  BlockPool* pool = nullptr;
};

// Tokens that a step wants slots for. All are prefix lengths.
struct SlotDemand {
  int64_t tokens = 0;          // drafts included
  int64_t main_tokens = 0;     // without drafts
  int64_t local_computed = 0;  // computed here, this step's cache hit included
  int64_t total_computed = 0;  // and loaded from outside
  int64_t encoder_tokens = 0;  // cross attention
  int64_t prefill_tokens = 0;  // with which the prompt, or what is computed anew, ends
  bool apply_admission_cap = false;
};

class SingleTypeManager {
 public:
  explicit SingleTypeManager(GroupContext context) : context_(std::move(context)) {}
  virtual ~SingleTypeManager() = default;
  SingleTypeManager(const SingleTypeManager&) = delete;
  SingleTypeManager& operator=(const SingleTypeManager&) = delete;

  // Free blocks that AllocateNew and the touching of `hits` will take from the pool. An estimate
  // with the admission cap, exact without; more than the pool has: not in this step.
  virtual int64_t BlocksToAllocate(RequestSlot slot, std::span<const BlockId> hits,
                                   const SlotDemand& demand) const;
  // First allocation of a request: its table becomes the cache hit, which gains a reference.
  virtual void AddHit(RequestSlot slot, std::span<const BlockId> hits, const SlotDemand& demand);
  // Blocks for tokens loaded from outside. Every group must have added its hit before.
  virtual void AllocateExternal(RequestSlot slot, const SlotDemand& demand);
  // Extends the table; appends what it took to `added`.
  virtual void AllocateNew(RequestSlot slot, const SlotDemand& demand, std::vector<BlockId>& added);
  // Caches the full blocks of the first `tokens` tokens that are not cached yet.
  virtual void CacheBlocks(RequestSlot slot, const CacheRequest& request, int64_t tokens);
  // Releases blocks that attention will not read again.
  virtual void RemoveSkipped(RequestSlot slot, int64_t processed_tokens, int64_t prompt_tokens);
  // Releases the whole table, tail first.
  virtual void Free(RequestSlot slot);
  // A scheduling pass begins.
  virtual void BeginStep() {}

  std::span<const BlockId> table(RequestSlot slot) const;
  const GroupSpec& spec() const { return context_.spec; }
  GroupIdx group() const { return context_.group; }

  // Copies that this step's cache hits caused, since the last call. The manager holds a reference
  // to both ends of each until they are freed in the pool.
  void TakeCopies(std::vector<BlockCopy>& copies);
  // Blocks taken for new tokens since the last call, if they are to be zeroed.
  void TakeBlocksToZero(std::vector<BlockId>& blocks);

 protected:
  // A block that is shared up to the middle and must be copied before it is written.
  struct SharedTail {
    int64_t index;
    BlockId block;
  };
  struct RequestBlocks {
    std::vector<BlockId> table;
    int64_t num_cached = 0;  // leading blocks that were cached or passed over for good
    bool running = false;    // has been allocated slots
    std::optional<SharedTail> shared_tail;
  };

  RequestBlocks& blocks(RequestSlot slot);
  // nullptr: nothing was ever allocated in this slot.
  const RequestBlocks* find_blocks(RequestSlot slot) const;
  BlockPool& pool() const { return *context_.pool; }
  int64_t block_size() const { return context_.spec.block_size; }
  const GroupContext& context() const { return context_; }

  int64_t CountFreeCandidates(std::span<const BlockId> blocks) const;
  bool EndsInsideBlock(std::span<const BlockId> hits, const SlotDemand& demand) const;
  // Takes blocks until the table has `count`.
  void GrowTable(RequestBlocks& blocks, int64_t count, std::vector<BlockId>* added);
  // Replaces blocks [first, last) by null blocks from the last one down, to the first null.
  void ReleaseRange(RequestBlocks& blocks, int64_t first, int64_t last);
  // Puts `copy` in the place of a shared tail, and queues the copy.
  void RedirectSharedTail(RequestBlocks& blocks, const SharedTail& tail, BlockId copy);
  void QueueCopy(BlockCopy copy) { copies_.push_back(copy); }

 private:
  void FillBoundaries(const CacheRequest& request);

  GroupContext context_;
  std::vector<RequestBlocks> requests_;  // by slot
  std::vector<BlockCopy> copies_;
  std::vector<BlockId> to_zero_;
  // Scratch, kept for its capacity.
  std::vector<BlockId> released_;
  Bitmap keep_;
  std::vector<int64_t> boundaries_;
};

}  // namespace kvcast::engine
