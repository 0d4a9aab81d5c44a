// SequenceBook: the conversations that the router has seen, and the tokens that each worker will
// need again.
//
// A prompt continues a conversation if it begins with all whole blocks of an earlier prompt of the
// conversation. The book learns how the chance that a conversation continues depends on the time
// since its last request ended.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>

#include "absl/container/flat_hash_map.h"
#include "kvcast/core/ids.h"
#include "kvcast/router/speculative_prefixes.h"

namespace kvcast {

// Thread-compatible. All times are seconds of one clock that does not go back.
class SequenceBook {
 public:
  // `most`: maximum number of conversations. Above this number, the book drops the conversation
  // whose last request is the oldest.
  explicit SequenceBook(size_t most = 65536) : most_(most) {}

  struct Sequence {
    WorkerId worker;
    int64_t tokens = 0;  // of the last prompt
    double last_s = 0;   // if `active` > 0: time of the last request; otherwise: time of its end
    int64_t active = 0;  // requests with the conversation's name that have not ended
    uint64_t order = 0;  // of the last request
  };
  // The name of the conversation that the prompt continues. `prefixes`: the prompt's prefixes, from
  // the shortest to the longest. Compares only the kLookBack longest prefixes.
  std::optional<PrefixName> Find(std::span<const PrefixName> prefixes) const;
  // REQUIRES: `name` is a result of Find, and the book was not changed since.
  const Sequence& of(PrefixName name) const { return sequences_.at(name); }

  // Must be called when a prompt was routed. `continues`: the result of Find. Returns the
  // conversation's new name.
  PrefixName Routed(std::optional<PrefixName> continues, std::span<const PrefixName> prefixes,
                    WorkerId worker, int64_t tokens, double now_s);
  void Ended(PrefixName name, double now_s);
  void Forget(WorkerId worker);

  // Expected number of tokens that the conversations on the worker will need again. `without`: a
  // conversation that does not count. The function uses chances that are at most kRefreshSeconds
  // old.
  double ExpectedTokens(WorkerId worker, std::optional<PrefixName> without, double now_s);
  // The chance that a conversation continues if its last request ended `idle_s` seconds ago.
  // ExpectedTokens computes the chances; before its first call, the result is 0.
  double ChanceToContinue(double idle_s) const { return chances_[BinOf(idle_s)]; }
  size_t size() const { return sequences_.size(); }

 private:
  static constexpr size_t kBins = 64;
  static constexpr size_t kLookBack = 256;
  static constexpr double kRefreshSeconds = 0.25;

  static size_t BinOf(double idle_s);
  double Weight(const Sequence& sequence, double now_s) const;
  void Refresh(double now_s);
  void DropOldest();

  const size_t most_;
  absl::flat_hash_map<PrefixName, Sequence> sequences_;
  std::deque<std::pair<PrefixName, uint64_t>> by_age_;  // name and Sequence::order, oldest first
  uint64_t next_order_ = 0;
  std::array<double, kBins> gaps_{};  // continued conversations by their idle time
  std::array<double, kBins> chances_{};
  // By worker: expected tokens, computed at refreshed_s_ and then changed by Routed.
  std::unordered_map<WorkerId, double> expected_;
  double refreshed_s_ = -1e300;
};

}  // namespace kvcast
