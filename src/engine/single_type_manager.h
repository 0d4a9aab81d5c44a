// SingleTypeManager: the block tables of one KV-cache group.
//
// The virtual functions implement the parts that depend on the kind of a group's cache: the number
// of blocks that a step needs, the blocks that attention will never read again, and the blocks that
// the cache keeps. The base class implements sliding-window attention and chunked local attention.
// The managers of other kinds override the parts that differ.
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

// The facts about a group that its manager needs. The pool must outlive the manager.
struct GroupContext {
  GroupSpec spec;
  GroupIdx group;
  int64_t alignment = 0;      // scheduler_block_size
  int64_t hit_alignment = 0;  // see HitAlignment
  bool drops = false;         // at least one group shortens hits by one block for its draft head
  int64_t lookahead = 0;      // the hash of a block also covers this number of tokens after it
  std::optional<int64_t> retention_interval;  // CacheConfig::retention_interval
  EngineRules rules = EngineRules::kMain2026August;
  std::optional<int64_t> max_admission_blocks;  // see MaxAdmissionBlocks; nullopt: no cap
  // True: CacheBlocks gets fewer tokens than the engine has computed. A state that is kept inside a
  // block then belongs to a longer prefix than these tokens.
  bool caching_lags = false;
  bool shared_prefix_checkpoint = false;  // CacheConfig::mamba_shared_prefix_checkpoint
  bool zero_new_blocks = false;
  BlockPool* pool = nullptr;
};

// The tokens for which a step needs slots. All numbers are prefix lengths.
struct SlotDemand {
  int64_t tokens = 0;          // includes drafts
  int64_t main_tokens = 0;     // without drafts
  int64_t local_computed = 0;  // computed by this engine; includes the cache hit of this step
  int64_t total_computed = 0;  // local_computed plus the tokens that are loaded from another tier
  int64_t encoder_tokens = 0;  // for cross attention
  int64_t prefill_tokens = 0;  // end of the prompt, or of the part that is recomputed
  bool apply_admission_cap = false;
};

class SingleTypeManager {
 public:
  explicit SingleTypeManager(const GroupContext& context) : context_(context) {}
  virtual ~SingleTypeManager() = default;
  SingleTypeManager(const SingleTypeManager&) = delete;
  SingleTypeManager& operator=(const SingleTypeManager&) = delete;

  // The number of free blocks that AddHit, AllocateExternal and AllocateNew will take from the
  // pool. Without the admission cap, the number is exact. With the cap, it is an estimate. A number
  // above the size of the pool means that the request cannot run in this step.
  virtual int64_t BlocksToAllocate(RequestSlot slot, std::span<const BlockId> hits,
                                   const SlotDemand& demand) const;
  // First allocation of a request. The request's table becomes the cache hit. The blocks of the hit
  // that attention still reads gain a reference. The other positions of the hit become null blocks.
  virtual void AddHit(RequestSlot slot, std::span<const BlockId> hits, const SlotDemand& demand);
  // Takes blocks for tokens that are loaded from another tier. REQUIRES: AddHit was called for
  // every group.
  virtual void AllocateExternal(RequestSlot slot, const SlotDemand& demand);
  // Extends the table. Appends the taken blocks to `added`.
  virtual void AllocateNew(RequestSlot slot, const SlotDemand& demand, std::vector<BlockId>& added);
  // Caches those full blocks of the first `tokens` tokens that are not cached yet.
  virtual void CacheBlocks(RequestSlot slot, const CacheRequest& request, int64_t tokens);
  // Releases blocks that attention will not read again.
  virtual void RemoveSkipped(RequestSlot slot, int64_t processed_tokens, int64_t prompt_tokens);
  // Releases the whole table, from the tail to the head. Blocks that begin at token `kept_tokens`
  // or later are freed with FreeTo::kEvictFirst.
  virtual void Free(RequestSlot slot, int64_t kept_tokens);
  // Called when a scheduling pass begins.
  virtual void BeginStep() {}

  std::span<const BlockId> table(RequestSlot slot) const;
  const GroupSpec& spec() const { return context_.spec; }
  GroupIdx group() const { return context_.group; }

  // Appends the copies that were queued since the previous call. Both blocks of each copy have a
  // reference for the copy. The caller must free these references in the pool after the copy.
  void TakeCopies(std::vector<BlockCopy>& copies);
  // Appends the blocks that were taken since the previous call, if blocks must be zeroed. Targets
  // of copies are not included.
  void TakeBlocksToZero(std::vector<BlockId>& blocks);

 protected:
  // A block whose first part is shared. The block must be copied before the engine writes to it.
  struct SharedTail {
    int64_t index;
    BlockId block;
  };
  struct RequestBlocks {
    std::vector<BlockId> table;
    int64_t num_cached = 0;  // leading blocks that were cached, or skipped permanently
    bool running = false;    // AddHit was called
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
  // Takes blocks until the table has `count` blocks. Appends the taken blocks to `added`; nullptr:
  // no list.
  void GrowTable(RequestBlocks& blocks, int64_t count, std::vector<BlockId>* added);
  // Releases the blocks [first, last) of the table and replaces them by null blocks. Starts with
  // block last - 1, and stops at a null block.
  void ReleaseRange(RequestBlocks& blocks, int64_t first, int64_t last);
  // As ReleaseRange, but skips null blocks. REQUIRES: last <= the length of the table.
  void ReleaseAll(RequestBlocks& blocks, int64_t first, int64_t last);
  // Replaces a shared tail in the table by `copy`, and queues the copy.
  void RedirectSharedTail(RequestBlocks& blocks, const SharedTail& tail, BlockId copy);
  void QueueCopy(BlockCopy copy) { copies_.push_back(copy); }

 private:
  void FillBoundaries(const CacheRequest& request);

  GroupContext context_;
  std::vector<RequestBlocks> requests_;  // by slot
  std::vector<BlockCopy> copies_;
  std::vector<BlockId> to_zero_;
  // Scratch memory; members so that the capacity is kept.
  std::vector<BlockId> released_;
  Bitmap keep_;
  std::vector<int64_t> boundaries_;
};

}  // namespace kvcast::engine
