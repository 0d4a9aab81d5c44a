// GroupRegistry: the known KV-cache groups of one worker, from the registration or from its
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
#include "src/base/byte_fields.h"

namespace kvcast::router {

// Value type. Thread-compatible.
class GroupRegistry {
 public:
  // Returns an error if the groups and sizes of `config` do not fit together.
  static Result<GroupRegistry> FromConfig(const WorkerConfig& config);

  // The decision about an event.
  enum class Verdict : uint8_t {
    kIndex,
    kIndexAssumed,  // indexed as full attention, because no kind is given or known
    kUnknownKind,   // not indexed: there is no reuse rule for the group's kind
    kBad,           // not indexed: out of range, or contradicts the known facts of the group
  };
  // Decides about a store. If no groups are registered, also learns the group from a GPU store.
  // Stores of other tiers show no block size of the group: they announce chunks, or placeholders
  // (without tokens, with block size 0). `merged`: the event is part of a snapshot, so it can have
  // blocks of several stores.
  Verdict Store(const BlockStored& event, Tier tier, bool merged);
  Verdict Remove(const BlockRemoved& event) const;

  // Sets the hash_block_size. Returns false and changes nothing in three cases: another size is
  // registered, `size` is out of range, or `size` does not divide a known block size.
  bool LearnHashBlockSize(int64_t size);

  // Save writes the learned facts. Restore adds the saved facts to a registry that was made from
  // the same registration as the saved registry. If a fact is out of range, `from` fails.
  void Save(FieldWriter& to) const;
  void Restore(FieldReader& from);

  // An absent group_idx means group 0. REQUIRES: the event's verdict was kIndex or kIndexAssumed.
  static uint8_t GroupOf(const std::optional<int64_t>& group_idx) {
    return static_cast<uint8_t>(group_idx.value_or(0));
  }

  // The specs, in the order of group_idx. A group without a store has the kind kUnknown.
  std::vector<GroupSpec> Specs() const;
  // True if a group that takes part was announced without its kind, or with a kind that the router
  // does not know.
  bool assumes_kinds() const;
  // nullopt: nothing is known of the group.
  std::optional<GroupSpec> SpecOf(uint8_t group) const {
    if (group >= groups_.size() || groups_[group].source == Source::kUnseen) return std::nullopt;
    return groups_[group].spec;
  }
  // True if no block of a known group can be cached under two hashes. Only a Mamba state, or a
  // block of several hash units, can have two hashes.
  bool one_hash_per_block() const;
  bool has_full_kind() const;
  // True if hits are assumed to end inside Mamba blocks, although no store has shown such a hit.
  bool assumes_partial_hits() const;
  // True in two cases. First: a Mamba group, or a group of full attention beside it, may have
  // larger blocks than its stores so far. The reason: the end of a prompt inside a block is stored
  // as a smaller block. Second: a Mamba group may have hits inside the blocks of other groups, as
  // with decode context parallelism.
  bool assumes_block_sizes() const;
  // Least common multiple of the block sizes: the alignment of hits that end where blocks end.
  int64_t block_alignment() const;
  // Tokens per block hash; 0: not known yet.
  int64_t hash_block_size() const { return hash_block_size_; }
  // Alignment of hits, a multiple of hash_block_size(); 0: not known yet.
  int64_t alignment() const { return alignment_; }
  // The alignment that applies if none is registered.
  int64_t rule_alignment() const { return AlignmentByRule(); }
  // Increases whenever a result of a const function above changes. May also increase without a
  // change.
  uint64_t changes() const { return changes_; }

 private:
  enum class Source : uint8_t { kUnseen, kAssumed, kNamed, kRegistered };
  struct Group {
    // Before the first store: kind kUnknown, block size 0.
    GroupSpec spec{.kind = SpecKind::kUnknown, .block_size = 0};
    Source source = Source::kUnseen;
    bool size_shown = false;  // registered, or a store with several blocks has shown a block size

    bool known() const { return source != Source::kUnseen && TakesPart(spec); }
  };

  std::optional<size_t> Resolve(const std::optional<int64_t>& group_idx) const;
  Verdict KindVerdict(size_t index) const;
  Verdict CheckRegistered(const Group& group, const BlockStored& event);
  Verdict Learn(size_t index, const BlockStored& event, bool merged);
  static Group GroupFrom(FieldReader& from);
  static bool LearnKind(Group& group, const BlockStored& event);
  bool LearnSizes(Group& group, const BlockStored& event, bool merged);
  bool SizeFits(const Group& group, int64_t block_size) const;
  static bool KindFits(const GroupSpec& spec, const BlockStored& event);
  void NoteBlockSize(int64_t block_size);
  bool PartialHitsEnabled() const;
  int64_t AlignmentByRule() const;
  void UpdateAlignment();
  void NotePart(SpecKind kind);

  std::vector<Group> groups_;
  bool registered_ = false;
  // Registered or learned. 0: hash_block_size_ is the gcd of the block sizes.
  int64_t fixed_hash_block_size_ = 0;
  bool hash_block_size_registered_ = false;
  bool no_partial_hits_ = false;    // the registered release has no partial hits
  bool partial_hits_seen_ = false;  // a Mamba state was stored inside a block
  int64_t fixed_alignment_ = 0;     // registered; 0: by rule
  int64_t hash_block_size_ = 0;
  int64_t alignment_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace kvcast::router
