// PromptSample: some of the prompts that a worker stores, as paths of content keys. A unit is
// hash_block_size tokens. A path has one key for each unit.
//
// A prompt is chosen at its first block, or at the unit where it diverges from another sampled
// prompt. The prompt is followed to its end. With n sampled prompts, a new prompt is chosen each
// time the worker has stored 1/n of the number of blocks that it holds. So the sample is replaced
// in the same time as the cache. The prompt that has not grown for the longest time is removed for
// a new prompt. A prompt stays if another request used it since it was last examined for removal.
// See also kEnoughPrompts.
//
// Memory: one unit takes 9 to 10 bytes: its key, one bit for each group, one byte of the filter,
// and spare capacity. The sample takes at most 1 / kShare (4 %) of the index memory for the
// worker's blocks. If four workers hold each block, a block takes 10 bytes, and there is one unit
// for 24 blocks. If no other worker holds the blocks, a block takes 34 bytes, and there is one unit
// for 7 blocks (`kvcast bench memory`). The sample of a worker with few blocks may take
// kMinBytes. For the growing prompt, at most one fifth of the limit is counted. The growing prompt
// can therefore exceed the limit: a prompt of kMaxUnits takes 80 KB. It is then removed when
// another prompt grows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/router/content_key.h"
#include "kvcast/router/reuse_diagnosis.h"
#include "router/names/store_content.h"
#include "router/sample/sampled_prompt.h"
#include "router/sample/store_path.h"

namespace kvcast::router {

// The sample for one worker's GPU. Thread-compatible.
class PromptSample {
 public:
  static constexpr size_t kMaxPrompts = 64;
  // One more than the number of prompts that the diagnosis needs. With fewer prompts, a new prompt
  // is chosen as if there were this number of prompts. If memory allows fewer prompts than this,
  // the longest prompt is removed, so that short prompts stay. Exception: a prompt that last grew
  // before the oldest block of the cache was stored is removed first.
  static constexpr size_t kEnoughPrompts = static_cast<size_t>(kMinTestedPrompts) + 1;
  static constexpr size_t kMinBytes = size_t{20} << 10;
  static constexpr uint64_t kShare = 25;
  // A longer prompt is cut at this number of units.
  static constexpr size_t kMaxUnits = 8192;
  // Groups from this group_idx on are not followed.
  static constexpr uint8_t kMaxGroups = 32;

  struct Store {
    const BlockStored& event;
    const SpanStart& start;
    const StoreContent& content;
    uint8_t group;
    uint64_t held;            // blocks of all groups, including those of the store
    uint64_t index_bytes;     // approximate memory of the index for the worker
    int64_t hash_block_size;  // tokens per hash
    int64_t lookahead;        // lookahead of the content keys, in tokens
  };
  // Must be called before the stores of a batch. At most one prompt per batch is chosen, because
  // the stores of a prompt by all groups arrive together.
  void BeginBatch() { may_choose_ = wait_ <= 0; }
  // Must be called for each applied store on the GPU.
  void NoteStore(const Store& store, const ContentKeys& keys) {
    if (Wants(store)) Follow(store, keys);
    stored_ += store.event.block_hashes.size();
    wait_ -= static_cast<int64_t>(store.event.block_hashes.size());
  }
  // Must be called when the GPU's cache was cleared, or when the engine was replaced.
  void Clear() { *this = PromptSample(); }

  // The prompts. The prompt that grew last is at the end.
  std::span<const SampledPrompt> prompts() const { return prompts_; }
  int64_t hash_block_size() const { return hash_block_size_; }
  size_t Bytes() const;

 private:
  static constexpr size_t kMinFilterWords = 16;

  bool Wants(const Store& store) const {
    if (store.group >= kMaxGroups || store.content.contents.empty()) return false;
    if (!store.start.at_root) return MayHave(store.start.parent);
    return may_choose_ || MayHave(store.content.contents.front());
  }
  size_t BitOf(ContentKey content) const {
    return ((content ^ content >> 32) & 0xFFFFFFFF) * (filter_.size() * 64) >> 32;
  }
  bool MayHave(ContentKey content) const {
    if (filter_.empty()) return false;
    const size_t bit = BitOf(content);
    return (filter_[bit / 64] >> bit % 64 & 1) != 0;
  }
  void Follow(const Store& store, const ContentKeys& keys);
  // The relation of a path to the sampled prompts. A path diverges from a prompt at the first unit
  // where their keys differ.
  struct PathRelation {
    std::optional<size_t> follows;  // the prompt that contains the path, or that the path continues
    // Of the prompts from which the path diverges, the prompt with the most shared units.
    std::optional<size_t> diverges_from;
    size_t shared = 0;  // number of leading units that the path shares with `diverges_from`
  };
  void NotePath(const Store& store, const StorePath& path, size_t before, const ContentKeys& keys);
  PathRelation NoteShared(const Store& store, const StorePath& path, size_t before);
  void NoteBlocks(const Store& store, size_t before);
  // Returns the prompt at its new position.
  SampledPrompt& Grow(size_t which, size_t before, const StorePath& path);
  void Choose(const Store& store, SampledPrompt prompt, const ContentKeys& keys);
  // The number of units before the span of the store. nullopt: no sampled prompt has these units.
  std::optional<size_t> UnitsBefore(const Store& store) const;
  void Trim(const Store& store);
  bool IsOver(const Store& store) const;
  size_t Victim(uint64_t held);
  void AddToFilter(std::span<const ContentKey> contents);

  std::vector<SampledPrompt> prompts_;
  std::vector<uint64_t> filter_;  // one bit for each content; may be empty
  size_t filtered_ = 0;           // contents that were added since the filter was made
  uint64_t stored_ = 0;           // number of blocks stored so far
  int64_t wait_ = 0;              // number of blocks to store before a prompt is chosen
  bool may_choose_ = true;
  int64_t hash_block_size_ = 0;
};

}  // namespace kvcast::router
