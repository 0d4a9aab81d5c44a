// SampledPrompt: one prompt that a worker stores. For each hash unit it has the content key of the
// prefix that ends there, and the groups that stored a block that ends there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/router/content_key.h"

namespace kvcast::router {

// Thread-compatible value. It takes 8 bytes per unit, and one bit per unit for each group up to the
// highest group that stored. When it grows, it may reserve an eighth more than it needs.
class SampledPrompt {
 public:
  // The common part of a path (the keys of a store, see StorePath) and a prompt.
  struct Agreement {
    size_t units = 0;      // units of the path up to the last common key
    bool differs = false;  // after `units`, path and prompt differ
  };

  size_t units() const { return keys_.size(); }
  // By unit. kUnnamed: the key is not known.
  std::span<const ContentKey> keys() const { return keys_; }
  // True: the key names the first `units` units of the prompt.
  bool HasPrefix(size_t units, ContentKey key) const {
    return units > 0 && units <= keys_.size() && keys_[units - 1] == key;
  }
  // Compares with a path that begins after the first `before` units. REQUIRES: before <= units().
  Agreement Compare(size_t before, std::span<const ContentKey> path) const;
  // Adds the units of `path` that the prompt does not have, and the keys of units whose key is not
  // known. True: at least one unit or key was added. REQUIRES: before <= units(), and `path` does
  // not differ from the prompt.
  bool Extend(size_t before, std::span<const ContentKey> path);
  // Returns a copy of the first `units` units, for a prompt that diverges there.
  SampledPrompt Branch(size_t units) const;

  // Records that the group stored a block that ends with the unit. True: the group had already
  // stored such a block.
  bool NoteStored(size_t unit, uint8_t group);
  bool WasStored(size_t unit, size_t group) const {
    return group < groups_ && unit < keys_.size() &&
           (stored_[unit / 64 * groups_ + group] >> unit % 64 & 1) != 0;
  }

  // Records that another request used the first `units` units. The request that stored the prompt
  // does not count.
  void NoteAskedFor(size_t units) {
    if (units > asked_for_) asked_for_ = units;
    asked_for_lately_ = true;
  }
  // In units. 0: no other request used the prompt.
  size_t asked_for() const { return asked_for_; }
  // True: another request used the prompt since the previous call.
  bool TakeAskedForLately() {
    const bool lately = asked_for_lately_;
    asked_for_lately_ = false;
    return lately;
  }

  // Records that the worker stored blocks after the end of the prompt. The prompt does not have
  // these blocks.
  void Cut() { cut_ = true; }
  bool cut() const { return cut_; }

  // The time when the prompt was chosen or last grew. The unit of time is one block that the worker
  // stored.
  void SetGrownAt(uint64_t stored) { grown_at_ = stored; }
  uint64_t grown_at() const { return grown_at_; }

  // The key of the first unit's tokens without salt and adapter, and the key of the salt and
  // adapter.
  void SetStart(ContentKey tokens, ContentKey scope) {
    tokens_ = tokens;
    scope_ = scope;
  }
  ContentKey tokens() const { return tokens_; }
  ContentKey scope() const { return scope_; }

  size_t Bytes() const {
    return sizeof(*this) + sizeof(uint64_t) * (keys_.capacity() + stored_.capacity());
  }

 private:
  void SetGroups(size_t groups);

  std::vector<ContentKey> keys_;
  std::vector<uint64_t> stored_;  // one word for each 64 units and group; one bit per unit
  size_t groups_ = 0;
  size_t asked_for_ = 0;
  uint64_t grown_at_ = 0;
  ContentKey tokens_ = kUnnamed;
  ContentKey scope_ = kUnnamed;
  bool asked_for_lately_ = false;
  bool cut_ = false;
};

}  // namespace kvcast::router
