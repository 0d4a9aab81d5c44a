// ReturnBook: how often the blocks of a prompt after its known boundary are used again.
//
// The boundary of a prompt is the end of the prefix that it shares with prompts of other
// conversations. The boundary is known if an earlier prompt had it too. The tail of the prompt, the
// part after the boundary, is used again if its conversation continues, or if another conversation
// shares more than the boundary.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>

#include "kvcast/router/speculative_prefixes.h"
#include "src/hash/seeded_hash.h"

namespace kvcast {

// The first prompt of a conversation, or a later one. The book learns a separate chance for each of
// the two.
enum class Turn : uint8_t { kFirst, kLater };

// Thread-compatible. All times are seconds of one clock that does not go back.
class ReturnBook {
 public:
  // `most`: maximum number of tails that may still be used again. Above this number, the book drops
  // the oldest tail. It also drops a tail after 2 * `most` later tails.
  explicit ReturnBook(size_t most = 65536) : most_(most) {}

  // Must be called when a prompt with a known boundary was routed. `conversation`: the
  // conversation's name after this prompt.
  void Routed(PrefixName conversation, Turn turn, double now_s);
  // Must be called when the conversation continues. `conversation`: its name before the new prompt.
  void Continued(PrefixName conversation);
  // Must be called when a prompt shares more than a known boundary with another conversation. The
  // turn of the other prompt is not known, so the event counts for both turns.
  void Shared();

  // A cautious estimate of the chance that a tail is used again: (uses + 3) / tails, at most 1. It
  // counts all uses, but only tails that are at least kSettledSeconds old. If no tail was used
  // again, the chance is lower than this estimate with 95 % certainty.
  double ChanceAtMost(Turn turn, double now_s);

 private:
  // Age in seconds from which a tail counts in Counts::settled. A reuse counts in Counts::used at
  // once, whatever the age of the tail.
  static constexpr double kSettledSeconds = 60;

  // A tail that is not old enough to count.
  struct Tail {
    Turn turn = Turn::kFirst;
    double at_s = 0;
  };
  // A tail that was not used again.
  struct Unused {
    Turn turn = Turn::kFirst;
    uint64_t order = 0;  // number of the tail; a later tail has a higher number
  };
  struct Counts {
    double settled = 0;  // tails
    double used = 0;     // times that a tail was used again
  };

  void Settle(double now_s);
  void DropOldest();
  Counts& of(Turn turn) { return counts_[static_cast<size_t>(turn)]; }
  Counts& of(const Unused& tail) { return of(tail.turn); }

  const size_t most_;
  std::array<Counts, 2> counts_;
  std::deque<Tail> unsettled_;                                               // oldest first
  std::unordered_map<PrefixName, Unused, router::SeededNumberHash> unused_;  // by conversation
  // The name and the order of each tail in unused_, and of tails that are no longer in unused_.
  // Oldest first.
  std::deque<std::pair<PrefixName, uint64_t>> by_age_;
  uint64_t next_order_ = 0;
};

}  // namespace kvcast
