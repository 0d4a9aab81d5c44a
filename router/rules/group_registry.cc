// SPDX-License-Identifier: Apache-2.0
#include "router/rules/group_registry.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

namespace kvcast::router {
namespace {

// An alignment in hash units that is longer than any prompt, so no hit reaches it. Its product with
// a hash_block_size fits in 64 bits.
constexpr int64_t kUnreachableUnits = int64_t{1} << 40;

bool InRange(int64_t value, int64_t max) { return value >= 1 && value <= max; }

Status Invalid(size_t group, std::string_view what) {
  return Status(StatusCode::kInvalidArgument,
                "groups[" + std::to_string(group) + "]." + std::string(what));
}

Status CheckGroup(const GroupSpec& spec, size_t index, int64_t hash_block_size) {
  if (!InRange(spec.block_size, kMaxBlockSize)) return Invalid(index, "block_size: out of range");
  if (TakesPart(spec) && hash_block_size > 0 && spec.block_size % hash_block_size != 0) {
    return Invalid(index, "block_size: not a multiple of hash_block_size");
  }
  if (IsWindowKind(spec.kind) && !InRange(spec.sliding_window, kMaxWindow)) {
    return Invalid(index, "sliding_window: out of range");
  }
  if (spec.kind == SpecKind::kChunkedLocalAttention &&
      (!InRange(spec.chunk_size, kMaxWindow) || spec.chunk_size % spec.block_size != 0)) {
    return Invalid(index, "chunk_size: not a multiple of block_size");
  }
  return Status();
}

}  // namespace

Result<GroupRegistry> GroupRegistry::FromConfig(const WorkerConfig& config) {
  if (config.groups.size() > static_cast<size_t>(kMaxGroups)) {
    return Status(StatusCode::kInvalidArgument, "groups: too many");
  }
  if (config.hash_block_size < 0 || config.hash_block_size > kMaxBlockSize) {
    return Status(StatusCode::kInvalidArgument, "hash_block_size: out of range");
  }
  if (config.hash_lookahead_tokens < 0 || config.hash_lookahead_tokens > kMaxLookahead) {
    return Status(StatusCode::kInvalidArgument, "hash_lookahead_tokens: out of range");
  }
  if (config.chunk_size < 0 || config.chunk_size > kMaxWindow) {
    return Status(StatusCode::kInvalidArgument, "chunk_size: out of range");
  }
  if (config.alignment < 0 || config.alignment > kMaxWindow) {
    return Status(StatusCode::kInvalidArgument, "alignment: out of range");
  }
  if (!InRange(config.blocks_per_chunk, kMaxBlocksPerChunk)) {
    return Status(StatusCode::kInvalidArgument, "blocks_per_chunk: out of range");
  }
  if (const int64_t replay = config.replay_tokens.value_or(0); replay < 0 || replay > kMaxWindow) {
    return Status(StatusCode::kInvalidArgument, "replay_tokens: out of range");
  }
  if (const auto& sparse = config.sparse_rule) {
    const int64_t interval = sparse->retention_interval.value_or(0);
    if (!InRange(sparse->alignment, kMaxWindow) || interval < 0 || interval > kMaxWindow) {
      return Status(StatusCode::kInvalidArgument, "sparse_rule: out of range");
    }
  }
  GroupRegistry registry;
  registry.registered_ = !config.groups.empty();
  registry.fixed_hash_block_size_ = registry.hash_block_size_ = config.hash_block_size;
  registry.hash_block_size_registered_ = config.hash_block_size > 0;
  registry.fixed_alignment_ = config.alignment;
  registry.no_partial_hits_ = config.rules && *config.rules < EngineRules::kMain2026August;
  for (size_t i = 0; i < config.groups.size(); ++i) {
    if (Status status = CheckGroup(config.groups[i], i, config.hash_block_size); !status.ok()) {
      return status;
    }
    registry.groups_.push_back({config.groups[i], Source::kRegistered, /*size_shown=*/true});
    if (TakesPart(config.groups[i])) registry.NoteBlockSize(config.groups[i].block_size);
  }
  if (registry.hash_block_size_ > 0 && config.alignment % registry.hash_block_size_ != 0) {
    return Status(StatusCode::kInvalidArgument, "alignment: not a multiple of hash_block_size");
  }
  registry.UpdateAlignment();
  return registry;
}

std::optional<size_t> GroupRegistry::Resolve(const std::optional<int64_t>& group_idx) const {
  const int64_t index = group_idx.value_or(0);
  const int64_t limit = registered_ ? static_cast<int64_t>(groups_.size()) : kMaxGroups;
  if (index < 0 || index >= limit) return std::nullopt;
  return static_cast<size_t>(index);
}

GroupRegistry::Verdict GroupRegistry::KindVerdict(size_t index) const {
  if (index >= groups_.size() || groups_[index].source == Source::kUnseen) return Verdict::kIndex;
  return TakesPart(groups_[index].spec) ? Verdict::kIndex : Verdict::kUnknownKind;
}

// All full kinds have one rule for hits, and so have both window kinds. An engine may name another
// kind of the same rule than the registered one.
bool GroupRegistry::KindFits(const GroupSpec& spec, const BlockStored& event) {
  if (!event.kv_cache_spec_kind) return true;
  const SpecKind kind = ParseSpecKind(*event.kv_cache_spec_kind);
  if (kind == SpecKind::kUnknown) return true;
  if (IsFullKind(kind)) return IsFullKind(spec.kind);
  if (IsWindowKind(kind) ? !IsWindowKind(spec.kind) : kind != spec.kind) return false;
  const std::optional<int64_t>& window = event.kv_cache_spec_sliding_window;
  return !IsWindowKind(kind) || !window || *window == spec.sliding_window;
}

GroupRegistry::Verdict GroupRegistry::Store(const BlockStored& event, Tier tier, bool merged) {
  const std::optional<size_t> index = Resolve(event.group_idx);
  if (!index) return Verdict::kBad;
  if (tier != Tier::kGpu) return KindVerdict(*index);
  if (registered_) return CheckRegistered(groups_[*index], event);
  return Learn(*index, event, merged);
}

GroupRegistry::Verdict GroupRegistry::Remove(const BlockRemoved& event) const {
  const std::optional<size_t> index = Resolve(event.group_idx);
  return index ? KindVerdict(*index) : Verdict::kBad;
}

bool GroupRegistry::SizeFits(const Group& group, int64_t block_size) const {
  if (!InRange(block_size, kMaxBlockSize)) return false;
  if (fixed_hash_block_size_ > 0 && block_size % fixed_hash_block_size_ != 0) return false;
  const int64_t size = group.spec.block_size;
  if (size == 0) return true;
  // A smaller block is a partial entry of a larger block. A block larger than the registered size
  // is wrong. A block larger than the learned size shows that the first stores were partial
  // entries.
  return size % block_size == 0 || (!registered_ && block_size % size == 0);
}

GroupRegistry::Verdict GroupRegistry::CheckRegistered(const Group& group,
                                                      const BlockStored& event) {
  if (!TakesPart(group.spec)) return Verdict::kUnknownKind;
  if (!SizeFits(group, event.block_size) || !KindFits(group.spec, event)) return Verdict::kBad;
  if (event.block_size < group.spec.block_size) NotePart(group.spec.kind);
  NoteBlockSize(event.block_size);
  return Verdict::kIndex;
}

bool GroupRegistry::LearnKind(Group& group, const BlockStored& event) {
  if (!event.kv_cache_spec_kind) {
    if (group.source == Source::kUnseen) {
      group.spec.kind = SpecKind::kFullAttention;
      group.source = Source::kAssumed;
    }
    return true;
  }
  const SpecKind kind = ParseSpecKind(*event.kv_cache_spec_kind);
  if (group.source == Source::kNamed && kind != group.spec.kind) return false;
  group.spec.kind = kind;
  group.source = Source::kNamed;
  return true;
}

bool GroupRegistry::LearnSizes(Group& group, const BlockStored& event, bool merged) {
  if (!SizeFits(group, event.block_size)) return false;
  group.spec.block_size = std::max(group.spec.block_size, event.block_size);
  // The partial block at the end of a prompt has its own store event.
  group.size_shown = group.size_shown || (!merged && event.block_hashes.size() > 1);
  const std::optional<int64_t>& window = event.kv_cache_spec_sliding_window;
  if (!IsWindowKind(group.spec.kind) || !window) return true;
  if (!InRange(*window, kMaxWindow)) return false;
  if (group.spec.sliding_window > 0 && group.spec.sliding_window != *window) return false;
  group.spec.sliding_window = *window;
  return true;
}

GroupRegistry::Verdict GroupRegistry::Learn(size_t index, const BlockStored& event, bool merged) {
  // Works on a copy, because an event that contradicts the known facts must not change the group.
  Group group = index < groups_.size() ? groups_[index] : Group{};
  if (!LearnKind(group, event)) return Verdict::kBad;
  const bool indexed = IsCacheableKind(group.spec.kind);
  if (indexed && !LearnSizes(group, event, merged)) return Verdict::kBad;
  if (index >= groups_.size()) groups_.resize(index + 1);
  const int64_t known_size = groups_[index].spec.block_size;
  const bool partial = known_size > 0 && event.block_size != known_size;
  if (indexed && partial) NotePart(group.spec.kind);
  const bool shows_size = group.size_shown != groups_[index].size_shown;
  if (group.spec != groups_[index].spec || group.source != groups_[index].source || shows_size) {
    groups_[index] = group;
    UpdateAlignment();
  }
  if (!indexed) return Verdict::kUnknownKind;
  NoteBlockSize(event.block_size);
  return group.source == Source::kAssumed ? Verdict::kIndexAssumed : Verdict::kIndex;
}

bool GroupRegistry::LearnHashBlockSize(int64_t size) {
  if (hash_block_size_registered_ && size != fixed_hash_block_size_) return false;
  if (!InRange(size, kMaxBlockSize)) return false;
  for (const Group& group : groups_) {
    if (group.known() && group.spec.block_size % size != 0) return false;
  }
  fixed_hash_block_size_ = hash_block_size_ = size;
  UpdateAlignment();
  return true;
}

void GroupRegistry::Save(FieldWriter& to) const {
  to.Bool(partial_hits_seen_);
  to.Int(static_cast<uint64_t>(fixed_hash_block_size_));
  to.Int(static_cast<uint64_t>(hash_block_size_));
  to.Int(registered_ ? 0 : groups_.size());
  for (size_t i = 0; !registered_ && i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    to.Int(static_cast<uint64_t>(group.source));
    to.Int(static_cast<uint64_t>(group.spec.kind));
    to.Int(static_cast<uint64_t>(group.spec.block_size));
    to.Int(static_cast<uint64_t>(group.spec.sliding_window));
    to.Bool(group.size_shown);
  }
}

// Reads only the members that can differ between a learned group and a new group.
GroupRegistry::Group GroupRegistry::GroupFrom(FieldReader& from) {
  Group group;
  group.source = static_cast<Source>(from.Int(static_cast<uint64_t>(Source::kNamed)));
  group.spec.kind = static_cast<SpecKind>(from.Int(static_cast<uint64_t>(SpecKind::kUnknown)));
  group.spec.block_size = static_cast<int64_t>(from.Int(kMaxBlockSize));
  group.spec.sliding_window = static_cast<int64_t>(from.Int(kMaxWindow));
  group.size_shown = from.Bool();
  if (group.known() && group.spec.block_size == 0) from.Fail();
  return group;
}

void GroupRegistry::Restore(FieldReader& from) {
  partial_hits_seen_ = from.Bool();
  const auto fixed = static_cast<int64_t>(from.Int(kMaxBlockSize));
  const auto size = static_cast<int64_t>(from.Int(kMaxBlockSize));
  const size_t groups = from.Int(registered_ ? 0 : kMaxGroups);
  for (size_t i = 0; i < groups && from.ok(); ++i) {
    groups_.push_back(GroupFrom(from));
    if (groups_.back().known() && (size == 0 || groups_.back().spec.block_size % size != 0)) {
      from.Fail();
    }
  }
  for (const Group& group : groups_) {
    const bool counts = registered_ && TakesPart(group.spec);
    if (counts && (size == 0 || group.spec.block_size % size != 0)) from.Fail();
  }
  if (fixed > 0 && size != fixed) from.Fail();
  if (hash_block_size_registered_ && fixed != fixed_hash_block_size_) from.Fail();
  if (!from.ok()) return;
  fixed_hash_block_size_ = fixed;
  hash_block_size_ = size;
  UpdateAlignment();
}

void GroupRegistry::NoteBlockSize(int64_t block_size) {
  if (fixed_hash_block_size_ != 0 || (hash_block_size_ != 0 && block_size % hash_block_size_ == 0))
    return;
  hash_block_size_ = std::gcd(hash_block_size_, block_size);
  UpdateAlignment();
}

// vLLM enables partial hits under two conditions. First: a Mamba group has blocks larger than the
// hash unit. The Mamba mode is then "align", because in mode "all" a block is one unit. Second: all
// other groups with blocks larger than the unit support lookups in units.
bool GroupRegistry::PartialHitsEnabled() const {
  if (no_partial_hits_) return false;
  bool mamba = false;
  for (const Group& group : groups_) {
    if (!group.known() || group.spec.block_size == hash_block_size_) continue;
    if (!IsFullKind(group.spec.kind) && group.spec.kind != SpecKind::kMamba) return false;
    mamba |= group.spec.kind == SpecKind::kMamba;
  }
  return mamba;
}

bool GroupRegistry::assumes_partial_hits() const {
  return fixed_alignment_ == 0 && hash_block_size_ > 0 && !partial_hits_seen_ &&
         PartialHitsEnabled();
}

bool GroupRegistry::assumes_block_sizes() const {
  const auto is_larger = [this](const Group& group) {
    return group.known() && group.spec.block_size > hash_block_size_;
  };
  const auto is_small_state = [this](const Group& group) {
    return group.known() && group.spec.kind == SpecKind::kMamba &&
           group.spec.block_size == hash_block_size_;
  };
  const auto is_state = [](const Group& group) {
    return group.known() && group.spec.kind == SpecKind::kMamba;
  };
  // If there is a Mamba group, a hit may end inside a block of full attention. The end of a prompt
  // is then stored as one unit.
  const auto is_end_alone = [this](const Group& group) {
    return group.known() && IsFullKind(group.spec.kind) &&
           group.spec.block_size == hash_block_size_ && !group.size_shown;
  };
  if (std::ranges::any_of(groups_, is_state) && std::ranges::any_of(groups_, is_end_alone)) {
    return true;
  }
  const bool told = registered_ && fixed_alignment_ > 0;
  return !told && !partial_hits_seen_ && std::ranges::any_of(groups_, is_larger) &&
         std::ranges::any_of(groups_, is_small_state);
}

int64_t GroupRegistry::AlignmentByRule() const {
  return hash_block_size_ == 0 || PartialHitsEnabled() ? hash_block_size_ : block_alignment();
}

int64_t GroupRegistry::block_alignment() const {
  const int64_t unreachable = hash_block_size_ * kUnreachableUnits;
  int64_t alignment = hash_block_size_;
  for (const Group& group : groups_) {
    // A scheduler aligns hits to all groups of a cache, including groups outside prefix caching.
    if (group.spec.block_size == 0) continue;
    const int64_t factor = group.spec.block_size / std::gcd(alignment, group.spec.block_size);
    if (alignment > unreachable / factor) return unreachable;
    alignment *= factor;
  }
  return alignment;
}

// Only a Mamba group proves partial hits. If the blocks of a full-attention group have several
// units, the group stores the end of a prompt as a partial block, also without partial hits.
void GroupRegistry::NotePart(SpecKind kind) {
  if (kind == SpecKind::kMamba && !std::exchange(partial_hits_seen_, true)) ++changes_;
}

void GroupRegistry::UpdateAlignment() {
  ++changes_;
  if (fixed_alignment_ == 0 || hash_block_size_ == 0) {
    alignment_ = AlignmentByRule();
  } else {
    alignment_ = std::lcm(fixed_alignment_, hash_block_size_);
  }
}

bool GroupRegistry::one_hash_per_block() const {
  return std::ranges::all_of(groups_, [this](const Group& group) {
    return !group.known() ||
           (group.spec.kind != SpecKind::kMamba && group.spec.block_size == hash_block_size_);
  });
}

bool GroupRegistry::has_full_kind() const {
  return std::ranges::any_of(
      groups_, [](const Group& group) { return group.known() && IsFullKind(group.spec.kind); });
}

bool GroupRegistry::assumes_kinds() const {
  return std::ranges::any_of(groups_, [](const Group& group) {
    const bool no_rule = group.source == Source::kNamed && group.spec.kind == SpecKind::kUnknown;
    return group.source == Source::kAssumed || no_rule;
  });
}

std::vector<GroupSpec> GroupRegistry::Specs() const {
  std::vector<GroupSpec> specs;
  specs.reserve(groups_.size());
  for (const Group& group : groups_) specs.push_back(group.spec);
  return specs;
}

}  // namespace kvcast::router
