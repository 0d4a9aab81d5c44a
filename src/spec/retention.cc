// SPDX-License-Identifier: Apache-2.0
#include "src/spec/retention.h"

#include <algorithm>

#include "src/spec/window.h"

namespace kvcast::internal {
namespace {

// The blocks that a hit at a boundary needs: `blocks` consecutive blocks. The last block ends
// `shift` blocks after the boundary.
struct Tail {
  int64_t blocks;
  int64_t shift;
};

Tail TailOf(const GroupSpec& spec) {
  if (spec.kind == SpecKind::kMamba) return {1, 0};
  const int64_t window = WindowBlocks(spec);
  // EAGLE examines one block after the boundary and drops it.
  return spec.eagle ? Tail{window + 1, 1} : Tail{window, 0};
}

// Distance in blocks between the boundaries that are kept for every request; 0: no such boundaries.
int64_t SegmentBlocks(const RetentionRule& rule) {
  if (rule.interval) return *rule.interval / rule.spec.block_size;
  return rule.alignment / rule.spec.block_size;
}

void KeepSegmentTails(const Tail& tail, int64_t segment, int64_t begin, int64_t end, Bitmap& mask) {
  for (int64_t i = std::max(begin, tail.shift); i < end; ++i) {
    if ((i - tail.shift) % segment >= segment - tail.blocks) mask.Set(i - begin);
  }
}

void KeepBoundaryTail(const RetentionRule& rule, const Tail& tail, int64_t boundary, int64_t begin,
                      int64_t end, Bitmap& mask) {
  const int64_t aligned = boundary / rule.alignment * rule.alignment;
  const int64_t tail_end = aligned / rule.spec.block_size + tail.shift;
  const int64_t last = std::min(end, tail_end);
  for (int64_t i = std::max(begin, tail_end - tail.blocks); i < last; ++i) mask.Set(i - begin);
}

}  // namespace

int64_t TailBlocks(const GroupSpec& spec) { return TailOf(spec).blocks; }

bool FillRetentionMask(const RetentionRule& rule, int64_t begin, int64_t end,
                       std::span<const int64_t> boundaries, Bitmap& mask) {
  const bool is_mamba = rule.spec.kind == SpecKind::kMamba;
  if (!is_mamba && !IsWindowKind(rule.spec.kind)) return false;
  if (is_mamba && !rule.interval) return false;
  // Hits may end inside a block, so every block is kept.
  if (!is_mamba && rule.alignment % rule.spec.block_size != 0) return false;
  const Tail tail = TailOf(rule.spec);
  const int64_t segment = SegmentBlocks(rule);
  if (segment > 0 && tail.blocks >= segment) return false;
  mask.Resize(end - begin);
  if (segment > 0) KeepSegmentTails(tail, segment, begin, end, mask);
  if (!rule.interval) return true;
  for (const int64_t boundary : boundaries) {
    KeepBoundaryTail(rule, tail, boundary, begin, end, mask);
  }
  return true;
}

}  // namespace kvcast::internal
