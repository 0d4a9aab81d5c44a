// SPDX-License-Identifier: Apache-2.0
#include "src/engine/prefix_lookup.h"

#include <algorithm>

#include "src/spec/fixed_point.h"

namespace kvcast::engine {
namespace {

std::vector<internal::SpecGroup> SpecGroupsOf(const CacheConfig& config) {
  std::vector<const GroupSpec*> specs;
  for (const GroupSpec& spec : config.groups) specs.push_back(&spec);
  return internal::GroupBySpec(specs);
}

}  // namespace

PrefixLookup::PrefixLookup(const CacheConfig& config, const BlockPool& pool)
    : PrefixLookup(config, pool, HitAlignment(config)) {}

PrefixLookup::PrefixLookup(const CacheConfig& config, const BlockPool& pool, int64_t alignment)
    : num_groups_(config.groups.size()),
      rules_(config.rules),
      hash_block_size_(config.hash_block_size),
      alignment_(alignment),
      groups_(SpecGroupsOf(config)) {
  for (const internal::SpecGroup& group : groups_) lookups_.emplace_back(group, pool, alignment_);
}

void PrefixLookup::Begin(std::span<const Digest> chain, int64_t tokens_before) {
  for (GroupLookup& lookup : lookups_) lookup.Begin(chain, tokens_before);
}

// With lookahead, the last tokens of a prompt have no hash, so the search ends at the last hash.
// vLLM v0.33 searches further. Its window lookup reads past the end of the list of hashes. Its
// chunked lookup accepts a chunk that begins after the last hash, because such a chunk needs no
// block.
int64_t PrefixLookup::HashedTokens(std::span<const Digest> chain, int64_t max_tokens) const {
  return std::min(max_tokens, std::ssize(chain) * hash_block_size_);
}

int64_t PrefixLookup::LimitOfEagle(std::span<const Digest> chain, int64_t max_tokens) const {
  return EagleLimit(rules_, num_groups_, max_tokens, std::ssize(chain) * hash_block_size_);
}

PrefixHit PrefixLookup::Find(std::span<const Digest> chain, int64_t max_tokens,
                             int64_t tokens_before) {
  PrefixHit hit;
  hit.blocks.resize(num_groups_);
  max_tokens = HashedTokens(chain, max_tokens);
  Begin(chain, tokens_before);
  const internal::FixedPoint point =
      internal::FindFixedPoint(groups_, alignment_, max_tokens, LimitOfEagle(chain, max_tokens),
                               [this](size_t group, int64_t limit, bool drop_eagle) {
                                 return lookups_[group].LongestHit(limit, drop_eagle);
                               });
  hit.tokens = point.tokens;
  if (point.longest > point.tokens) hit.shared_prefix_boundary = point.longest;
  for (const GroupLookup& lookup : lookups_) lookup.FillTables(hit.tokens, hit.blocks);
  return hit;
}

std::vector<int64_t> PrefixLookup::FindPerGroup(std::span<const Digest> chain, int64_t max_tokens) {
  std::vector<int64_t> hits(num_groups_, 0);
  max_tokens = HashedTokens(chain, max_tokens);
  if (max_tokens <= 0) return hits;
  Begin(chain, 0);
  const int64_t eagle_limit = LimitOfEagle(chain, max_tokens);
  for (size_t i = 0; i < groups_.size(); ++i) {
    const GroupSpec& spec = groups_[i].spec;
    const int64_t limit =
        spec.eagle ? internal::DropLimit(spec, alignment_, max_tokens, eagle_limit) : max_tokens;
    const int64_t hit = lookups_[i].LongestHit(limit, spec.eagle);
    for (const size_t member : groups_[i].members) hits[member] = hit;
  }
  return hits;
}

}  // namespace kvcast::engine
