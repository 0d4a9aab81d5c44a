// PromptSample: some of the prompts that a worker stores, as paths of content keys.
//
// A sampled prompt is followed from its first block on. Beside every prefix stands which groups
// have removed a block that ends there. Most stores are passed over: one block in 128 is paid for,
// after the first 256.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvcast/content_key.h"
#include "kvcast/event.h"
#include "router/store_content.h"

namespace kvcast::router {

// Of one worker's GPU. Thread-compatible.
class PromptSample {
 public:
  // Prefixes of a generation. A full generation becomes the old one, which does not grow.
  static constexpr size_t kMaxNodes = 8192;
  static constexpr int64_t kFirstCredits = 256;
  static constexpr uint64_t kBlocksACredit = 128;

  // A prefix, in steps of the hash unit where the content inside blocks is known.
  struct Node {
    ContentKey content = kUnnamed;
    uint32_t parent = 0;    // position; kRoot: none
    uint32_t end = 0;       // tokens of the prefix
    uint32_t child = 0;     // position of the first prefix behind it; kRoot: none
    bool repeated = false;  // asked for again: stored twice by a group, or continued in two ways
    bool cut = false;       // the blocks stored behind it were not followed
    uint64_t stored = 0;    // groups, by bit
    uint64_t removed = 0;   // groups whose last copy was removed, now or before
  };
  static constexpr uint32_t kRoot = ~uint32_t{0};
  // A sampled prompt's first prefix: its tokens, and its salt and adapter.
  struct Start {
    uint32_t node = 0;
    ContentKey tokens = kUnnamed;  // without salt and adapter
    ContentKey scope = kUnnamed;   // salt and adapter
  };
  struct Generation {
    std::vector<Node> nodes;
    std::vector<Start> starts;
    absl::flat_hash_map<ContentKey, uint32_t> position_of;
  };

  struct Store {
    const BlockStored& event;
    const SpanStart& start;
    const StoreContent& content;
    uint8_t group;
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
    if (wanted && store.content.dense && !store.content.contents.empty()) Follow(store, keys);
  }
  // A group has no copy of the block any more.
  void NoteRemoved(ContentKey content, uint8_t group) {
    if (MayHave(content)) MarkRemoved(content, group);
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
  void FollowBlocks(const Store& store, const ContentKeys& keys, uint32_t at);
  uint32_t Step(uint32_t at, ContentKey content, uint32_t tokens, uint8_t group);
  void NoteStart(uint32_t node, const Store& store, const ContentKeys& keys);
  void MarkRemoved(ContentKey content, uint8_t group);
  void AddToFilter(ContentKey content);
  void MakeFilter(size_t bits);
  void Rotate();

  std::array<Generation, 2> generations_;
  std::vector<uint64_t> filter_;     // of the contents of both; a power of two, or empty
  std::vector<ContentKey> inside_;   // a block's contents
  int64_t credits_ = kFirstCredits;  // blocks that may be followed
  uint64_t fraction_ = 0;            // blocks that gave no credit yet
  int64_t unit_ = 0;
};

}  // namespace kvcast::router
