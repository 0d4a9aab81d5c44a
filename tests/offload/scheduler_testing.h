// A small engine around an OffloadScheduler. The engine allocates GPU blocks and schedules tokens.
// The test ends the copies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/offload/offload_scheduler.h"

namespace kvcast::offload {

using Positions = std::vector<int64_t>;
using Blocks = std::vector<uint32_t>;

inline GroupSpec Full(int64_t block_size = 4) {
  return {.kind = SpecKind::kFullAttention, .block_size = block_size};
}
inline GroupSpec Window(int64_t window, int64_t block_size = 4) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = block_size, .sliding_window = window};
}
inline GroupSpec Mamba(int64_t block_size, MambaMode mode) {
  return {.kind = SpecKind::kMamba, .block_size = block_size, .mamba_mode = mode};
}
inline GroupSpec Eagle(GroupSpec spec) {
  spec.eagle = true;
  return spec;
}

// All tokens may be stored. There is room for `slots` chunks of any group.
inline OffloadSchedulerConfig Config(std::vector<GroupSpec> groups, int64_t blocks_per_chunk = 1,
                                     int64_t slots = 1000) {
  OffloadSchedulerConfig config;
  config.layout = {
      .groups = std::move(groups), .tokens_per_hash = 4, .blocks_per_chunk = blocks_per_chunk};
  config.memory.chunk_bytes.assign(config.layout.groups.size(), 4096);
  config.memory.capacity_bytes = slots * 4096;
  config.prompt_only = false;
  return config;
}

inline OffloadSchedulerConfig AsVllm(OffloadSchedulerConfig config) {
  config.compatible = true;
  return config;
}

struct TestRequest {
  OffloadRequestId id;
  CacheRequest cache;
  int64_t computed = 0;
  bool started = false;
  std::vector<std::vector<BlockId>> tables;  // by group
};

// Records the calls to the manager that a test checks, as short texts.
class CallTexts : public OffloadObserver {
 public:
  std::vector<std::string> Take() { return std::exchange(texts_, {}); }
  // The keys of the most recent touch.
  const std::vector<OffloadKey>& touched() const { return touched_; }

  void OnLookup(const OffloadKey& /*key*/, LookupResult /*result*/) override { Add("lookup"); }
  void OnTouch(OffloadRequestId /*request*/, std::span<const OffloadKey> keys) override {
    Add("touch " + std::to_string(keys.size()));
    touched_.assign(keys.begin(), keys.end());
  }
  void OnPrepareStore(OffloadRequestId /*request*/, std::span<const OffloadKey> keys,
                      const StorePlan* plan) override {
    const std::string room = plan == nullptr ? "no room" : std::to_string(plan->keys.size());
    Add("prepare_store " + std::to_string(keys.size()) + ": " + room);
  }
  void OnPrepareLoad(std::span<const OffloadKey> keys, std::span<const SlotId> /*slots*/) override {
    Add("prepare_load " + std::to_string(keys.size()));
  }
  void OnCompleteStore(OffloadRequestId /*request*/, std::span<const OffloadKey> keys,
                       bool success) override {
    Add((success ? "complete_store " : "fail_store ") + std::to_string(keys.size()));
  }
  void OnCompleteLoad(OffloadRequestId /*request*/, std::span<const OffloadKey> keys) override {
    Add("complete_load " + std::to_string(keys.size()));
  }
  void OnRequestFinished(OffloadRequestId request) override {
    Add("finished " + std::to_string(request.value));
  }
  void OnReset() override { Add("reset"); }

 private:
  void Add(std::string text) { texts_.push_back(std::move(text)); }
  std::vector<std::string> texts_;
  std::vector<OffloadKey> touched_;
};

class TestEngine {
 public:
  explicit TestEngine(OffloadSchedulerConfig config)
      : config_(std::move(config)),
        hasher_(BlockHasher::FromSeed(HashAlgorithm::kXxhashCbor, "0").value()) {
    config_.observer = &calls;
    auto created = OffloadScheduler::Create(config_);
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    scheduler_ = std::move(created).value();
  }

  OffloadScheduler& scheduler() { return *scheduler_; }
  CallTexts calls;

  // Adds a request with a prompt of `tokens` tokens. The first `shared` tokens are 0, 1, 2, ... in
  // every prompt. Each call of Add uses different tokens after the first `shared` tokens.
  TestRequest& Add(int64_t tokens, int64_t shared = 0, OffloadRequestOptions options = {}) {
    TestRequest& request = requests_.emplace_back();
    request.id = OffloadRequestId(requests_.size());
    for (int64_t i = 0; i < tokens; ++i) {
      request.cache.tokens.push_back(
          i < shared ? i : static_cast<int64_t>(request.id.value) * 100000 + i);
    }
    request.cache.prompt_tokens = tokens;
    request.tables.resize(config_.layout.groups.size());
    Hash(request);
    EXPECT_TRUE(scheduler_->AddRequest(request.id, request.cache, options).ok());
    return request;
  }

  // Adds a request with the tokens of `request`. If `differs`, the last token is another token.
  TestRequest& AddCopy(const TestRequest& request, bool differs = false) {
    TestRequest& copy = Add(0);
    copy.cache.tokens = request.cache.tokens;
    if (differs) ++copy.cache.tokens.back();
    copy.cache.prompt_tokens = std::ssize(copy.cache.tokens);
    Hash(copy);
    return copy;
  }

  void Sample(TestRequest& request, int64_t tokens = 1) {
    for (int64_t i = 0; i < tokens; ++i) {
      request.cache.tokens.push_back(7000000 + std::ssize(request.cache.tokens));
    }
    Hash(request);
  }

  std::optional<int64_t> Match(TestRequest& request, int64_t local = 0, int64_t now_ms = 0) {
    request.computed = local;
    request.started = false;
    return scheduler_->MatchedTokens(request.id, local, now_ms).tokens;
  }

  // Allocates blocks for the first `tokens` tokens. A window gets only the blocks that it still
  // needs.
  void Allocate(TestRequest& request, int64_t tokens) {
    for (size_t g = 0; g < request.tables.size(); ++g) {
      const GroupSpec& spec = config_.layout.groups[g];
      std::vector<BlockId>& table = request.tables[g];
      const int64_t skipped = SkippedTokens(spec, request.started ? 0 : tokens) / spec.block_size;
      const int64_t end = CeilDiv(tokens, spec.block_size);
      while (std::ssize(table) < end) {
        table.push_back(std::ssize(table) < skipped ? BlockId(0) : BlockId(next_block_++));
      }
    }
  }

  Status Load(TestRequest& request, int64_t external) {
    request.tables.assign(request.tables.size(), {});
    Allocate(request, request.computed + external);
    return scheduler_->UpdateAfterAlloc(request.id, external, request.tables);
  }

  // Schedules tokens for the next step. New blocks come from `given` until it is empty.
  void Schedule(TestRequest& request, int64_t tokens, Blocks given = {}) {
    Scheduled& entry = step_[request.id.value];
    entry.request = &request;
    entry.tokens = tokens;
    entry.starts = !request.started;
    std::vector<size_t> before;
    for (auto& table : request.tables) before.push_back(table.size());
    for (size_t g = 0; g < request.tables.size(); ++g) {
      const int64_t end = CeilDiv(request.computed + tokens, config_.layout.groups[g].block_size);
      while (std::ssize(request.tables[g]) < end) {
        uint32_t block = next_block_;
        if (given.empty()) {
          ++next_block_;
        } else {
          block = given.front();
          given.erase(given.begin());
        }
        request.tables[g].push_back(BlockId(block));
      }
      const auto from =
          request.tables[g].begin() + static_cast<ptrdiff_t>(entry.starts ? 0 : before[g]);
      entry.new_blocks.emplace_back(from, request.tables[g].end());
    }
    request.started = true;
  }

  const OffloadPlan& Step(std::vector<OffloadRequestId> preempted = {},
                          std::vector<OffloadStep::Tail> tails = {}) {
    std::vector<OffloadStep::Scheduled> scheduled;
    for (auto& [id, entry] : step_) {
      scheduled.push_back({entry.request->id, entry.request->computed, entry.tokens, entry.starts,
                           entry.new_blocks});
      entry.request->computed += entry.tokens;
    }
    const OffloadPlan& plan = scheduler_->BuildStep({scheduled, preempted, tails});
    step_.clear();
    for (const auto* jobs : {&plan.stores, &plan.loads}) {
      for (const OffloadJob& job : *jobs) jobs_.insert_or_assign(job.id, job);
    }
    return plan;
  }
  const OffloadPlan& Run(TestRequest& request, int64_t tokens) {
    Schedule(request, tokens);
    return Step();
  }
  // Samples and computes `tokens` tokens, one per step. Copies end between the steps. Returns the
  // stores.
  std::vector<OffloadJob> Decode(TestRequest& request, int64_t tokens) {
    std::vector<OffloadJob> stores;
    for (int64_t i = 0; i < tokens; ++i) {
      Sample(request);
      const OffloadPlan& plan = Run(request, 1);
      stores.insert(stores.end(), plan.stores.begin(), plan.stores.end());
      Complete();
    }
    return stores;
  }

  // Ends all jobs in flight.
  OffloadArrivals Complete(bool success = true) {
    std::vector<OffloadCompletion> completions;
    for (const OffloadJobId job : scheduler_->JobsInFlight()) {
      completions.push_back({job, config_.num_workers, success});
    }
    OffloadArrivals arrivals;
    scheduler_->OnCompletions(completions, arrivals);
    return arrivals;
  }
  OffloadArrivals Acknowledge(OffloadJobId job, int64_t workers = 1, bool success = true) {
    OffloadArrivals arrivals;
    scheduler_->OnCompletions(std::vector<OffloadCompletion>{{job, workers, success}}, arrivals);
    return arrivals;
  }

  // Computes a whole prompt and stores it.
  TestRequest& Stored(TestRequest& request) {
    Match(request);
    Run(request, std::ssize(request.cache.tokens) - request.computed);
    Complete();
    return request;
  }

  bool Finish(TestRequest& request, bool aborted = false) {
    return scheduler_->RequestFinished(request.id, request.computed, aborted);
  }

  // Maps every GPU block of a group, except the null block, to its host memory, as "slot/position
  // in the slot", by the contract of OffloadJob.
  static std::map<BlockId, std::string> PlacesOf(const OffloadJob& job, size_t group,
                                                 int64_t blocks_per_chunk) {
    size_t block = 0;
    size_t slot = 0;
    for (size_t g = 0; g < group; ++g) {
      block += static_cast<size_t>(job.group_sizes[g]);
      const int64_t skip = job.block_indices[g] % blocks_per_chunk;
      slot += static_cast<size_t>(CeilDiv(skip + job.group_sizes[g], blocks_per_chunk));
    }
    std::map<BlockId, std::string> places;
    for (int64_t i = 0; i < job.group_sizes[group]; ++i) {
      const int64_t place = job.block_indices[group] % blocks_per_chunk + i;
      const BlockId id = job.gpu_blocks.at(block++);
      if (id.value == 0) continue;
      const SlotId in = job.slots.at(slot + static_cast<size_t>(place / blocks_per_chunk));
      places[id] = std::to_string(in.value) + "/" + std::to_string(place % blocks_per_chunk);
    }
    return places;
  }

  // Positions of the blocks of a job's group in the request's table. -1: the table lacks the block.
  Positions PositionsOf(const OffloadJob& job, const TestRequest& request, size_t group = 0) const {
    Positions positions;
    size_t first = 0;
    for (size_t g = 0; g < group; ++g) first += static_cast<size_t>(job.group_sizes[g]);
    for (size_t i = 0; i < static_cast<size_t>(job.group_sizes[group]); ++i) {
      const auto& table = request.tables[group];
      const auto found = std::find(table.begin(), table.end(), job.gpu_blocks[first + i]);
      positions.push_back(found == table.end() ? -1 : found - table.begin());
    }
    return positions;
  }

 private:
  struct Scheduled {
    TestRequest* request = nullptr;
    int64_t tokens = 0;
    bool starts = false;
    std::vector<std::vector<BlockId>> new_blocks;
  };

  void Hash(TestRequest& request) {
    hasher_.ExtendChain(request.cache.tokens, config_.layout.tokens_per_hash,
                        request.cache.hash_inputs, request.cache.chain);
  }

  OffloadSchedulerConfig config_;
  BlockHasher hasher_;
  std::deque<TestRequest> requests_;  // the scheduler keeps references to these
  std::unique_ptr<OffloadScheduler> scheduler_;
  std::map<uint64_t, Scheduled> step_;
  std::map<OffloadJobId, OffloadJob> jobs_;
  uint32_t next_block_ = 1;
};

}  // namespace kvcast::offload
