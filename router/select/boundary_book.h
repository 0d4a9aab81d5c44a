// BoundaryBook: how often prompts of different conversations end their common prefix at the same
// boundary, and the chance that another prompt with this boundary comes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "kvcast/router/speculative_prefixes.h"
#include "src/hash/seeded_hash.h"

namespace kvcast {

// Thread-compatible.
class BoundaryBook {
 public:
  // `most`: maximum number of boundaries. Above this number, the book drops the oldest boundary.
  explicit BoundaryBook(size_t most = 65536) : most_(most) {}

  // Must be called when a prompt shares exactly the prefix `name` with prompts of other
  // conversations.
  void Seen(PrefixName name);
  // True: an earlier prompt had this boundary.
  bool Knows(PrefixName name) const { return counts_.contains(name); }
  // The chance that one more prompt has the boundary, after the current prompt and the earlier
  // prompts with this boundary.
  double ChanceOfAnother(PrefixName name) const;

 private:
  // A boundary that was seen kLevels times or more counts as seen kLevels - 1 times.
  static constexpr size_t kLevels = 8;

  size_t CountOf(PrefixName name) const;

  const size_t most_;
  std::unordered_map<PrefixName, uint8_t, router::SeededNumberHash> counts_;
  std::deque<PrefixName> by_age_;
  std::array<double, kLevels> reached_{};  // [n]: boundaries that were seen at least n times
};

}  // namespace kvcast
