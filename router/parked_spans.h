// ParkedSpans: stores that wait for another event to tell more of their content.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "router/store_span.h"

namespace kvcast::router {

using ParkId = uint64_t;

// Thread-compatible. Pins nothing: whoever parks a span keeps its records pinned until it leaves.
class ParkedSpans {
 public:
  ParkedSpans(size_t spans_max, size_t tokens_max)
      : spans_max_(spans_max), tokens_max_(tokens_max) {}

  // Parks the span, to be tried again when one of `awaited` is known. REQUIRES: CanHold(span).
  void Park(StoreSpan span, std::span<const RecordId> awaited);
  bool CanHold(const StoreSpan& span) const { return TokensOf(span) <= tokens_max_; }
  // Whether the oldest must leave before `span` can be parked.
  bool IsFullFor(const StoreSpan& span) const {
    return spans_.size() >= spans_max_ || tokens_ + TokensOf(span) > tokens_max_;
  }
  StoreSpan TakeOldest() { return Take(spans_.begin()->first); }
  // The spans that wait for `record` are added to `waiting`. They stay parked.
  void AddWaitingFor(RecordId record, std::set<ParkId>& waiting) const;
  bool Has(ParkId id) const { return spans_.contains(id); }
  // Whether an equal one is parked.
  bool Has(const StoreSpan& span) const;
  StoreSpan Take(ParkId id);

  size_t size() const { return spans_.size(); }

 private:
  struct Parked {
    StoreSpan span;
    std::vector<RecordId> awaited;
  };

  static size_t TokensOf(const StoreSpan& span) { return span.event.token_ids->size(); }
  static uint64_t Fingerprint(const StoreSpan& span);

  size_t spans_max_;
  size_t tokens_max_;
  size_t tokens_ = 0;
  ParkId next_ = 0;
  std::map<ParkId, Parked> spans_;
  std::unordered_map<RecordId, std::set<ParkId>> waiting_;
  std::unordered_map<uint64_t, ParkId> by_fingerprint_;  // the first of each
};

}  // namespace kvcast::router
