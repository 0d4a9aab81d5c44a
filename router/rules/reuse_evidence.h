// ReuseEvidence: collects from a stream how its engine reuses blocks.
//
// An engine that drops a block for a draft head computes the last block of every hit again, and
// stores it a second time. An engine that ignores short hits computes all blocks of such a hit
// again, and stores them a second time. A request stores at most one child of a block. If a block
// has more children than it has had copies, then one child belongs to a request that did not store
// the block. That request hit the prefix up to the block. If no earlier block begins like this
// child, the engine dropped no block, and no unannounced group limited the hit.
//
// The stream cannot show that an engine drops a block, because two requests that compute the same
// prompt at the same time look the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "src/base/byte_fields.h"

namespace kvcast::router {

// The evidence of one source. Blocks are given as values that are well mixed in all bits, and equal
// only for equal blocks. Thread-compatible.
class ReuseEvidence {
 public:
  // Maximum numbers of remembered blocks with more than one copy, and of remembered units. Above
  // these numbers, the collection stops.
  static constexpr size_t kMaxCopied = 4096;
  static constexpr size_t kMaxUnits = 1 << 18;
  // Maximum numbers of remembered parents, of remembered children per parent, and of calls of
  // NoteChild until the collection stops. The tables take 36 KiB. Each table is allocated at its
  // first use.
  static constexpr size_t kParents = 1024;
  static constexpr size_t kChildren = 3;
  static constexpr uint32_t kBlocks = uint32_t{1} << 16;

  // False: the collection was stopped (Close).
  bool open() const { return !closed_; }
  // Stops the collection, because nothing more can be shown, or because everything was shown.
  void Close() {
    closed_ = true;
    children_.reset();
    removed_.reset();
    copied_ = {};
    units_ = {};
    batch_units_ = {};
    waiting_units_ = {};
    new_blocks_ = {};
  }

  struct Child {
    uint64_t parent = 0;
    uint8_t group = 0;
    uint64_t block = 0;
    // Tokens of the prefix that ends with the parent; 0: unknown.
    uint32_t parent_end = 0;
    bool starts = false;  // the child is the first block of its store
    bool is_new = false;  // behind the parent, the worker held no block that begins like the child
    // It is known whether the engine drops a block for a draft head.
    bool drop_is_known = false;
  };
  // Notes that a group stored a child behind its parent block. True: this shows a hit that ended
  // with the parent. REQUIRES: open().
  bool NoteChild(const Child& child) {
    if (++blocks_ == kBlocks) Close();
    if (closed_ || (child.starts && !child.is_new && !child.drop_is_known)) return false;
    if (!MayShow(child.parent_end)) return false;
    if (!children_) children_ = std::make_unique<std::array<Children, kParents>>();
    const uint64_t parent = Of(child.parent, child.group);
    Children& known = At(parent);
    if (known.parent != parent || RemovedAt(parent) > known.since) {
      known = {.parent = parent, .since = removals_};
    }
    // A child that is stored again may be the block that the engine dropped from a longer hit. It
    // counts only if it is known whether the engine drops a block.
    const auto block = static_cast<uint32_t>(child.block);
    const auto end = known.blocks.begin() + std::min<uint32_t>(known.count, kChildren);
    const bool again = std::find(known.blocks.begin(), end, block) != end;
    if (again && !child.drop_is_known) return false;
    if (known.count < kChildren) known.blocks[known.count] = block;
    known.count += known.count < kChildren || child.drop_is_known;
    const auto copied = copied_.find(parent);
    const size_t copies = copied == copied_.end() ? 1 : copied->second;
    return child.starts && known.count > copies;
  }
  // Notes that a group stored a block that it held already.
  void NoteCopy(uint64_t block, uint8_t group) {
    if (closed_) return;
    size_t& copies = copied_[Of(block, group)];
    copies = copies == 0 ? 2 : copies + 1;
    if (copied_.size() > kMaxCopied) Close();
  }
  // Notes that a group has no copy of the block any more.
  void NoteRemoved(uint64_t block, uint8_t group) {
    const uint64_t parent = Of(block, group);
    if (!copied_.empty()) copied_.erase(parent);
    if (!removed_) removed_ = std::make_unique<std::array<uint32_t, kParents>>();
    (*removed_)[parent % kParents] = ++removals_;
  }
  // True: the group has not removed the block. False: the group may have removed the block. Even a
  // block with a new child may have been removed before, because engines forget blocks whose load
  // failed.
  bool WasKept(uint64_t block, uint8_t group) const { return RemovedAt(Of(block, group)) == 0; }
  // Must be called when the groups have lost all blocks. Forgets the blocks and the units, and
  // opens the collection again. Keeps shortest_hit and hit_step.
  void ForgetBlocks() {
    const uint32_t shortest = shortest_;
    const uint32_t least = least_;
    const uint32_t step = step_;
    *this = ReuseEvidence();
    step_ = step;
    if (shortest > 0) NoteHit(shortest, least);
  }

  // Notes the tokens of one unit (the least length at which a hit may end) of a block that the
  // group stored. True: the tokens are new, because no earlier batch had them, and the group did
  // not store them earlier in this batch. Another group may have stored them in this batch: the
  // blocks of a request come group by group.
  bool NoteUnit(uint64_t unit, uint8_t group) {
    if (closed_) return false;
    const bool first_of_group = batch_units_.insert(Of(unit, group)).second;
    if (units_.contains(unit)) return false;
    waiting_units_.push_back(unit);
    return first_of_group;
  }
  // The following stores belong to a new batch.
  void BeginBatch() {
    if (closed_) return;
    units_.insert(waiting_units_.begin(), waiting_units_.end());
    waiting_units_.clear();
    batch_units_.clear();
    if (units_.size() > kMaxUnits) Close();
  }
  // Marks a block that was new to the worker when it was stored.
  void NoteNewBlock(uint64_t block) { new_blocks_.insert(block); }
  bool WasNew(uint64_t block) const { return new_blocks_.contains(block); }
  // Sets the length of units in tokens. If the length changes, calls ForgetBlocks.
  void SetHashBlockSize(int64_t size) {
    if (size == hash_block_size_) return;
    ForgetBlocks();
    hash_block_size_ = size;
  }

  // Notes a hit of `end` tokens. `least`: the shortest possible hit.
  void NoteHit(uint32_t end, uint32_t least) {
    shortest_ = shortest_ == 0 ? end : std::min(shortest_, end);
    step_ = std::gcd(step_, end);
    least_ = least;
    if (shortest_ <= least) Close();
  }
  // The shortest hit that was shown; 0: none.
  uint32_t shortest_hit() const { return shortest_; }
  // The greatest common divisor of the lengths of the hits that were shown; 0: none. A hit ends
  // where blocks of all groups end, also of groups that announce no blocks. So the block sizes of
  // all groups divide this number.
  uint32_t hit_step() const { return step_; }
  // Saves no blocks and no units. After Restore, the collection is closed until ForgetBlocks,
  // because the blocks and the units of the past are not known.
  void Save(FieldWriter& to) const {
    to.Int(shortest_);
    to.Int(step_);
    to.Int(least_);
    to.Int(static_cast<uint64_t>(hash_block_size_));
  }
  void Restore(FieldReader& from) {
    shortest_ = static_cast<uint32_t>(from.Int(~uint32_t{0}));
    step_ = static_cast<uint32_t>(from.Int(~uint32_t{0}));
    least_ = static_cast<uint32_t>(from.Int(~uint32_t{0}));
    hash_block_size_ = static_cast<int64_t>(from.Int(~uint32_t{0}));
    if (step_ == 0 || shortest_ % step_ != 0) shortest_ = step_ = 0;
    Close();
  }
  // True if a hit of `end` tokens would show something new. 0: the end is unknown.
  bool MayShow(uint32_t end) const {
    return shortest_ == 0 || (end > 0 && (end < shortest_ || end % step_ != 0));
  }

 private:
  struct Children {
    uint64_t parent = 0;
    uint32_t since = 0;  // number of removals before the first child
    uint32_t count = 0;
    // The low halves of the values. Two children with equal low halves count as one child. The
    // evidence may then be too small, but it is not wrong.
    std::array<uint32_t, kChildren> blocks{};
  };
  static uint64_t Of(uint64_t block, uint8_t group) {
    return block ^ uint64_t { group } * 0x9E3779B97F4A7C15;
  }
  // Number of the latest removal that may have removed the block; 0: none.
  uint32_t RemovedAt(uint64_t parent) const {
    return removed_ ? (*removed_)[parent % kParents] : 0;
  }
  Children& At(uint64_t parent) { return (*children_)[parent % kParents]; }

  std::unique_ptr<std::array<Children, kParents>> children_;
  std::unique_ptr<std::array<uint32_t, kParents>> removed_;  // by block: its latest removal
  uint32_t removals_ = 0;
  uint32_t blocks_ = 0;
  absl::flat_hash_map<uint64_t, size_t> copied_;  // number of copies that were stored, by block
  absl::flat_hash_set<uint64_t> units_;           // of earlier batches
  absl::flat_hash_set<uint64_t> batch_units_;     // of this batch, by group
  std::vector<uint64_t> waiting_units_;           // of this batch
  absl::flat_hash_set<uint64_t> new_blocks_;      // see NoteNewBlock
  int64_t hash_block_size_ = 0;
  uint32_t shortest_ = 0;
  uint32_t step_ = 0;
  uint32_t least_ = 0;
  bool closed_ = false;
};

}  // namespace kvcast::router
