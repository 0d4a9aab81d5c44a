// KindProofs: the kinds of key for which a source's scheme is proven. It also decides which stores
// of each kind are tested.
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

  // `present`: the kinds of key in a testable store. Returns the kinds among them that must be
  // tested in this store. Of the stores of a kind with keys, one in `period` is tested. A kind
  // without proof is tested each time, until kSchemeMissesToGiveUp tests in a row gave no proof.
  KeyKindSet TakeTurns(KeyKindSet present);
  // Causes a test of the next store of each kind with keys.
  void RestartTurns();

  // Must be called if a block of these kinds fits in this form, with `lookahead` tokens of
  // lookahead. True: the fit contradicts a proof of the other form.
  bool Fit(KeyKindSet kinds, ExtraKeyScheme form, int64_t lookahead);
  // Must be called if a block of these kinds fits no form, although all possibilities were tried.
  // True: the miss contradicts a proof.
  bool Refute(KeyKindSet kinds);
  // Must be called if a block of these kinds fits no form, but not all possibilities were tried, or
  // if the block could not be tested.
  void NoteOpen(KeyKindSet kinds, std::string_view reason);
  // Must be called if the proofs of these kinds are no longer valid.
  void Withdraw(KeyKindSet kinds, std::string_view reason);
  // Must be called if the scheme has changed. Drops all proofs and the state of all turns.
  void Reset();

  bool IsAnyProven(KeyKindSet kinds) const { return Unproven(kinds) != kinds; }
  bool IsEveryProven(KeyKindSet kinds) const { return Unproven(kinds).none(); }
  KeyKindSet Unproven(KeyKindSet kinds) const;
  // The form of the last keys that fit; nullopt: none.
  std::optional<ExtraKeyScheme> form() const { return form_; }
  const States& states() const { return states_; }
  const Counters& counters() const { return counters_; }
  int64_t lookahead() const { return lookahead_; }

 private:
  // Decides when a store of one kind is tested.
  struct Turn {
    uint64_t until_sample = 0;  // stores before the next sampled store
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
