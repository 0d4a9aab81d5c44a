// The queries of the freshness benchmark. A thread queries held prompts about 2,500 times a
// second, in batches of ten. The first query of a batch finds cold CPU caches, as at a low query
// rate; the other nine find warm CPU caches, as at a high rate. Every second prompt is short.
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

// The durations of queries, in nanoseconds.
struct QueryTimes {
  bench::Samples short_prompts;  // of kQueriedBlocks blocks
  bench::Samples any_prompts;    // of 1 to kLongestPromptBlocks blocks
  uint64_t hits = 0;             // queries that found the whole prompt
};

class FreshnessQueries {
 public:
  // kNone: the thread sends no queries. kIdle: the sources publish nothing; the times go to idle().
  // kBusy: the sources publish; the times go to busy().
  enum class Phase : uint8_t { kNone, kIdle, kBusy };

  FreshnessQueries(const PrefixIndex& index, int sources);
  ~FreshnessQueries() { Stop(); }

  // Reports that a source stored `blocks` more blocks. Only one thread may call this function.
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
  // Returns a random prompt of at least `at_least` blocks that the source holds. An empty span: the
  // source holds no such prompt.
  PromptSpan HeldPrompt(int source, uint64_t at_least);

  const PrefixIndex& index_;
  std::vector<std::atomic<uint64_t>> stored_;  // by source
  std::atomic<Phase> phase_ = Phase::kNone;
  std::atomic<bool> stopping_ = false;

  // Until thread_ has ended, only thread_ uses the members from here on.
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
