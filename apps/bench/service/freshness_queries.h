// The queries of the freshness benchmark: a thread that asks for held prompts, a thousand times a
// second, ten at a time: the first finds caches cold, as with few queries, the others warm, as with
// many; every other one is short.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "apps/bench/service/freshness_prompts.h"
#include "apps/support/samples.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::tools {

inline constexpr uint64_t kQueriedBlocks = 64;

// In nanoseconds.
struct QueryTimes {
  bench::Samples short_prompts;  // of kQueriedBlocks blocks
  bench::Samples any_prompts;    // of 1 to kLongestPromptBlocks
  uint64_t hits = 0;             // that found their source
};

class FreshnessQueries {
 public:
  enum class Phase : uint8_t { kNone, kIdle, kBusy };

  FreshnessQueries(const PrefixIndex& index, int sources);
  ~FreshnessQueries() { Stop(); }

  // So many blocks more. One thread.
  void NoteStored(int source, uint64_t blocks) {
    auto& stored = stored_[static_cast<size_t>(source)];
    stored.store(stored.load(std::memory_order_relaxed) + blocks, std::memory_order_relaxed);
  }
  void Enter(Phase phase) { phase_ = phase; }
  // Ends the thread.
  void Stop();
  // REQUIRES: the thread has ended.
  const QueryTimes& idle() const { return idle_; }
  const QueryTimes& busy() const { return busy_; }

 private:
  void Run();
  void Ask(bool short_one, QueryTimes& times);
  // Empty: none is held that is long enough.
  PromptSpan HeldPrompt(int source, uint64_t at_least);

  const PrefixIndex& index_;
  std::vector<std::atomic<uint64_t>> stored_;  // by source
  std::atomic<Phase> phase_ = Phase::kNone;
  std::atomic<bool> stopping_ = false;

  // Of the thread.
  struct Known {
    PromptSequence sequence;
    std::deque<PromptSpan> prompts;
  };
  std::vector<Known> known_;  // by source
  std::mt19937_64 random_{1};
  std::vector<BlockHash> chain_;
  QueryTimes idle_;
  QueryTimes busy_;

  std::thread thread_;
};

}  // namespace kvcast::tools
