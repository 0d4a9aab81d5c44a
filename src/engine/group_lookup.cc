// SPDX-License-Identifier: Apache-2.0
#include "src/engine/group_lookup.h"

#include <algorithm>

#include "src/base/check.h"
#include "src/spec/window.h"

namespace kvcast::engine {
namespace {

// Number of blocks that a backward search probes before it applies the rule of the kind.
constexpr int64_t kSearchStride = 32;
// A block is prefetched this number of blocks before its memory is read.
constexpr int64_t kLookupDistance = 8;

}  // namespace

GroupLookup::GroupLookup(const internal::SpecGroup& group, const BlockPool& pool, int64_t alignment)
    : spec_(group.spec),
      pool_(pool),
      alignment_(alignment),
      inside_blocks_(alignment < group.spec.block_size),
      unit_(internal::DropUnit(group.spec, alignment)),
      block_ids_(group.members.size()),
      partial_ids_(group.members.size()) {
  residency_.spec = spec_;
  for (const size_t member : group.members) {
    members_.push_back(GroupIdx(static_cast<uint32_t>(member)));
  }
}

void GroupLookup::Begin(std::span<const Digest> chain, int64_t tokens_before) {
  chain_ = chain;
  residency_.tokens_before = tokens_before;
  const auto units = static_cast<int64_t>(chain.size());
  const int64_t blocks = units / (spec_.block_size / pool_.hash_block_size());
  residency_.blocks.Resize(blocks);
  probed_blocks_.Resize(blocks);
  for (auto& ids : block_ids_) ids.assign(static_cast<size_t>(blocks), kNullBlock);
  if (!inside_blocks_) return;
  residency_.partial_ends.Resize(units);
  probed_ends_.Resize(units);
  for (auto& ids : partial_ids_) ids.assign(static_cast<size_t>(units), kNullBlock);
}

bool GroupLookup::FindInAll(const Digest& digest, std::vector<std::vector<BlockId>>& ids,
                            int64_t index) {
  for (size_t i = 0; i < members_.size(); ++i) {
    const auto block = pool_.FindCached(digest, members_[i]);
    if (!block) return false;
    ids[i][static_cast<size_t>(index)] = *block;
  }
  return true;
}

bool GroupLookup::ProbeBlock(int64_t index) {
  if (index >= residency_.blocks.size()) return false;
  if (!probed_blocks_.Test(index)) {
    probed_blocks_.Set(index);
    const int64_t units_per_block = spec_.block_size / pool_.hash_block_size();
    const Digest& digest = BlockDigest(chain_, index, units_per_block);
    if (FindInAll(digest, block_ids_, index)) residency_.blocks.Set(index);
  }
  return residency_.blocks.Test(index);
}

void GroupLookup::Prefetch(int64_t index) const {
  if (index >= residency_.blocks.size()) return;
  const Digest& digest = BlockDigest(chain_, index, spec_.block_size / pool_.hash_block_size());
  for (const GroupIdx member : members_) pool_.PrefetchCached(digest, member);
}

void GroupLookup::ProbePartialEnd(int64_t end_unit) {
  const int64_t last = end_unit - 1;
  if (last >= probed_ends_.size() || probed_ends_.Test(last)) return;
  probed_ends_.Set(last);
  if (FindInAll(chain_[static_cast<size_t>(last)], partial_ids_, last)) {
    residency_.partial_ends.Set(last);
  }
}

void GroupLookup::ProbeForward(int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end && ProbeBlock(i); ++i) Prefetch(i + kLookupDistance);
}

void GroupLookup::ProbeFull(int64_t max_units) {
  const int64_t units_per_block = spec_.block_size / unit_;
  int64_t run = 0;
  for (; run < max_units / units_per_block && ProbeBlock(run); ++run) {
    Prefetch(run + kLookupDistance);
  }
  const int64_t covered = run * units_per_block;
  for (int64_t end = std::min(covered + units_per_block - 1, max_units); end > covered; --end) {
    ProbePartialEnd(end);
    if (residency_.partial_ends.Test(end - 1)) return;
  }
}

int64_t GroupLookup::HighestHit(int64_t max_units) const {
  const Bitmap usable = UsableBoundaries(residency_, unit_, max_units, alignment_);
  return HighestBoundary(usable, alignment_ / unit_) * unit_;
}

int64_t GroupLookup::SearchBackward(int64_t max_units) {
  const int64_t units_per_block = spec_.block_size / unit_;
  int64_t hit = 0;
  // Blocks that were not probed count as absent. A found hit is the longest hit nevertheless: a
  // longer hit needs no block before the first block that the found hit needs, and the search has
  // probed all blocks from that block on.
  for (int64_t end = max_units; end > 0 && hit == 0;) {
    const int64_t begin = std::max<int64_t>(0, end - kSearchStride * units_per_block);
    for (int64_t end_unit = end; end_unit > begin; --end_unit) {
      if (end_unit % units_per_block == 0) {
        ProbeBlock(end_unit / units_per_block - 1);
      } else if (inside_blocks_) {
        ProbePartialEnd(end_unit);
      }
    }
    end = begin;
    hit = HighestHit(max_units);
  }
  return hit;
}

int64_t GroupLookup::LongestHit(int64_t max_tokens, bool drop_eagle) {
  residency_.spec.eagle = drop_eagle;
  const int64_t max_units = max_tokens / unit_;
  const SpecKind kind = spec_.kind;
  if (IsWindowKind(kind) || kind == SpecKind::kMamba) return SearchBackward(max_units);
  if (IsFullKind(kind)) {
    ProbeFull(max_units);
  } else {
    const int64_t limit = max_tokens / spec_.block_size;
    ProbeForward(FirstNeededBlock(limit * spec_.block_size), limit);
  }
  return HighestHit(max_units);
}

int64_t GroupLookup::FirstNeededBlock(int64_t hit_tokens) const {
  if (IsWindowKind(spec_.kind)) {
    const int64_t need = internal::RequiredWindowBlocks(residency_.spec);
    return std::max<int64_t>(0, hit_tokens / spec_.block_size - need);
  }
  if (spec_.kind == SpecKind::kMamba)
    return std::max<int64_t>(0, hit_tokens - 1) / spec_.block_size;
  const int64_t before = residency_.tokens_before;
  const int64_t skipped = SkippedTokens(spec_, before + hit_tokens) - before;
  return std::max<int64_t>(0, skipped) / spec_.block_size;
}

void GroupLookup::FillTables(int64_t hit_tokens, std::vector<std::vector<BlockId>>& tables) const {
  const int64_t block_size = spec_.block_size;
  const int64_t whole = hit_tokens / block_size;
  const int64_t first = FirstNeededBlock(hit_tokens);
  for (size_t i = 0; i < members_.size(); ++i) {
    std::vector<BlockId>& table = tables[members_[i].value];
    table.assign(static_cast<size_t>(CeilDiv(hit_tokens, block_size)), kNullBlock);
    for (int64_t j = first; j < whole; ++j) {
      table[static_cast<size_t>(j)] = block_ids_[i][static_cast<size_t>(j)];
    }
    if (hit_tokens % block_size == 0) continue;
    // The tail of a full-attention hit is the whole block, if this block is resident. Otherwise the
    // tail is the block of the first partial entry that ends at or after the hit. A full-attention
    // block serves every boundary before the end of its entry.
    if (IsFullKind(spec_.kind) && residency_.blocks.Test(whole)) {
      table.back() = block_ids_[i][static_cast<size_t>(whole)];
      continue;
    }
    int64_t last = hit_tokens / unit_ - 1;
    while (last < residency_.partial_ends.size() && !residency_.partial_ends.Test(last)) ++last;
    KV_CHECK(last < residency_.partial_ends.size());
    table.back() = partial_ids_[i][static_cast<size_t>(last)];
  }
}

}  // namespace kvcast::engine
