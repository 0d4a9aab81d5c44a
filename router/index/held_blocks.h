// HeldBlocks: the blocks of a prompt that the workers of one class hold.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcast/core/tier.h"
#include "kvcast/router/content_key.h"
#include "router/index/holding_classes.h"

namespace kvcast::router {

// Keeps its memory from query to query. Thread-compatible.
class HeldBlocks {
 public:
  // The held blocks in one group and tier. Bit i of `positions`: the workers hold the block that
  // ends with unit i of the prompt.
  struct Part {
    uint8_t group;
    Tier tier;
    std::span<const uint64_t> positions;
  };

  // Reads the blocks of the class. `units`: the number of hash units of the prompt. `contents`: the
  // content keys of these units; empty if the query found all blocks by hash.
  void Read(const HoldingClasses& classes, ClassId id, size_t units,
            std::span<const ContentKey> contents);

  const WorkerRules& rules() const { return *root_.rules; }
  const HoldingClasses::Root& root() const { return root_; }
  size_t parts() const { return kinds_.size(); }
  Part part(size_t i) const {
    return {static_cast<uint8_t>(kinds_[i] >> 8), static_cast<Tier>(kinds_[i] & 0xFF),
            std::span(words_).subspan(i * width_, width_)};
  }
  // True: the worker sent contradicting names for a block of the prompt. The block is left out.
  bool ambiguous() const { return ambiguous_; }
  // If contents were given: the number of units up to the last block that the query found by hash.
  // 0: the query found no block by hash, or no contents were given.
  int64_t unnamed_units() const { return unnamed_units_; }

 private:
  void Add(const HoldingClasses::Node& node, const HoldingClasses::Stretch& stretch);
  size_t PartOf(uint16_t kind);
  void DropPositionsWithTwoHashes(const HoldingClasses& classes);
  void DropAmbiguous(std::span<const ContentKey> contents);
  void Drop(size_t position);

  HoldingClasses::Root root_;
  size_t width_ = 0;                        // words of a part
  std::vector<HoldingClasses::Node> path_;  // without the root
  std::vector<uint16_t> kinds_;             // by part
  std::vector<uint64_t> words_;
  bool ambiguous_ = false;
  int64_t unnamed_units_ = 0;
};

}  // namespace kvcast::router
