// GroupCatalogue: what is known of one worker's KV-cache groups, by registration or from its
// stores.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::router {

// Thread-compatible value.
class GroupCatalogue {
 public:
  // Not ok: groups and sizes of `config` do not fit together.
  static Result<GroupCatalogue> FromConfig(const WorkerConfig& config);

  // What becomes of an event.
  enum class Verdict : uint8_t {
    kIndex,
    kIndexAssumed,  // indexed; no kind given, none known: taken for full attention
    kUnknownKind,   // not indexed: the group's kind has no reuse rule
    kBad,           // not indexed: out of range, or against what is known of the group
  };
  // Learns from a store where no groups are registered. Only GPU stores teach: other tiers
  // announce chunks and placeholders, whose block size says nothing about the group.
  Verdict Store(const BlockStored& event, Tier tier);
  Verdict Remove(const BlockRemoved& event) const;

  // Takes `unit` for the hash unit from here on. False, and nothing changed: another one is
  // registered, it is out of range, or it does not divide a known block size.
  bool LearnUnit(int64_t unit);

  // An absent group_idx is group 0. REQUIRES: the event's verdict was kIndex or kIndexAssumed.
  static uint8_t GroupOf(const std::optional<int64_t>& group_idx) {
    return static_cast<uint8_t>(group_idx.value_or(0));
  }

  // By group_idx; kUnknown where no store was seen.
  std::vector<GroupSpec> Specs() const;
  // Whether a group that takes part was announced without its kind.
  bool assumes_kinds() const;
  // nullopt: nothing is known of the group.
  std::optional<GroupSpec> SpecOf(uint8_t group) const {
    if (group >= groups_.size() || groups_[group].source == Source::kUnseen) return std::nullopt;
    return groups_[group].spec;
  }
  // Whether no block of a known group can be cached under two hashes, as a Mamba state and a block
  // of several hash units can.
  bool one_hash_per_block() const;
  bool has_full_kind() const;
  // Whether hits are taken to end inside Mamba blocks although nothing has shown it.
  bool assumes_partial_hits() const;
  // Whether a Mamba group, or one of full attention beside it, may have larger blocks than its
  // stores so far, as ends inside blocks are stored too; or whether a Mamba group may have hits
  // inside the blocks of others, as with decode context parallel.
  bool assumes_block_sizes() const;
  // Least common multiple of the block sizes: the alignment of hits that end with blocks.
  int64_t block_alignment() const;
  // Tokens per hash; 0: not known yet.
  int64_t unit() const { return unit_; }
  // Alignment of hits, a multiple of unit(); 0: not known yet.
  int64_t alignment() const { return alignment_; }
  // The value where none is registered.
  int64_t rule_alignment() const { return AlignmentByRule(); }
  // Grows with every change of what the three above say.
  uint64_t changes() const { return changes_; }

 private:
  enum class Source : uint8_t { kUnseen, kAssumed, kNamed, kRegistered };
  struct Group {
    // Unseen: kind kUnknown, block size 0.
    GroupSpec spec{.kind = SpecKind::kUnknown, .block_size = 0};
    Source source = Source::kUnseen;
    bool size_shown = false;  // its blocks have spec.block_size, or more

    bool known() const { return source != Source::kUnseen && TakesPart(spec); }
  };

  std::optional<size_t> Resolve(const std::optional<int64_t>& group_idx) const;
  Verdict KindVerdict(size_t index) const;
  Verdict CheckRegistered(const Group& group, const BlockStored& event);
  Verdict Learn(size_t index, const BlockStored& event);
  static bool LearnKind(Group& group, const BlockStored& event);
  bool LearnSizes(Group& group, const BlockStored& event);
  bool SizeFits(const Group& group, int64_t block_size) const;
  void NoteBlockSize(int64_t block_size);
  bool PartialHitsEnabled() const;
  int64_t AlignmentByRule() const;
  void UpdateAlignment();
  void NotePart(SpecKind kind);

  std::vector<Group> groups_;
  bool registered_ = false;
  int64_t fixed_unit_ = 0;  // registered or learned; 0: gcd of the block sizes
  bool unit_registered_ = false;
  bool no_partial_hits_ = false;    // of the registered release
  bool partial_hits_seen_ = false;  // a Mamba state was stored inside a block
  int64_t fixed_alignment_ = 0;     // registered; 0: by rule
  int64_t unit_ = 0;
  int64_t alignment_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace kvcast::router
