// PromptSample: some of the prompts that a worker stores, as paths of content keys.
//
// A sampled prompt is followed from its first block on. Beside every prefix stands which groups
// have removed a block that ends there. Most stores are passed over: one block in 128 is paid for,
// after the first 256. A prefix takes 30 bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/router/content_key.h"
#include "router/names/store_content.h"

namespace kvcast::router {

// Of one worker's GPU. Thread-compatible.
class PromptSample {
 public:
  // Prefixes of a generation: one for kBlocksANode blocks that a group holds when the generation
  // begins, within these bounds. A full generation becomes the old one, which does not grow.
  static constexpr size_t kMinNodes = 768;
  static constexpr size_t kMaxNodes = 8192;
  static constexpr uint64_t kBlocksANode = 128;
  // Groups of a higher index are not followed.
  static constexpr uint8_t kMaxGroups = 32;
  static constexpr int64_t kFirstCredits = 256;
  static constexpr uint64_t kBlocksACredit = 128;

  // A prefix, in steps of the hash unit where the content inside blocks is known.
  struct Node {
    ContentKey content = kUnnamed;
    uint32_t stored = 0;    // groups, by bit
    uint32_t removed = 0;   // groups whose last copy was removed, now or before
    uint32_t end : 30 = 0;  // tokens of the prefix
    uint32_t repeated : 1 =
        0;                 // asked for again: stored twice by a group, or continued in two ways
    uint32_t cut : 1 = 0;  // the blocks stored behind it were not followed
    uint16_t parent = 0;   // position; kRoot: none
    uint16_t child = 0;    // position of the first prefix behind it; kRoot: none
  };
  static_assert(sizeof(Node) == 24);
  static constexpr uint16_t kRoot = ~uint16_t{0};
  static_assert(kMaxNodes < kRoot);
  // A sampled prompt's first prefix: its tokens, and its salt and adapter.
  struct Start {
    uint16_t node = 0;
    ContentKey tokens = kUnnamed;  // without salt and adapter
    ContentKey scope = kUnnamed;   // salt and adapter
  };
  struct Generation {
    std::vector<Node> nodes;
    std::vector<Start> starts;
    size_t max_nodes = 0;
    // Positions by content: open addressing, half full at most; kRoot: free.
    std::vector<uint16_t> table;

    bool full() const { return nodes.size() == max_nodes; }
    // The slot of the content, or the free slot where it belongs. REQUIRES: max_nodes > 0.
    size_t SlotOf(ContentKey content) const;
    // kRoot: not there.
    uint16_t Find(ContentKey content) const {
      return nodes.empty() ? kRoot : table[SlotOf(content)];
    }
  };

  struct Store {
    const BlockStored& event;
    const SpanStart& start;
    const StoreContent& content;
    uint8_t group;
    uint64_t held;      // blocks that a group holds, about
    int64_t unit;       // tokens per hash
    int64_t lookahead;  // of the names
  };
  // Whether the removal of a block that this store names may have to be noted. (So that others cost
  // nothing.)
  bool Wants(const SpanStart& start, const StoreContent& content) const {
    if (start.at_root ? credits_ > 0 : MayHave(start.parent)) return true;
    return !content.contents.empty() && MayHave(content.contents.back());
  }
  // A store on the GPU that was applied.
  void NoteStore(const Store& store, const ContentKeys& keys) {
    fraction_ += store.event.block_hashes.size();
    credits_ += static_cast<int64_t>(fraction_ / kBlocksACredit);
    fraction_ %= kBlocksACredit;
    const bool wanted = store.start.at_root ? credits_ > 0 : MayHave(store.start.parent);
    if (wanted && store.group < kMaxGroups && store.content.dense &&
        !store.content.contents.empty()) {
      Follow(store, keys);
    }
  }
  // A group has no copy of the block any more.
  void NoteRemoved(ContentKey content, uint8_t group) {
    if (group < kMaxGroups && MayHave(content)) MarkRemoved(content, group);
  }
  // The GPU's cache is empty, or another engine's.
  void Clear() { *this = PromptSample(); }

  // The old generation and the present one.
  const std::array<Generation, 2>& generations() const { return generations_; }

 private:
  // Bits of the filter: at first, and of each prefix in it at least.
  static constexpr size_t kFilterBits = size_t{1} << 14;
  static constexpr size_t kFilterBitsANode = 16;

  size_t BitOf(ContentKey content) const {
    return (content ^ content >> 32) & (filter_.size() * 64 - 1);
  }
  bool MayHave(ContentKey content) const {
    if (filter_.empty()) return false;
    const size_t bit = BitOf(content);
    return (filter_[bit / 64] >> bit % 64 & 1) != 0;
  }
  Generation& present() { return generations_[1]; }
  void Follow(const Store& store, const ContentKeys& keys);
  void FollowBlocks(const Store& store, const ContentKeys& keys, uint16_t at);
  // The prefix behind `at`; kRoot: there is no room for it.
  uint16_t Step(uint16_t at, ContentKey content, uint32_t tokens, uint8_t group);
  void NoteStart(uint16_t node, const Store& store, const ContentKeys& keys);
  void MarkRemoved(ContentKey content, uint8_t group);
  void AddToFilter(ContentKey content);
  void MakeFilter(size_t bits);
  void Rotate();
  void Open(uint64_t held);

  std::array<Generation, 2> generations_;
  std::vector<uint64_t> filter_;     // of the contents of both; a power of two, or empty
  std::vector<ContentKey> inside_;   // a block's contents
  int64_t credits_ = kFirstCredits;  // blocks that may be followed
  uint64_t fraction_ = 0;            // blocks that gave no credit yet
  int64_t unit_ = 0;
};

}  // namespace kvcast::router
