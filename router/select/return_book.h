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

#include "kvcast/router/speculative_prefixes.h"

namespace kvcast {

// The first prompt of a conversation, or a later one. The chances of the two are learned apart.
enum class Turn : uint8_t { kFirst, kLater };

// Thread-compatible. All times are seconds of one clock that does not go back.
class ReturnBook {
 public:
  // `most`: the most tails that may still be used again. The book drops the oldest ones.
  explicit ReturnBook(size_t most = 65536) : most_(most) {}

  // A prompt with a known boundary was routed. `conversation`: its name from now on.
  void Routed(PrefixName conversation, Turn turn, double now_s);
  // The conversation continues.
  void Continued(PrefixName conversation);
  // A prompt of another conversation shares more than a known boundary. It is not known with which
  // prompt, so it counts for both turns.
  void Shared();

  // An upper limit of the chance that a tail is used again, with 95 % certainty. It follows from
  // the tails that are older than kSettled seconds. Without any, 1.
  double ChanceAtMost(Turn turn, double now_s);

 private:
  // A tail that is used again later than this counts as used again from then on.
  static constexpr double kSettledSeconds = 60;

  struct Tail {
    Turn turn = Turn::kFirst;
    double at_s = 0;
  };
  struct Counts {
    double settled = 0;  // tails
    double used = 0;     // times that a tail was used again
  };

  void Settle(double now_s);
  Counts& of(Turn turn) { return counts_[static_cast<size_t>(turn)]; }

  const size_t most_;
  std::array<Counts, 2> counts_;
  std::deque<Tail> unsettled_;                   // oldest first
  std::unordered_map<PrefixName, Turn> unused_;  // by conversation
  std::deque<PrefixName> by_age_;                // of unused_, and names that left it
};

}  // namespace kvcast
