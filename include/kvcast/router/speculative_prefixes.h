// SpeculativePrefixes: the prefixes that were routed to a worker recently and are not in its events
// yet.
//
// There is a delay between the routing of a prompt and the engine's BlockStored. A second prompt
// with the same prefix should go to the same worker during this delay. The entries are guesses:
// they expire, their number is bounded, and PrefixIndex never includes them in its answers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"

namespace kvcast {

struct SpeculativeConfig {
  int64_t lifetime_ms = 2000;  // an entry without a confirming event expires after this time
  size_t entries_max = 65536;  // hashes of all workers; the oldest entries are dropped first
};

// Thread-compatible. All times are milliseconds of the caller's clock, which must not go back.
class SpeculativePrefixes {
 public:
  explicit SpeculativePrefixes(const SpeculativeConfig& config = {});
  ~SpeculativePrefixes();

  // Records that the prompt with this hash chain was routed to `worker`.
  void Routed(WorkerId worker, std::span<const BlockHash> chain, int64_t now_ms);
  // Removes the entries that GPU stores of the batch confirm; from then on the exact index contains
  // these blocks. AllBlocksCleared of the GPU tier removes all entries of the worker.
  void Confirm(WorkerId worker, const EventBatch& batch);
  // Removes all entries of a worker that restarted or left.
  void Forget(WorkerId worker);

  // Returns the number of tokens up to the deepest hash of `chain` that is expected on `worker`. A
  // hash names its whole prefix; shallower hashes may already be confirmed. `unit`: tokens per
  // hash.
  int64_t Match(WorkerId worker, std::span<const BlockHash> chain, int64_t unit, int64_t now_ms);

  size_t entries() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
