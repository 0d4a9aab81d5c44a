// SampledPrompt: one prompt that a worker stores, as the content keys of its prefixes in steps of
// the hash unit, and the groups that stored a block which ends there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/router/content_key.h"

namespace kvcast::router {

// Thread-compatible value. It takes 8 bytes a unit, and a bit a unit for each group up to the
// highest that stored; an eighth of both is spare.
class SampledPrompt {
 public:
  // How far a path goes along a prompt.
  struct Agreement {
    size_t units = 0;      // of the path, up to the last prefix that both know
    bool differs = false;  // both go on, in two ways
  };

  size_t units() const { return keys_.size(); }
  // By unit; kUnnamed where not known.
  std::span<const ContentKey> keys() const { return keys_; }
  // Whether the key names its first `units` units.
  bool HasPrefix(size_t units, ContentKey key) const {
    return units > 0 && units <= keys_.size() && keys_[units - 1] == key;
  }
  // Of a path that begins behind the first `before` units. REQUIRES: before <= units().
  Agreement Compare(size_t before, std::span<const ContentKey> path) const;
  // Takes from `path` the units that the prompt lacks, and the keys of units that it cannot name.
  // True: there were some. REQUIRES: `path` does not differ from the prompt.
  bool Extend(size_t before, std::span<const ContentKey> path);
  // The first units, for a prompt that goes on in another way.
  SampledPrompt Branch(size_t units) const;

  // The group stored a block that ends with the unit. Whether it did before, too.
  bool NoteStored(size_t unit, uint8_t group);
  bool WasStored(size_t unit, size_t group) const {
    return group < groups_ && unit < keys_.size() &&
           (stored_[unit / 64 * groups_ + group] >> unit % 64 & 1) != 0;
  }

  // The worker was asked again for so many first units.
  void NoteAskedFor(size_t units) {
    if (units > asked_for_) asked_for_ = units;
    asked_for_lately_ = true;
  }
  size_t asked_for() const { return asked_for_; }  // 0: not asked for again
  // Whether it was asked for since the last call.
  bool TakeAskedForLately() {
    const bool lately = asked_for_lately_;
    asked_for_lately_ = false;
    return lately;
  }

  // The blocks that were stored behind its end are not known.
  void Cut() { cut_ = true; }
  bool cut() const { return cut_; }

  // When it was chosen or grew, in blocks that the worker stored.
  void SetGrownAt(uint64_t stored) { grown_at_ = stored; }
  uint64_t grown_at() const { return grown_at_; }

  // The tokens of the first unit without salt and adapter, and the salt and adapter.
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
  std::vector<uint64_t> stored_;  // by 64 units and group: units, by bit
  size_t groups_ = 0;
  size_t asked_for_ = 0;
  uint64_t grown_at_ = 0;
  ContentKey tokens_ = kUnnamed;
  ContentKey scope_ = kUnnamed;
  bool asked_for_lately_ = false;
  bool cut_ = false;
};

}  // namespace kvcast::router
