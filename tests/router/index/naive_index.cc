// SPDX-License-Identifier: Apache-2.0
#include "tests/router/index/naive_index.h"

#include <algorithm>

namespace kvcast::testing {

bool NaiveWorker::Remove(int tier, int64_t group, uint64_t hash) {
  const auto it = copies.find({tier, group, hash});
  if (it == copies.end()) return false;
  if (--it->second == 0) copies.erase(it);
  return true;
}

void NaiveWorker::Clear(int tier) {
  std::erase_if(copies, [tier](const auto& entry) { return std::get<0>(entry.first) == tier; });
}

// True if the group holds the whole block, and the block ends within the first `max_tokens` tokens.
bool NaiveWorker::HoldsBlock(int64_t group, const std::vector<uint64_t>& chain, int64_t block,
                             int64_t max_tokens) const {
  const int64_t size = groups[static_cast<size_t>(group)].block_size;
  const int64_t end_tokens = (block + 1) * size;
  const int64_t last_hash = end_tokens / hash_block_size - 1;
  if (block < 0 || end_tokens > max_tokens || last_hash >= std::ssize(chain)) return false;
  return Holds(group, chain[static_cast<size_t>(last_hash)]);
}

// True if the group holds an entry that ends in the block of the boundary, at or behind the
// boundary. (Engines cache the end of a prompt inside a block under such an entry.)
bool NaiveWorker::PartialCovers(int64_t group, const std::vector<uint64_t>& chain, int64_t boundary,
                                int64_t max_tokens) const {
  const int64_t size = groups[static_cast<size_t>(group)].block_size;
  const int64_t block_end = CeilDiv(boundary, size) * size;
  for (int64_t end = boundary; end < block_end && end <= max_tokens; end += hash_block_size) {
    const int64_t hash = end / hash_block_size - 1;
    if (hash < std::ssize(chain) && Holds(group, chain[static_cast<size_t>(hash)])) return true;
  }
  return false;
}

bool NaiveWorker::Usable(int64_t group, const std::vector<uint64_t>& chain, int64_t boundary,
                         int64_t max_tokens) const {
  const GroupSpec& spec = groups[static_cast<size_t>(group)];
  const int64_t blocks = boundary / spec.block_size;
  const bool inside = boundary % spec.block_size != 0;
  if (boundary == 0) return true;
  int64_t first = 0;
  if (spec.kind == SpecKind::kMamba) {
    const int64_t hash = boundary / hash_block_size - 1;
    return Holds(group, chain[static_cast<size_t>(hash)]);
  }
  if (spec.kind == SpecKind::kSlidingWindow) {
    if (inside) return false;
    first = std::max<int64_t>(
        0, blocks - std::max<int64_t>(1, CeilDiv(spec.sliding_window - 1, spec.block_size)));
  }
  if (spec.kind == SpecKind::kChunkedLocalAttention) {
    if (inside) return false;
    first = boundary / spec.chunk_size * spec.chunk_size / spec.block_size;
  }
  for (int64_t block = first; block < blocks; ++block) {
    if (!HoldsBlock(group, chain, block, max_tokens)) return false;
  }
  return !inside || HoldsBlock(group, chain, blocks, max_tokens) ||
         PartialCovers(group, chain, boundary, max_tokens);
}

int64_t NaiveWorker::Match(const std::vector<uint64_t>& chain, int64_t tokens) const {
  const int64_t max_tokens =
      std::min(tokens - 1, std::ssize(chain) * hash_block_size) / hash_block_size * hash_block_size;
  int64_t best = 0;
  for (int64_t boundary = alignment; boundary <= max_tokens; boundary += alignment) {
    bool usable = true;
    for (int64_t group = 0; group < std::ssize(groups); ++group) {
      usable = usable && Usable(group, chain, boundary, max_tokens);
    }
    if (usable) best = boundary;
  }
  return best;
}

// True if a tier from 1 to `last_tier` holds the group's entry that ends at `end` tokens.
bool NaiveWorker::OnLowerTier(int64_t group, const std::vector<uint64_t>& chain, int64_t end,
                              int last_tier) const {
  if (end / hash_block_size > std::ssize(chain)) return false;
  for (int tier = 1; tier <= last_tier; ++tier) {
    if (copies.count({tier, group, chain[static_cast<size_t>(end / hash_block_size - 1)]}) > 0)
      return true;
  }
  return false;
}

// True if a prefix of `end` tokens is usable in the group. Each block that the prefix needs must
// lie in the first `local` tokens, or be on a lower tier.
bool NaiveWorker::Loadable(int64_t group, const std::vector<uint64_t>& chain, int64_t end,
                           int64_t local, int last_tier) const {
  const GroupSpec& spec = groups[static_cast<size_t>(group)];
  const int64_t size = spec.block_size;
  const int64_t blocks = CeilDiv(end, size);
  int64_t need = blocks;
  if (spec.kind == SpecKind::kMamba) need = 1;
  if (spec.kind == SpecKind::kSlidingWindow) need = CeilDiv(spec.sliding_window, size);
  if (spec.kind == SpecKind::kChunkedLocalAttention) need = CeilDiv(spec.chunk_size, size);
  if (spec.kind == SpecKind::kMamba && end % size != 0) return false;
  for (int64_t block = std::max(local / size, blocks - need); block < blocks; ++block) {
    if (!OnLowerTier(group, chain, (block + 1) * size, last_tier)) return false;
  }
  return true;
}

// True if loads may end inside a block: all groups have full attention or Mamba states and the same
// block size, and a Mamba group has blocks larger than hash_block_size.
bool NaiveWorker::EndsInsideBlocks() const {
  bool states = false;
  for (const GroupSpec& spec : groups) {
    if (spec.kind != SpecKind::kFullAttention && spec.kind != SpecKind::kMamba) return false;
    if (spec.block_size != groups[0].block_size) return false;
    states = states || (spec.kind == SpecKind::kMamba && spec.block_size > hash_block_size);
  }
  return states;
}

int64_t NaiveWorker::WithTail(const std::vector<uint64_t>& chain, int64_t tokens, int64_t end,
                              int last_tier) const {
  if (!EndsInsideBlocks()) return end;
  const int64_t size = groups[0].block_size;
  const int64_t next_block = (end / size + 1) * size;
  for (int64_t tail = std::min(tokens - 1, end + size - 1) / hash_block_size * hash_block_size;
       tail > end; tail -= hash_block_size) {
    bool all = true;
    for (int64_t group = 0; group < std::ssize(groups); ++group) {
      all = all && OnLowerTier(group, chain, tail, last_tier);
      const bool states = groups[static_cast<size_t>(group)].kind == SpecKind::kMamba;
      if (tail >= next_block && !states) {
        all = all && OnLowerTier(group, chain, next_block, last_tier);
      }
    }
    if (all) return tail;
  }
  return end;
}

int64_t NaiveWorker::WithLoads(const std::vector<uint64_t>& chain, int64_t tokens, int64_t local,
                               int last_tier) const {
  const bool full_only = std::all_of(groups.begin(), groups.end(), [](const GroupSpec& spec) {
    return spec.kind == SpecKind::kFullAttention;
  });
  for (int64_t end = full_only ? tokens : tokens - 1; end > local; --end) {
    bool all = true;
    for (int64_t group = 0; group < std::ssize(groups); ++group) {
      all = all && Loadable(group, chain, end, local, last_tier);
    }
    if (all) return std::min(end, tokens - 1);
  }
  return local;
}

}  // namespace kvcast::testing
