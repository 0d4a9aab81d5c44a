// SPDX-License-Identifier: Apache-2.0
#include "router/index/held_blocks.h"

#include <algorithm>
#include <bit>

namespace kvcast::router {
namespace {

// Calls `visit(position)` for each block of the node, in rising order.
template <typename Visit>
void ForEachPosition(const HoldingClasses::Node& node, const HoldingClasses::Stretch& stretch,
                     Visit&& visit) {
  for (uint64_t bits = node.bits; bits != 0; bits &= bits - 1) {
    visit(stretch.position + static_cast<size_t>(std::countr_zero(bits)) * stretch.step);
  }
}

void SetLeading(uint64_t blocks, uint64_t* words) {
  for (; blocks >= 64; blocks -= 64) *words++ = ~uint64_t{0};
  if (blocks > 0) *words |= (uint64_t{1} << blocks) - 1;
}

}  // namespace

void HeldBlocks::Read(const HoldingClasses& classes, ClassId id, size_t units,
                      std::span<const ContentKey> contents) {
  width_ = (units + 63) / 64;
  path_.clear();
  kinds_.clear();
  words_.clear();
  ambiguous_ = false;
  unnamed_units_ = 0;
  for (; classes.node(id).parent != kNoClass; id = classes.node(id).parent) {
    path_.push_back(classes.node(id));
  }
  root_ = classes.root(classes.node(id).number);
  std::reverse(path_.begin(), path_.end());
  for (const HoldingClasses::Node& node : path_) {
    const HoldingClasses::Stretch& stretch = classes.stretch(node.number);
    if (!stretch.by_hash) Add(node, stretch);
  }
  if (classes.overlaps()) DropPositionsWithTwoHashes(classes);
  if (root_.ambiguous != nullptr) DropAmbiguous(contents);
  for (const HoldingClasses::Node& node : path_) {
    const HoldingClasses::Stretch& stretch = classes.stretch(node.number);
    if (!stretch.by_hash) continue;
    Add(node, stretch);
    if (contents.empty()) continue;
    const auto end =
        static_cast<int64_t>(stretch.position) + static_cast<int64_t>(std::bit_width(node.bits));
    unnamed_units_ = std::max(unnamed_units_, end);
  }
}

void HeldBlocks::Add(const HoldingClasses::Node& node, const HoldingClasses::Stretch& stretch) {
  const size_t part = PartOf(node.kind);
  uint64_t* const words = words_.data() + part * width_;
  if (stretch.step == 0) return SetLeading(node.bits, words);
  if (stretch.step != 1) {
    return ForEachPosition(node, stretch, [words](size_t position) {
      words[position / 64] |= uint64_t{1} << position % 64;
    });
  }
  const size_t shift = stretch.position % 64;
  words[stretch.position / 64] |= node.bits << shift;
  const uint64_t above = shift == 0 ? 0 : node.bits >> (64 - shift);
  if (above != 0) words[stretch.position / 64 + 1] |= above;
}

size_t HeldBlocks::PartOf(uint16_t kind) {
  const auto known = std::find(kinds_.begin(), kinds_.end(), kind);
  const auto part = static_cast<size_t>(known - kinds_.begin());
  if (known == kinds_.end()) {
    kinds_.push_back(kind);
    words_.resize(words_.size() + width_);
  }
  return part;
}

// Drops each position at which two stretches have a block of the same size. At such a position, the
// workers hold two hashes of one content.
void HeldBlocks::DropPositionsWithTwoHashes(const HoldingClasses& classes) {
  std::vector<uint32_t> steps;
  for (const HoldingClasses::Node& node : path_) {
    const HoldingClasses::Stretch& stretch = classes.stretch(node.number);
    if (!stretch.by_hash && stretch.step != 0) steps.push_back(stretch.step);
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  for (const uint32_t step : steps) {
    constexpr uint32_t kNone = ~uint32_t{0};
    std::vector<uint32_t> stretch_of(width_ * 64, kNone);  // by position
    for (const HoldingClasses::Node& node : path_) {
      const HoldingClasses::Stretch& stretch = classes.stretch(node.number);
      if (stretch.by_hash || stretch.step != step) continue;
      ForEachPosition(node, stretch, [&](size_t position) {
        uint32_t& holds = stretch_of[position];
        if (holds != kNone && holds != node.number) Drop(position);
        holds = node.number;
      });
    }
  }
}

void HeldBlocks::DropAmbiguous(std::span<const ContentKey> contents) {
  for (size_t i = 0; i < contents.size(); ++i) {
    if (root_.ambiguous->HasContent(contents[i])) Drop(i);
  }
}

void HeldBlocks::Drop(size_t position) {
  ambiguous_ = true;
  for (size_t part = 0; part < kinds_.size(); ++part) {
    words_[part * width_ + position / 64] &= ~(uint64_t{1} << position % 64);
  }
}

}  // namespace kvcast::router
