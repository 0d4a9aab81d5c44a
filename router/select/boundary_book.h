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
  // `most`: the most boundaries. The book drops those that it learned first.
  explicit BoundaryBook(size_t most = 65536) : most_(most) {}

  // A prompt shares the prefix `name` with prompts of other conversations, and nothing after it.
  void Seen(PrefixName name);
  // True: an earlier prompt had this boundary.
  bool Knows(PrefixName name) const { return counts_.contains(name); }
  // The chance that a boundary is seen again, after this prompt and the earlier ones with it.
  double ChanceOfAnother(PrefixName name) const;

 private:
  // Boundaries that were seen more often count as seen kLevels - 1 times.
  static constexpr size_t kLevels = 8;

  size_t CountOf(PrefixName name) const;

  const size_t most_;
  std::unordered_map<PrefixName, uint8_t, router::SeededNumberHash> counts_;
  std::deque<PrefixName> by_age_;
  std::array<double, kLevels> reached_{};  // boundaries that were seen at least n times
};

}  // namespace kvcast
