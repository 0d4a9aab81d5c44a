// Oracle: the blocks that one life of a publisher (see engine.h) holds according to its batches,
// computed directly from the events. It shares only CopyDigestOf with mirrors, residency digests
// and the index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/residency/residency_digest.h"

namespace kvcast::sim {

// (tier, group, hash) -> copies; hashes are unsigned integers.
using Holdings = std::map<std::tuple<int, int, uint64_t>, uint32_t>;

// A sum over all copies. Equal holdings have equal sums.
struct HoldingsSum {
  unsigned __int128 mixed = 0;
  uint64_t copies = 0;
  friend bool operator==(const HoldingsSum&, const HoldingsSum&) = default;
};
HoldingsSum SumOf(const ResidencyTotals& totals);

class Oracle {
 public:
  // Adds the batch of the next sequence number. The batch may be published or refused.
  void Add(const EventBatch& batch);

  uint64_t next_seq() const { return sums_.size() - 1; }
  const Holdings& holdings() const { return holdings_; }
  // The sum after the batches below `next_seq`. REQUIRES: `next_seq` is not above next_seq().
  const HoldingsSum& sum(uint64_t next_seq) const { return sums_[next_seq]; }

 private:
  void Change(int tier, int group, uint64_t hash, bool store);

  Holdings holdings_;
  std::vector<HoldingsSum> sums_{HoldingsSum{}};
};

}  // namespace kvcast::sim
