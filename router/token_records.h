// TokenRecords: what one source's engine hashes are known to name, and where they are held.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "kvcast/block_hash_value.h"
#include "kvcast/prefix_index.h"
#include "kvcast/token_keys.h"
#include "router/content_chain.h"
#include "router/seeded_hash.h"

namespace kvcast::router {

using RecordId = uint32_t;
inline constexpr RecordId kNoRecord = ~RecordId{0};

// A record that may have been forgotten since: its id is then used by another generation.
struct RecordRef {
  RecordId id = kNoRecord;
  uint32_t generation = 0;
};

struct HeldCopies {
  uint32_t copies = 0;
  Tier tier = Tier::kGpu;
  uint8_t group = 0;
};

struct TokenRecord {
  enum class State : uint8_t { kUnresolved, kResolved, kHidden };
  // Where the prefix is known further back.
  enum class Link : uint8_t {
    kNone,    // nowhere, or at the root
    kParent,  // `link` is the block before this one
    kInside,  // this prefix ends inside the block of `link`
  };

  BlockHash hash;
  State state = State::kUnresolved;
  Unresolved reason = Unresolved::kNoTokens;  // unless resolved
  Link link_kind = Link::kNone;
  ContentState key = 0;  // resolved: the prefix's name
  bool by_rule = false;  // placed by the sparse rule alone
  int64_t position = 0;  // resolved: tokens of the prefix
  int64_t span = 0;      // resolved: tokens of the block that `inner` and a kParent link are about
  RecordRef link;
  // States inside the block, every span / (inner.size() + 1) tokens; only where some group's
  // blocks are smaller.
  std::vector<ContentState> inner;
  absl::InlinedVector<HeldCopies, 2> held;

  bool resolved() const { return state == State::kResolved; }
  HeldCopies* FindHeld(Tier tier, uint8_t group);

 private:
  friend class TokenRecords;
  uint32_t generation = 0;
  uint32_t pins = 0;
  RecordId origin = kNoRecord;
  RecordId first_child = kNoRecord;  // those whose origin this is
  RecordId next_child = kNoRecord;   // of the same origin
  RecordId previous_child = kNoRecord;
  RecordId older = kNoRecord;  // neighbours among the idle
  RecordId newer = kNoRecord;
  bool idle = false;
  bool alive = false;
};

// Ids stay valid while the record is held somewhere or pinned. Thread-compatible.
class TokenRecords {
 public:
  // At most `max` records, of which at most `idle_max` that nothing holds or pins. `forget` is told
  // of a record that leaves for want of room.
  TokenRecords(size_t max, size_t idle_max, std::function<void(const TokenRecord&)> forget);
  TokenRecords(const TokenRecords&) = delete;
  TokenRecords& operator=(const TokenRecords&) = delete;

  RecordId Find(const BlockHash& hash) const;
  // The hash's record, pinned; kNoRecord if all the room is in use.
  RecordId Pin(const BlockHash& hash);
  void PinAgain(RecordId id) { ++slab_[id].pins; }
  // Undoes one Pin. A record that nothing pins or holds may leave from now on.
  void Unpin(RecordId id);
  // To be called when `held` of an unpinned record became empty.
  void Settle(RecordId id);

  // What the content of `id` was learned from, if not from the root. Set once, when it is learned,
  // so that these have no cycles; links may, because a better one replaces them. What was learned
  // from a record that is forgotten rests on that one's origin.
  void SetOrigin(RecordId id, RecordId origin);
  // Calls `visit(id)` for every record whose origin is `id`; it may not change origins.
  template <typename Visit>
  void ForEachChild(RecordId id, Visit visit) const {
    for (RecordId child = slab_[id].first_child; child != kNoRecord;) {
      visit(child);
      child = slab_[child].next_child;
    }
  }

  TokenRecord& at(RecordId id) { return slab_[id]; }
  const TokenRecord& at(RecordId id) const { return slab_[id]; }
  RecordRef RefTo(RecordId id) const { return {id, slab_[id].generation}; }
  // nullptr: none, or forgotten since.
  const TokenRecord* Get(const RecordRef& ref) const;

  size_t size() const { return index_.size(); }
  uint64_t forgotten() const { return forgotten_; }
  // Calls `visit(id, record)` for each.
  template <typename Visit>
  void ForEach(Visit visit) {
    for (RecordId id = 0; id < slab_.size(); ++id) {
      if (slab_[id].alive) visit(id, slab_[id]);
    }
  }
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (RecordId id = 0; id < slab_.size(); ++id) {
      if (slab_[id].alive) visit(id, slab_[id]);
    }
  }

 private:
  struct Hash {
    using is_transparent = void;
    const std::vector<TokenRecord>* slab;
    size_t operator()(RecordId id) const { return (*this)((*slab)[id].hash); }
    size_t operator()(const BlockHash& hash) const { return SeededHash{ProcessSeed()}(hash); }
  };
  struct Equal {
    using is_transparent = void;
    const std::vector<TokenRecord>* slab;
    bool operator()(RecordId a, RecordId b) const { return a == b; }
    bool operator()(RecordId a, const BlockHash& b) const { return (*slab)[a].hash == b; }
    bool operator()(const BlockHash& a, RecordId b) const { return (*slab)[b].hash == a; }
  };

  void LeaveOrigin(RecordId id);
  void LinkIdle(RecordId id);
  void UnlinkIdle(RecordId id);
  bool ForgetOldest();

  size_t max_;
  size_t idle_max_;
  size_t idle_ = 0;
  std::function<void(const TokenRecord&)> forget_;
  std::vector<TokenRecord> slab_;
  std::vector<RecordId> free_;
  absl::flat_hash_set<RecordId, Hash, Equal> index_;
  RecordId oldest_ = kNoRecord;
  RecordId newest_ = kNoRecord;
  uint64_t forgotten_ = 0;
};

}  // namespace kvcast::router
