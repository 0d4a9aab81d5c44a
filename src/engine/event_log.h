// EventLog: the events of one block pool that are not announced yet, in order of occurrence.
//
// Removals are stored as digests until they are read, because an engine evicts thousands of blocks
// per step. A separate Event for each removal would cost more time than all other work of the
// cache. In steady operation, no memory is allocated per block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/hash/block_hash.h"
#include "src/engine/block_key.h"

namespace kvcast::engine {

// A span of a request's tokens. The blocks of the span become reusable.
struct StoredSpan {
  const CacheRequest& request;
  GroupIdx group;
  int64_t block_size;
  int64_t begin_token;
  int64_t end_token;
  const Digest* parent;                    // nullptr: the span starts at the root
  std::span<const int64_t> block_begins;   // first token of each announced block
  std::span<const Digest* const> digests;  // digest of each announced block
};

class EventLog {
 public:
  // `lookahead`: the hash of a block also covers this number of tokens after it.
  EventLog(const EventOptions& options, std::string medium, int64_t lookahead = 0);

  bool enabled() const { return enabled_; }
  // The number of events since the log was last emptied.
  size_t size() const { return num_events_; }

  // `token_offset`: BlockStored::token_offset of the event.
  void AddStored(const StoredSpan& span, std::optional<int64_t> token_offset = std::nullopt);
  // The same in two steps: Describe makes the event of a span, and AddStored adds the event later.
  void Describe(const StoredSpan& span, std::optional<int64_t> token_offset,
                BlockStored& event) const;
  void AddStored(const BlockStored& event);
  void AddRemoved(const BlockKey& key);
  void AddCleared();

  // Calls `visit` with every BlockStored&, BlockRemoved& and AllBlocksCleared& in order, and
  // empties the log. A BlockRemoved has one or more hashes; each hash counts as one event. The
  // event object is reused for the next event, so `visit` must copy the parts that it keeps.
  // `visit` must not change any field except spec kind and window, which the pool does not set.
  template <typename Visit>
  void Drain(const Visit& visit);

 private:
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  // kStored: the next entry of stored_. kRemoved: the next `count` entries of removed_, all of one
  // group.
  struct Item {
    Kind kind;
    GroupIdx group;
    uint32_t count;
  };

  BlockStored& NewStored(GroupIdx group);
  void DescribeLookahead(const StoredSpan& span, BlockStored& event) const;
  void ReadRemoved(const Item& item, size_t first);
  void Clear();

  bool enabled_;
  EventHashForm form_;
  std::string medium_;
  bool name_cleared_tier_;
  int64_t lookahead_;
  std::vector<Item> items_;
  std::vector<BlockStored> stored_;  // entries from num_stored_ on are kept for their capacity
  size_t num_stored_ = 0;
  std::vector<Digest> removed_;
  BlockRemoved removed_event_;
  size_t num_events_ = 0;
};

template <typename Visit>
void EventLog::Drain(const Visit& visit) {
  size_t stored = 0;
  size_t removed = 0;
  for (const Item& item : items_) {
    switch (item.kind) {
      case Kind::kStored:
        visit(stored_[stored++]);
        break;
      case Kind::kRemoved:
        ReadRemoved(item, removed);
        removed += item.count;
        visit(removed_event_);
        break;
      case Kind::kCleared: {
        AllBlocksCleared event;
        if (name_cleared_tier_) event.medium = medium_;
        visit(event);
        break;
      }
    }
  }
  Clear();
}

// Appends to `events` an event that Drain visits. A BlockRemoved becomes one event per hash.
template <typename EventType>
void AppendEvents(const EventType& visited, std::vector<Event>& events) {
  events.emplace_back(visited);
}
inline void AppendEvents(const BlockRemoved& visited, std::vector<Event>& events) {
  for (const BlockHash& hash : visited.block_hashes) {
    BlockRemoved& event = events.emplace_back().emplace<BlockRemoved>();
    event.block_hashes.push_back(hash);
    event.medium = visited.medium;
    event.group_idx = visited.group_idx;
  }
}

}  // namespace kvcast::engine
