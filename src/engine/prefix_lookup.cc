// SPDX-License-Identifier: Apache-2.0
#include "src/engine/prefix_lookup.h"

#include <algorithm>

namespace kvcast::engine {
namespace {

// Groups that share a spec are one lookup, in order of their first group, full attention first: its
// scan from the left gives the others a tight bound.
std::vector<SpecGroup> SpecGroups(const CacheConfig& config) {
  std::vector<SpecGroup> groups;
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const GroupSpec& spec = config.groups[i];
    if (!IsCacheableKind(spec.kind)) continue;
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const SpecGroup& group) { return group.spec == spec; });
    const GroupIdx index(static_cast<uint32_t>(i));
    if (same == groups.end()) {
      groups.push_back({spec, {index}});
    } else {
      same->members.push_back(index);
    }
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const SpecGroup& group) { return IsFullKind(group.spec.kind); });
  return groups;
}

}  // namespace

PrefixLookup::PrefixLookup(const CacheConfig& config, const BlockPool& pool)
    : num_groups_(config.groups.size()), unitary_(config.groups.size() == 1) {
  for (SpecGroup& group : SpecGroups(config)) {
    lookups_.emplace_back(std::move(group), pool, HitAlignment(config));
  }
}

void PrefixLookup::Begin(std::span<const Digest> chain) {
  for (GroupLookup& lookup : lookups_) lookup.Begin(chain);
  full_hits_.assign(lookups_.size(), -1);
  eagle_verified_.assign(lookups_.size(), false);
}

bool PrefixLookup::OneRoundSuffices() const {
  return lookups_.size() == 2 && IsFullKind(lookups_[0].spec().kind);
}

int64_t PrefixLookup::SearchOne(size_t index, int64_t tokens, int64_t max_tokens) {
  GroupLookup& lookup = lookups_[index];
  const bool drop = lookup.spec().eagle && !eagle_verified_[index];
  int64_t limit = tokens;
  // A dropping search needs the unit behind the candidate too. States are never dropped.
  if (drop && lookup.spec().kind != SpecKind::kMamba) {
    limit = std::min(tokens + lookup.drop_unit(), max_tokens);
  }
  const int64_t hit = lookup.LongestHit(limit, drop);
  if (drop) {
    eagle_verified_[index] = true;
  } else if (hit < tokens) {
    eagle_verified_.assign(eagle_verified_.size(), false);
  }
  return hit;
}

int64_t PrefixLookup::Round(int64_t tokens, int64_t max_tokens, int64_t& longest) {
  for (size_t i = 0; i < lookups_.size(); ++i) {
    if (full_hits_[i] >= 0) {
      // Every prefix of a full-attention hit is one.
      tokens = std::min(tokens, full_hits_[i]);
      continue;
    }
    tokens = SearchOne(i, tokens, max_tokens);
    if (IsFullKind(lookups_[i].spec().kind)) full_hits_[i] = tokens;
    longest = std::max(longest, tokens);
  }
  return tokens;
}

PrefixLookup::Candidate PrefixLookup::FixedPoint(int64_t max_tokens) {
  Candidate candidate{max_tokens, 0};
  while (true) {
    const int64_t shortened = Round(candidate.tokens, max_tokens, candidate.longest);
    if (shortened >= candidate.tokens) break;
    candidate.tokens = shortened;
    if (OneRoundSuffices()) break;
  }
  return candidate;
}

PrefixHit PrefixLookup::Find(std::span<const Digest> chain, int64_t max_tokens) {
  PrefixHit hit;
  hit.blocks.resize(num_groups_);
  if (max_tokens <= 0 || lookups_.empty()) return hit;
  Begin(chain);
  if (unitary_) {
    hit.tokens = lookups_[0].LongestHit(max_tokens, lookups_[0].spec().eagle);
  } else {
    const Candidate candidate = FixedPoint(max_tokens);
    hit.tokens = candidate.tokens;
    if (candidate.longest > candidate.tokens) hit.shared_prefix_boundary = candidate.longest;
  }
  for (const GroupLookup& lookup : lookups_) lookup.FillTables(hit.tokens, hit.blocks);
  return hit;
}

std::vector<int64_t> PrefixLookup::FindPerGroup(std::span<const Digest> chain, int64_t max_tokens) {
  std::vector<int64_t> hits(num_groups_, 0);
  if (max_tokens <= 0) return hits;
  Begin(chain);
  for (GroupLookup& lookup : lookups_) {
    const int64_t hit = lookup.LongestHit(max_tokens, lookup.spec().eagle);
    for (const GroupIdx member : lookup.members()) hits[member.value] = hit;
  }
  return hits;
}

}  // namespace kvcast::engine
