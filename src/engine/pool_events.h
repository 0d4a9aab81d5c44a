// PoolEvents: the events of one block pool, in order of occurrence.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/cache_manager.h"
#include "kvcast/event.h"
#include "src/engine/block_key.h"

namespace kvcast::engine {

// A token span of a request whose blocks become reusable.
struct StoredSpan {
  const CacheRequest& request;
  GroupIdx group;
  int64_t block_size;
  int64_t begin_token;
  int64_t end_token;
  const Digest* parent;                    // nullptr: the span starts at the root
  std::span<const int64_t> block_begins;   // first token of each announced block
  std::span<const Digest* const> digests;  // of each announced block
};

class PoolEvents {
 public:
  PoolEvents(bool enabled, EventHashForm form, std::string medium)
      : enabled_(enabled), form_(form), medium_(std::move(medium)) {}

  bool enabled() const { return enabled_; }

  void AddStored(const StoredSpan& span);
  void AddRemoved(const BlockKey& key);
  void AddCleared();

  // The events since the last call. They carry no spec kind or window: the pool does not know.
  std::vector<Event> Take();

 private:
  bool enabled_;
  EventHashForm form_;
  std::string medium_;
  std::vector<Event> events_;
};

}  // namespace kvcast::engine
