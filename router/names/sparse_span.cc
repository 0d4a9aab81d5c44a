// SPDX-License-Identifier: Apache-2.0
#include "router/names/sparse_span.h"

#include <algorithm>
#include <span>

#include "src/spec/retention.h"

namespace kvcast::router {
namespace {

using internal::FillRetentionMask;
using internal::RetentionRule;

// Maximum number of boundaries near the span, because boundaries are tried in pairs. The hashes of
// a span with more boundaries stay unplaced.
constexpr int64_t kMaxBoundaries = 90;

// Maximum number of blocks in the masks of all pairs together. The hashes of a longer span stay
// unplaced.
constexpr int64_t kMaxMaskedBlocks = int64_t{1} << 24;

// The choices of blocks that the rule allows, and the blocks that all choices have in common.
class Choices {
 public:
  Choices(int64_t blocks, const std::vector<int64_t>& placed)
      : blocks_(blocks), placed_(placed), choice_(placed.size()) {}

  // Considers the choice that follows from one mask. The engine caches the blocks of the span that
  // are set in `mask` (nullptr: all), except the first blocks that left the window before they were
  // cached. So the k hashes of the store name the last k blocks of the mask.
  void Consider(const Bitmap* mask) {
    size_t left = choice_.size();
    for (int64_t block = blocks_ - 1; block >= 0 && left > 0; --block) {
      if (mask == nullptr || mask->Test(block)) choice_[--left] = block;
    }
    if (left > 0 || !Agrees()) return;
    if (!any_) common_ = choice_;
    any_ = true;
    for (size_t i = 0; i < choice_.size(); ++i) {
      if (common_[i] != choice_[i]) common_[i] = kNoBlock;
    }
  }
  bool any() const { return any_; }
  const std::vector<int64_t>& common() const { return common_; }

 private:
  bool Agrees() const {
    for (size_t i = 0; i < choice_.size(); ++i) {
      if (placed_[i] != kNoBlock && placed_[i] != choice_[i]) return false;
    }
    return true;
  }

  int64_t blocks_;
  const std::vector<int64_t>& placed_;
  std::vector<int64_t> choice_;
  std::vector<int64_t> common_;
  bool any_ = false;
};

// Returns the multiples of the alignment whose tail (the blocks that a hit at the boundary needs)
// may lie in the span. Adds one multiple whose tail lies outside the span. Each multiple may be the
// prompt's end, or a boundary that the prompt shares with other prompts. The event does not show
// which multiples these are. Empty: there are too many multiples.
std::vector<int64_t> PossibleBoundaries(const RetentionRule& rule, int64_t first_block,
                                        int64_t blocks) {
  const int64_t size = rule.spec.block_size;
  const int64_t tail = internal::TailBlocks(rule.spec);
  const int64_t last = (first_block + blocks + tail) * size / rule.alignment + 1;
  const int64_t first = first_block * size / rule.alignment;
  std::vector<int64_t> boundaries;
  if (last - first >= kMaxBoundaries) return boundaries;
  for (int64_t i = first; i <= last; ++i) {
    boundaries.push_back(i * rule.alignment);
  }
  boundaries.push_back((last + 1) * rule.alignment);
  return boundaries;
}

bool TryBoundaries(const RetentionRule& rule, int64_t first_block, int64_t blocks,
                   Choices& choices) {
  const std::vector<int64_t> boundaries = PossibleBoundaries(rule, first_block, blocks);
  const int64_t pairs = std::ssize(boundaries) * (std::ssize(boundaries) + 1) / 2;
  if (boundaries.empty() || pairs * blocks > kMaxMaskedBlocks) return false;
  Bitmap mask;
  for (size_t i = 0; i < boundaries.size(); ++i) {
    for (size_t j = i; j < boundaries.size(); ++j) {
      const int64_t pair[] = {boundaries[i], boundaries[j]};
      FillRetentionMask(rule, first_block, first_block + blocks, pair, mask);
      choices.Consider(&mask);
    }
  }
  return true;
}

bool LosesOnlyAPrefix(SpecKind kind) {
  return IsWindowKind(kind) || kind == SpecKind::kChunkedLocalAttention;
}

}  // namespace

bool PlaceByCounting(int64_t blocks, std::vector<int64_t>& blocks_of) {
  const auto count = static_cast<int64_t>(blocks_of.size());
  // Every hash before and behind a placed hash needs a block of its own.
  int64_t before = -1;
  int64_t before_hash = -1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t block = blocks_of[static_cast<size_t>(i)];
    if (block == kNoBlock) continue;
    if (block - before < i - before_hash || blocks - block < count - i) return false;
    before = block;
    before_hash = i;
  }
  before = -1;
  before_hash = -1;
  for (int64_t i = 0; i <= count; ++i) {
    const int64_t block = i == count ? blocks : blocks_of[static_cast<size_t>(i)];
    if (block == kNoBlock) continue;
    if (block - before == i - before_hash) {
      for (int64_t j = before_hash + 1; j < i; ++j) {
        blocks_of[static_cast<size_t>(j)] = before + j - before_hash;
      }
    }
    before = block;
    before_hash = i;
  }
  return true;
}

bool PlaceByRule(const SparseRule& rule, const GroupSpec& spec, int64_t first_block, int64_t blocks,
                 std::vector<int64_t>& blocks_of) {
  if (!LosesOnlyAPrefix(spec.kind)) return true;
  const RetentionRule retention{spec, rule.alignment, rule.retention_interval};
  const int64_t end = first_block + blocks;
  Choices choices(blocks, blocks_of);
  Bitmap mask;
  const bool masked = rule.rules >= EngineRules::kMain2026May &&
                      FillRetentionMask(retention, first_block, end, {}, mask);
  if (!masked) {
    choices.Consider(nullptr);
  } else if (!rule.retention_interval) {
    choices.Consider(&mask);
  } else if (!TryBoundaries(retention, first_block, blocks, choices)) {
    return true;
  }
  if (!choices.any()) return false;
  blocks_of = choices.common();
  return true;
}

}  // namespace kvcast::router
