// The prefix index: which blocks each worker holds, per tier and group, and what that is worth for
// a prompt.
//
// Engine-hash mode: the index is keyed by the hashes that the events carry, and a query brings the
// engine's own hash chain for the prompt. Token ids, parents and positions of events are not
// needed. Thread-safe: one writer per worker at a time, any number of readers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/cache_spec.h"
#include "kvcast/event.h"
#include "kvcast/ids.h"
#include "kvcast/reuse.h"
#include "kvcast/status.h"

namespace kvcast {

// What is known of a worker when it is registered. Groups are also learned from its events.
struct WorkerConfig {
  std::string name;
  // Groups by group_idx; empty: learn kind, window and block size from the events.
  std::vector<GroupSpec> groups;
  int64_t hash_block_size = 0;  // tokens per hash of the chain; 0: gcd of the known block sizes
  int64_t alignment = 0;        // scheduler_block_size; 0: lcm of the known block sizes
};

enum class Tier : uint8_t { kGpu, kCpu, kStorage };
inline constexpr int kTiers = 3;

// Which hits count. The others re-create what routers in the field do, so that it can be measured.
enum class MatchPolicy : uint8_t {
  kExact,     // the reuse rule over all groups
  kFullOnly,  // index only full-attention groups
};

struct IndexCounters {
  uint64_t stored_blocks = 0;
  uint64_t removed_blocks = 0;
  uint64_t clears = 0;
  uint64_t unknown_removes = 0;  // remove of a hash that is not held (ignored)
  uint64_t bad_events = 0;       // group out of range, block size out of range, ...
  uint64_t residencies = 0;      // (tier, group, hash) entries now
};

// One worker's answer.
struct WorkerMatch {
  WorkerId worker;
  int64_t gpu_tokens = 0;                 // the reusable prefix
  std::vector<int64_t> per_group_tokens;  // by group_idx: what the group alone could serve
};

class PrefixIndex {
 public:
  PrefixIndex();
  ~PrefixIndex();

  Status AddWorker(WorkerId worker, const WorkerConfig& config);
  void RemoveWorker(WorkerId worker);
  // Forgets what the worker holds; keeps the registration.
  void ClearWorker(WorkerId worker);

  // Applies one decoded batch. A query sees all of it or nothing of it.
  void Apply(WorkerId worker, const EventBatch& batch);

  // Reusable prefix per worker of a prompt of `prompt_tokens` tokens whose hash chain (at `unit`
  // tokens per hash) is `chain`. Never promises more than prompt_tokens - 1. Workers with another
  // hash unit are left out. `workers` empty: all.
  std::vector<WorkerMatch> Match(std::span<const BlockHash> chain, int64_t unit,
                                 int64_t prompt_tokens, std::span<const WorkerId> workers = {},
                                 MatchPolicy policy = MatchPolicy::kExact) const;

  // What is known of the worker's groups now, by group_idx.
  std::vector<GroupSpec> Groups(WorkerId worker) const;
  IndexCounters counters(WorkerId worker) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
