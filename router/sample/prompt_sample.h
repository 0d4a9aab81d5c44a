// PromptSample: some of the prompts that a worker stores, as paths of content keys.
//
// A prompt is chosen at its first block, or where it leaves another sampled prompt, and followed to
// its end. A prompt is chosen each time that the worker stored an n-th of the blocks that it holds,
// for n sampled prompts. The sample therefore turns over as the cache does. The prompt that grew
// longest ago makes room for a new one.
//
// Memory: a unit takes 9 to 10 bytes: its key, a bit for each group, a byte of the filter, spare
// room. The sample takes 1 / kShare of what the index takes for the worker's blocks. That is 4 %: a
// unit for 24 blocks that four workers hold (10 bytes each), or for 7 that no other worker holds
// (34 bytes each, `kvcast bench memory`). Workers with few blocks take kMinBytes. Of the prompt
// that grows, no more than a fifth of this counts: one of kMaxUnits takes 80 KB beside it, and
// leaves when another one grows.
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

// Of one worker's GPU. Thread-compatible.
class PromptSample {
 public:
  static constexpr size_t kMaxPrompts = 64;
  // The sample turns over once with the cache if it has so many, and slower if it has fewer. Where
  // it would have fewer, short prompts stay.
  static constexpr size_t kEnoughPrompts = static_cast<size_t>(kMinTestedPrompts) + 1;
  static constexpr size_t kMinBytes = size_t{20} << 10;
  static constexpr uint64_t kShare = 25;
  // A longer prompt is cut.
  static constexpr size_t kMaxUnits = 8192;
  // Groups of a higher index are not followed.
  static constexpr uint8_t kMaxGroups = 32;

  struct Store {
    const BlockStored& event;
    const SpanStart& start;
    const StoreContent& content;
    uint8_t group;
    uint64_t held;         // blocks of all groups, with those of the store
    uint64_t index_bytes;  // that the index takes for the worker, about
    int64_t unit;          // tokens per hash
    int64_t lookahead;     // of the names
  };
  // The stores until the next call are of one batch. One prompt of it is chosen at most: the stores
  // of a prompt by all groups come together.
  void BeginBatch() { may_choose_ = wait_ <= 0; }
  // A store on the GPU that was applied.
  void NoteStore(const Store& store, const ContentKeys& keys) {
    if (Wants(store)) Follow(store, keys);
    stored_ += store.event.block_hashes.size();
    wait_ -= static_cast<int64_t>(store.event.block_hashes.size());
  }
  // The GPU's cache is empty, or another engine's.
  void Clear() { *this = PromptSample(); }

  // The one that grew last is the last.
  std::span<const SampledPrompt> prompts() const { return prompts_; }
  int64_t unit() const { return unit_; }
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
  // How a path goes along the sampled prompts.
  struct Going {
    std::optional<size_t> along;   // the prompt that it is a part of, or goes on behind
    std::optional<size_t> leaves;  // the prompt that it leaves last
    size_t shared = 0;             // first units of that prompt that it shares
  };
  void NotePath(const Store& store, const StorePath& path, size_t before, const ContentKeys& keys);
  Going NoteShared(const Store& store, const StorePath& path, size_t before);
  void NoteBlocks(const Store& store, size_t before);
  // The prompt, at its new position.
  SampledPrompt& Grow(size_t which, size_t before, const StorePath& path);
  void Choose(const Store& store, SampledPrompt prompt, const ContentKeys& keys);
  // Tokens before the store's span in units; nullopt: no sampled prompt has them.
  std::optional<size_t> UnitsBefore(const Store& store) const;
  void Trim(const Store& store);
  bool IsOver(const Store& store) const;
  size_t Victim(uint64_t held);
  void AddToFilter(std::span<const ContentKey> contents);

  std::vector<SampledPrompt> prompts_;
  std::vector<uint64_t> filter_;  // of the contents; or empty
  size_t filtered_ = 0;           // contents that were added since it was made
  uint64_t stored_ = 0;           // blocks, so far
  int64_t wait_ = 0;              // blocks to be stored before a prompt is chosen
  bool may_choose_ = true;
  int64_t unit_ = 0;
};

}  // namespace kvcast::router
