// KindProofs: for which kinds of key a source's scheme is proven, and when each is tested next.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvcast/router/scheme_detector.h"
#include "router/names/key_readings.h"

namespace kvcast::router {

class KindProofs {
 public:
  using States = std::array<KeyKindState, kKeyKinds>;
  using Counters = std::array<KeyKindCounters, kKeyKinds>;

  explicit KindProofs(uint64_t period) : period_(period) {}

  // Of the kinds of a testable store, those that are to be tested in it: kinds with keys in turn,
  // and every kind that lacks its proof, until too many tests in a row have given none.
  KeyKindSet TakeTurns(KeyKindSet present);
  // Every kind is tested with its next store.
  void RestartTurns();

  // A block of these kinds fits, in this form, with so many tokens of lookahead. True: a proof of
  // the other form was contradicted.
  bool Fit(KeyKindSet kinds, ExtraKeyScheme form, int64_t lookahead);
  // A block of these kinds fits no form, and nothing was left to try. True: a proof was
  // contradicted.
  bool Refute(KeyKindSet kinds);
  // A block of these kinds fits no form, and that says nothing, or it could not be tested.
  void NoteOpen(KeyKindSet kinds, std::string_view reason);
  // The proof of these kinds no longer holds.
  void Withdraw(KeyKindSet kinds, std::string_view reason);
  // Another scheme: no proof and no turn is kept.
  void Reset();

  bool IsAnyProven(KeyKindSet kinds) const { return Unproven(kinds) != kinds; }
  bool IsEveryProven(KeyKindSet kinds) const { return Unproven(kinds).none(); }
  KeyKindSet Unproven(KeyKindSet kinds) const;
  // The form of the last keys that fit; nullopt: none has.
  std::optional<ExtraKeyScheme> form() const { return form_; }
  const States& states() const { return states_; }
  const Counters& counters() const { return counters_; }
  int64_t lookahead() const { return lookahead_; }

 private:
  struct Turn {
    uint64_t until_sample = 0;  // stores
    uint64_t misses = 0;        // tests in a row without a fit
  };
  void NoteLookahead(int64_t lookahead);
  bool IsDue(size_t kind, KeyKindSet keyed);

  const uint64_t period_;
  States states_{};
  Counters counters_{};
  std::array<Turn, kKeyKinds> turns_{};
  std::optional<ExtraKeyScheme> form_;
  int64_t lookahead_ = 0;
};

}  // namespace kvcast::router
