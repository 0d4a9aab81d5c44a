// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/model/naive_lookup.h"

#include <algorithm>
#include <numeric>

namespace kvcast::naive {
namespace {

bool SameButEagle(GroupSpec a, GroupSpec b) {
  a.eagle = b.eagle = false;
  return a == b;
}

}  // namespace

Grid Grid::Of(const CacheConfig& config) {
  int64_t multiple = 1;
  int64_t divisor = 0;
  bool every_state = false;
  const bool any = std::any_of(config.groups.begin(), config.groups.end(), IsPrefixCached);
  for (const GroupSpec& group : config.groups) {
    multiple = std::lcm(multiple, group.block_size);
    // Groups outside prefix caching have no hashes.
    if (!any || IsPrefixCached(group)) divisor = std::gcd(divisor, group.block_size);
    every_state |= group.kind == SpecKind::kMamba && group.mamba_mode != MambaMode::kAlign;
  }
  Grid grid;
  grid.step = config.scheduler_block_size == 0 ? multiple : config.scheduler_block_size;
  grid.hash_block_size = config.hash_block_size;
  if (grid.hash_block_size == 0)
    grid.hash_block_size = every_state || !config.enable_caching ? multiple : divisor;

  bool states_inside = false;
  bool all_allow_partial_hits = true;
  for (const GroupSpec& group : config.groups) {
    if (!IsPrefixCached(group)) continue;
    const bool mamba = group.kind == SpecKind::kMamba;
    if (!mamba && !IsFull(group) && group.block_size != grid.hash_block_size)
      all_allow_partial_hits = false;
    const bool inside =
        group.block_size > grid.hash_block_size || config.decode_context_parallel > 1;
    if (mamba && group.mamba_mode == MambaMode::kAlign && inside) states_inside = true;
  }
  grid.inside_blocks = config.groups.size() > 1 && config.enable_caching && states_inside &&
                       all_allow_partial_hits && config.rules >= EngineRules::kMain2026August;
  grid.alignment = grid.inside_blocks ? grid.hash_block_size : grid.step;
  if (config.groups.size() == 1) grid.alignment = config.groups[0].block_size;
  grid.to_last_hash = config.groups.size() > 1 && config.rules >= EngineRules::kV032;
  return grid;
}

std::vector<GroupSpec> WithSharedEagle(std::vector<GroupSpec> groups) {
  for (GroupSpec& group : groups) {
    for (const GroupSpec& other : groups) {
      if (other.eagle && SameButEagle(group, other)) group.eagle = true;
    }
  }
  return groups;
}

Lookup::Lookup(const std::vector<GroupSpec>& groups, const Grid& grid, const Pool& pool)
    : grid_(grid), pool_(pool), num_groups_(groups.size()) {
  for (const bool full : {true, false}) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!IsPrefixCached(groups[i]) || IsFull(groups[i]) != full) continue;
      bool known = false;
      for (Set& set : sets_) {
        if (!(set.spec == groups[i])) continue;
        set.members.push_back(i);
        known = true;
      }
      if (!known) sets_.push_back({groups[i], {i}});
    }
  }
}

std::optional<Blocks> Lookup::InAll(const Set& set, const std::vector<Prefix>& chain,
                                    int64_t tokens) const {
  if (tokens / grid_.hash_block_size > static_cast<int64_t>(chain.size())) return std::nullopt;
  Blocks blocks;
  for (const size_t member : set.members) {
    const Block block =
        pool_.Find({chain[static_cast<size_t>(tokens / grid_.hash_block_size - 1)], member});
    if (block == 0) return std::nullopt;
    blocks.push_back(block);
  }
  return blocks;
}

void Lookup::Cut(Scan& scan, int64_t tokens, int64_t block_size) {
  scan.tokens = tokens;
  for (Blocks& table : scan.tables) table.resize(static_cast<size_t>(CeilOf(tokens, block_size)));
}

Lookup::Scan Lookup::ScanFull(const Set& set, const std::vector<Prefix>& chain, int64_t limit,
                              bool drop) const {
  const int64_t size = set.spec.block_size;
  Scan scan{0, std::vector<Blocks>(set.members.size())};
  const auto append = [&](const Blocks& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) scan.tables[i].push_back(blocks[i]);
  };
  int64_t hit = 0;
  while (hit + size <= limit) {
    const auto blocks = InAll(set, chain, hit + size);
    if (!blocks) break;
    append(*blocks);
    hit += size;
  }
  if (grid_.alignment < size) {
    const int64_t whole = hit;
    for (int64_t end = whole + size - grid_.hash_block_size; end > whole && hit == whole;
         end -= grid_.hash_block_size) {
      if (end > limit) continue;
      if (const auto blocks = InAll(set, chain, end)) {
        append(*blocks);
        hit = end;
      }
    }
  }
  if (drop && hit > 0) hit -= std::min(grid_.alignment, size);
  Cut(scan, FloorTo(hit, grid_.alignment), size);
  return scan;
}

Lookup::Scan Lookup::ScanWindow(const Set& set, const std::vector<Prefix>& chain, int64_t limit,
                                bool drop) const {
  const int64_t size = set.spec.block_size;
  const int64_t given_up = drop ? 1 : 0;
  const int64_t need = CeilOf(set.spec.sliding_window - 1, size) + given_up;
  Scan scan{0, std::vector<Blocks>(set.members.size(), Blocks(static_cast<size_t>(limit / size)))};
  int64_t run = 0;
  int64_t end = -1;
  for (int64_t i = limit / size - 1; i >= 0; --i) {
    const auto blocks = InAll(set, chain, (i + 1) * size);
    if (!blocks) {
      run = 0;
      continue;
    }
    const bool on_grid = (i + 1 - given_up) * size % grid_.alignment == 0;
    if (run == 0 && !on_grid) continue;
    for (size_t m = 0; m < blocks->size(); ++m)
      scan.tables[m][static_cast<size_t>(i)] = blocks->at(m);
    ++run;
    if (run >= need) {
      end = i + run;
      break;
    }
  }
  // If no run is long enough, the run at the start of the prompt counts: it needs no block before
  // it.
  if (end < 0) end = FloorTo(run * size, grid_.alignment) / size;
  if (end > 0) end = FloorTo((end - given_up) * size, grid_.alignment) / size;
  Cut(scan, end * size, size);
  return scan;
}

Lookup::Scan Lookup::ScanChunked(const Set& set, const std::vector<Prefix>& chain,
                                 int64_t limit) const {
  const int64_t size = set.spec.block_size;
  int64_t hit = FloorTo(limit, set.spec.chunk_size);
  Scan scan{0, std::vector<Blocks>(set.members.size(), Blocks(static_cast<size_t>(hit / size)))};
  while (hit + size <= limit) {
    const auto blocks = InAll(set, chain, hit + size);
    if (!blocks) break;
    for (size_t i = 0; i < blocks->size(); ++i) scan.tables[i].push_back(blocks->at(i));
    hit += size;
  }
  scan.tokens = hit;
  return scan;
}

Lookup::Scan Lookup::ScanMamba(const Set& set, const std::vector<Prefix>& chain,
                               int64_t limit) const {
  const int64_t size = set.spec.block_size;
  Scan scan{0, std::vector<Blocks>(set.members.size())};
  for (int64_t end = FloorTo(limit, grid_.alignment); end > 0; end -= grid_.alignment) {
    const auto blocks = InAll(set, chain, end);
    if (!blocks) continue;
    Cut(scan, end, size);
    for (size_t i = 0; i < blocks->size(); ++i) scan.tables[i].back() = blocks->at(i);
    return scan;
  }
  return scan;
}

Lookup::Scan Lookup::ScanOf(const Set& set, const std::vector<Prefix>& chain, int64_t limit,
                            bool drop) const {
  if (limit <= 0) return {0, std::vector<Blocks>(set.members.size())};
  if (IsFull(set.spec)) return ScanFull(set, chain, limit, drop);
  if (IsWindow(set.spec)) return ScanWindow(set, chain, limit, drop);
  if (set.spec.kind == SpecKind::kMamba) return ScanMamba(set, chain, limit);
  return ScanChunked(set, chain, limit);
}

int64_t Lookup::LimitWithDrop(const Set& set, const std::vector<Prefix>& chain, int64_t tokens,
                              int64_t max_tokens) const {
  if (set.spec.kind == SpecKind::kMamba) return tokens;
  const int64_t hashed = static_cast<int64_t>(chain.size()) * grid_.hash_block_size;
  const int64_t most = grid_.to_last_hash ? hashed : max_tokens;
  return std::min(tokens + std::min(grid_.alignment, set.spec.block_size), most);
}

Lookup::Hit Lookup::FindTogether(const std::vector<Prefix>& chain, int64_t max_tokens) const {
  std::vector<Scan> scans(sets_.size());
  std::vector<bool> searched(sets_.size(), false);
  std::vector<bool> verified(sets_.size(), false);
  int64_t length = max_tokens;
  int64_t longest = 0;
  while (true) {
    int64_t current = length;
    for (size_t i = 0; i < sets_.size(); ++i) {
      const Set& set = sets_[i];
      if (IsFull(set.spec) && searched[i]) {
        current = std::min(current, scans[i].tokens);
        continue;
      }
      const bool drop = set.spec.eagle && !verified[i];
      const int64_t limit = drop ? LimitWithDrop(set, chain, current, max_tokens) : current;
      scans[i] = ScanOf(set, chain, limit, drop);
      searched[i] = true;
      if (drop) {
        verified[i] = true;
      } else if (scans[i].tokens < current) {
        verified.assign(verified.size(), false);
      }
      current = scans[i].tokens;
      longest = std::max(longest, current);
    }
    const bool agreed = current >= length;
    length = std::min(length, current);
    if (agreed || (sets_.size() == 2 && IsFull(sets_[0].spec))) break;
  }
  Hit hit{length, longest, std::vector<Blocks>(num_groups_)};
  for (size_t i = 0; i < sets_.size(); ++i) {
    Cut(scans[i], length, sets_[i].spec.block_size);
    for (size_t m = 0; m < sets_[i].members.size(); ++m) {
      hit.tables[sets_[i].members[m]] = scans[i].tables[m];
    }
  }
  return hit;
}

Lookup::Hit Lookup::Find(const std::vector<Prefix>& chain, int64_t max_tokens) const {
  if (sets_.empty() || max_tokens <= 0) return {0, 0, std::vector<Blocks>(num_groups_)};
  if (sets_.size() > 1) return FindTogether(chain, max_tokens);
  const bool drop = sets_[0].spec.eagle;
  const int64_t limit = drop ? LimitWithDrop(sets_[0], chain, max_tokens, max_tokens) : max_tokens;
  const Scan scan = ScanOf(sets_[0], chain, limit, drop);
  Hit hit{scan.tokens, scan.tokens, std::vector<Blocks>(num_groups_)};
  for (size_t m = 0; m < scan.tables.size(); ++m) hit.tables[sets_[0].members[m]] = scan.tables[m];
  return hit;
}

std::vector<int64_t> Lookup::FindPerGroup(const std::vector<Prefix>& chain,
                                          int64_t max_tokens) const {
  std::vector<int64_t> hits(num_groups_, 0);
  for (const Set& set : sets_) {
    const bool drop = set.spec.eagle;
    const int64_t limit = drop ? LimitWithDrop(set, chain, max_tokens, max_tokens) : max_tokens;
    const Scan scan = ScanOf(set, chain, limit, drop);
    for (const size_t member : set.members) hits[member] = scan.tokens;
  }
  return hits;
}

}  // namespace kvcast::naive
