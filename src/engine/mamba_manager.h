// Mamba and other recurrent layers: a block holds one state, not the keys and values of tokens.
//
// The modes kNone and kAll behave like attention with one state per block. The mode kAlign keeps
// states only where a step ends: the running state moves from block to block, and all other
// positions are null blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/engine/single_type_manager.h"

namespace kvcast::engine {

class MambaManager final : public SingleTypeManager {
 public:
  explicit MambaManager(const GroupContext& context) : SingleTypeManager(context) {}

  int64_t BlocksToAllocate(RequestSlot slot, std::span<const BlockId> hits,
                           const SlotDemand& demand) const override;
  void AllocateNew(RequestSlot slot, const SlotDemand& demand,
                   std::vector<BlockId>& added) override;
  void CacheBlocks(RequestSlot slot, const CacheRequest& request, int64_t tokens) override;
  void RemoveSkipped(RequestSlot slot, int64_t processed_tokens, int64_t prompt_tokens) override;
  void Free(RequestSlot slot, int64_t kept_tokens) override;
  void BeginStep() override { cached_this_step_.clear(); }

 private:
  // The state after the first `tokens` tokens, which end inside a chunk. The cache may keep this
  // state. Its column in the block table is the column before the last column of the chunk.
  struct Checkpoint {
    int64_t column;
    int64_t tokens;
  };
  struct RunningState {
    std::optional<Checkpoint> checkpoint;  // of the current chunk
    bool allocated = false;                // AllocateNew has run for this request
    // The column that held the newest state before the table grew for the latest step. nullopt:
    // there was no state.
    std::optional<int64_t> last_state_column;
    int64_t retired = 0;  // leading columns whose states were released; used from kV033 on
  };

  bool aligned() const { return spec().mamba_mode == MambaMode::kAlign; }
  RunningState& state(RequestSlot slot);
  const RunningState* find_state(RequestSlot slot) const;
  // For the modes kNone and kAll: adds slots for drafts.
  SlotDemand WithSpeculativeBlocks(SlotDemand demand) const;
  int64_t RequiredBlocks(const SlotDemand& demand) const;
  bool WasCachedThisStep(BlockId block) const;
  // The longest prefix of at most `tokens` tokens whose state may be kept. Its length is a multiple
  // of `hash_block_size`.
  int64_t CheckpointBefore(int64_t tokens, int64_t hash_block_size) const;
  std::optional<Checkpoint> CheckpointOf(RequestSlot slot, const SlotDemand& demand) const;
  void CacheCheckpoint(RequestSlot slot, const CacheRequest& request);
  void CachePartialTail(RequestSlot slot, const CacheRequest& request, int64_t tokens);
  void AllocateAligned(RequestSlot slot, int64_t required, bool checkpoint,
                       std::vector<BlockId>& added);
  void MoveSpeculativeBlocks(RequestBlocks& request, size_t old_size, int64_t skipped);
  void CopySharedTail(RequestBlocks& request, bool running, BlockId copy);

  std::vector<RunningState> states_;  // by slot
  // Keys whose states exist only after this step has run. No request of this step can use these
  // states.
  std::vector<BlockKey> cached_this_step_;
};

}  // namespace kvcast::engine
