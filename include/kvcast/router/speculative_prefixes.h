// SpeculativePrefixes: what was just routed to a worker and is not in its events yet.
//
// Between the routing of a prompt and the engine's BlockStored a second prompt with the same prefix
// should follow the first. These entries are a guess: short-lived, bounded in number, and never
// part of PrefixIndex's answer.
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
  int64_t lifetime_ms = 2000;  // an entry that no event confirmed is gone after this
  size_t entries_max = 65536;  // hashes of all workers; the oldest leave first
};

// Thread-compatible. Times are the caller's clock in milliseconds and must not go back.
class SpeculativePrefixes {
 public:
  explicit SpeculativePrefixes(const SpeculativeConfig& config = {});
  ~SpeculativePrefixes();

  // The prompt with this hash chain was routed to `worker`.
  void Routed(WorkerId worker, std::span<const BlockHash> chain, int64_t now_ms);
  // The worker's GPU stores confirm their hashes: the exact index speaks for them from here on.
  // A clear ends all that was expected of the worker.
  void Confirm(WorkerId worker, const EventBatch& batch);
  // The worker restarted or left.
  void Forget(WorkerId worker);

  // Tokens up to the deepest hash of `chain` that is expected on `worker`. A hash names its whole
  // prefix, so shallower ones may have been confirmed already. `unit`: tokens per hash.
  int64_t Match(WorkerId worker, std::span<const BlockHash> chain, int64_t unit, int64_t now_ms);

  size_t entries() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
