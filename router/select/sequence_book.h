// SequenceBook: the conversations that the router has seen, and the tokens that each worker will
// need again.
//
// A prompt continues a conversation if it begins with all whole blocks of the conversation's last
// prompt. The book learns how the chance that a conversation continues depends on the time
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
  // whose last request is the oldest. It also drops a conversation after 2 * `most` later requests.
  explicit SequenceBook(size_t most = 65536) : most_(most) {}

  struct Sequence {
    WorkerId worker;
    int64_t tokens = 0;  // of the last prompt
    // If `active` > 0: time of the last request. Otherwise: time when `active` became 0.
    double last_s = 0;
    int64_t active = 0;  // requests with the conversation's name that have not ended
    uint64_t order = 0;  // number of the last request; a later request has a higher number
  };
  // The name of the conversation that the prompt continues. If there are several, the name of the
  // conversation with the longest last prompt. nullopt: the prompt begins a conversation.
  // `prefixes`: the prompt's prefixes, from the shortest to the longest. Compares only the
  // kLookBack longest prefixes.
  std::optional<PrefixName> Find(std::span<const PrefixName> prefixes) const;
  // REQUIRES: `name` is a result of Find, and the book was not changed since.
  const Sequence& of(PrefixName name) const { return sequences_.at(name); }

  // Must be called when a prompt was routed. `continues`: the result of Find. Returns the
  // conversation's new name. REQUIRES: `prefixes` is not empty.
  PrefixName Routed(std::optional<PrefixName> continues, std::span<const PrefixName> prefixes,
                    WorkerId worker, int64_t tokens, double now_s);
  // Must be called when a request has ended. `name`: the result of Routed. Does nothing if the book
  // has no such conversation.
  void Ended(PrefixName name, double now_s);
  // Drops the conversations whose last prompt went to the worker.
  void Forget(WorkerId worker);

  // Expected number of tokens that the conversations on the worker will need again. `without`: a
  // conversation that does not count; REQUIRES: as for `of`. The function uses chances and ends of
  // requests that are at most kRefreshSeconds old.
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
  // By worker: expected tokens, computed at refreshed_s_ and then changed by Routed and Forget.
  std::unordered_map<WorkerId, double> expected_;
  double refreshed_s_ = -1e300;
};

}  // namespace kvcast
