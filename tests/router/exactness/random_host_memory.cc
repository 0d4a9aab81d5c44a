// SPDX-License-Identifier: Apache-2.0
#include "tests/router/exactness/random_host_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

namespace kvcast::engine {
namespace {

constexpr int64_t kStepMs = 10;

// True with probability 1/`n`.
bool OneIn(std::mt19937_64& random, int64_t n) {
  return std::uniform_int_distribution<int64_t>(1, n)(random) == 1;
}

}  // namespace

class HostMemory::Connector {
 public:
  Connector(std::mt19937_64& random, CacheManager& cache, const OffloadSchedulerConfig& config,
            std::unique_ptr<OffloadScheduler> scheduler)
      : random_(random), cache_(cache), config_(config), scheduler_(std::move(scheduler)) {}

  void Add(const CacheRequest& request) {
    const OffloadRequestId id(next_id_++);
    requests_[request.id] = {id, true, std::vector<size_t>(cache_.config().groups.size(), 0)};
    names_[id.value] = request.id;
    EXPECT_TRUE(scheduler_->AddRequest(id, request).ok());
  }
  std::optional<int64_t> Match(const CacheRequest& request, int64_t local_tokens) {
    return scheduler_->MatchedTokens(requests_.at(request.id).id, local_tokens, now_ms_).tokens;
  }
  bool Load(const CacheRequest& request, int64_t tokens) {
    if (tokens == 0) return true;
    std::vector<std::vector<BlockId>> tables;
    for (uint32_t g = 0; g < cache_.config().groups.size(); ++g) {
      const auto table = cache_.BlockTable(request, GroupIdx(g));
      tables.emplace_back(table.begin(), table.end());
    }
    return scheduler_->UpdateAfterAlloc(requests_.at(request.id).id, tokens, tables).ok();
  }
  void End(const CacheRequest& request, int64_t computed_tokens) {
    scheduler_->RequestFinished(requests_.at(request.id).id, computed_tokens, false);
    requests_.erase(request.id);
  }

  void Step(std::span<const Scheduled> scheduled) {
    now_ms_ += kStepMs;
    std::vector<std::vector<std::vector<BlockId>>> new_blocks;
    std::vector<OffloadStep::Tail> tails;
    for (const Scheduled& entry : scheduled) {
      new_blocks.push_back(NewBlocks(*entry.request));
      AddTails(entry, tails);
    }
    std::vector<OffloadStep::Scheduled> step;
    for (size_t i = 0; i < scheduled.size(); ++i) {
      Known& known = requests_.at(scheduled[i].request->id);
      step.push_back({known.id, scheduled[i].computed, scheduled[i].tokens,
                      std::exchange(known.starts, false), new_blocks[i]});
    }
    const OffloadPlan& plan = scheduler_->BuildStep({step, {}, tails});
    for (const auto* jobs : {&plan.loads, &plan.stores}) {
      for (const OffloadJob& job : *jobs) under_way_.push_back(job.id);
    }
    const std::vector<OffloadJobId> flush = plan.flush;
    probes_.clear();
    std::vector<OffloadCompletion> ended;
    std::erase_if(under_way_, [&](OffloadJobId job) {
      const bool ends = std::ranges::find(flush, job) != flush.end() || OneIn(random_, 2);
      if (ends) ended.push_back({job, 1, !OneIn(random_, 20)});
      return ends;
    });
    OffloadArrivals arrived;
    scheduler_->OnCompletions(ended, arrived);
    for (const OffloadRequestId id : arrived.loaded) arrivals_.push_back({names_.at(id.value)});
    for (const OffloadRequestId id : arrived.failed) {
      arrivals_.push_back({names_.at(id.value), false});
    }
  }
  std::vector<Arrival> TakeArrivals() { return std::exchange(arrivals_, {}); }
  void Reset() {
    if (config_.compatible) return;
    EXPECT_TRUE(scheduler_->Reset().ok());
  }
  std::vector<Event> TakeEvents() { return scheduler_->TakeEvents(); }

  std::optional<int64_t> Probe(const CacheRequest& request, int64_t local_tokens) {
    const CacheRequest& kept = *probes_.emplace_back(std::make_unique<CacheRequest>(request));
    const OffloadRequestId id(next_id_++);
    EXPECT_TRUE(scheduler_->AddRequest(id, kept).ok());
    auto tokens = scheduler_->MatchedTokens(id, local_tokens, now_ms_).tokens;
    if (!tokens) {
      tokens = scheduler_->MatchedTokens(id, local_tokens, now_ms_ + config_.max_pending_ms).tokens;
    }
    scheduler_->RequestFinished(id, 0, true);
    return tokens;
  }

 private:
  struct Known {
    OffloadRequestId id;
    bool starts = true;
    std::vector<size_t> blocks;  // by group: table entries that the scheduler has received
  };

  std::vector<std::vector<BlockId>> NewBlocks(const CacheRequest& request) {
    Known& known = requests_.at(request.id);
    std::vector<std::vector<BlockId>> blocks;
    for (uint32_t g = 0; g < cache_.config().groups.size(); ++g) {
      const auto table = cache_.BlockTable(request, GroupIdx(g));
      blocks.emplace_back(table.begin() + static_cast<ptrdiff_t>(known.blocks[g]), table.end());
      known.blocks[g] = table.size();
    }
    return blocks;
  }
  // Adds a copy of the Mamba states for some of the steps that end inside a block.
  void AddTails(const Scheduled& entry, std::vector<OffloadStep::Tail>& tails) {
    const OffloadLayout& layout = scheduler_->layout();
    const int64_t boundary = entry.computed + entry.tokens;
    if (!layout.supports_partial_tail || boundary % layout.tokens_per_hash != 0 ||
        boundary % layout.groups[0].tokens_per_block == 0 || OneIn(random_, 3)) {
      return;
    }
    for (const OffloadGroup& group : layout.groups) {
      if (!group.requires_cow_source) continue;
      const auto table = cache_.BlockTable(*entry.request, group.index);
      if (table.empty() || table.back().value == 0) continue;
      tails.push_back({requests_.at(entry.request->id).id, group.index, table.back(), boundary});
    }
  }

  std::mt19937_64& random_;
  CacheManager& cache_;
  const OffloadSchedulerConfig config_;
  std::unique_ptr<OffloadScheduler> scheduler_;
  std::map<std::string, Known> requests_;
  std::map<uint64_t, std::string> names_;
  std::vector<std::unique_ptr<CacheRequest>> probes_;
  std::vector<OffloadJobId> under_way_;
  std::vector<Arrival> arrivals_;
  uint64_t next_id_ = 1;
  int64_t now_ms_ = 0;
};

class HostMemory::Mirror {
 public:
  Mirror(std::mt19937_64& random, std::unique_ptr<SimpleOffload> offload)
      : random_(random), offload_(std::move(offload)) {}

  std::optional<int64_t> Match(const CacheRequest& request, int64_t local_tokens) {
    return offload_->Match(request, local_tokens);
  }
  bool Load(const CacheRequest& request, int64_t tokens) {
    const bool ok = offload_->UpdateAfterAlloc(request, tokens).ok();
    if (ok && tokens > 0) new_loads_.push_back(request.id);
    return ok;
  }
  void End(const CacheRequest& request, int64_t computed_tokens) {
    offload_->RequestFinished(request, computed_tokens);
  }

  void Step(std::span<const Scheduled> scheduled) {
    std::vector<StepRequest> requests;
    for (const Scheduled& entry : scheduled) requests.push_back({entry.request, entry.computed});
    offload_->BuildStep(requests, step_);
    if (step_.load_event) {
      loads_.insert(loads_.end(), new_loads_.begin(), new_loads_.end());
      new_loads_.clear();
    }
    if (step_.store_event) stores_.push_back(*step_.store_event);
    std::erase_if(stores_, [&](int64_t event) {
      if (!step_.need_flush && OneIn(random_, 2)) return false;
      EXPECT_TRUE(offload_->CompleteStore(event, 1, !OneIn(random_, 20)).ok());
      return true;
    });
    std::erase_if(loads_, [&](const std::string& request) {
      if (!step_.need_flush && OneIn(random_, 2)) return false;
      arrivals_.push_back({request, !OneIn(random_, 20)});
      EXPECT_TRUE(offload_->CompleteLoad(request, arrivals_.back().success).ok());
      return true;
    });
  }
  std::vector<Arrival> TakeArrivals() { return std::exchange(arrivals_, {}); }
  void Reset() { offload_->Reset(); }
  std::vector<Event> TakeEvents() { return offload_->TakeEvents(); }

  std::optional<int64_t> Probe(const CacheRequest& request, int64_t local_tokens) {
    const int64_t tokens = offload_->Match(request, local_tokens);
    offload_->RequestFinished(request, 0);
    return tokens;
  }

 private:
  std::mt19937_64& random_;
  std::unique_ptr<SimpleOffload> offload_;
  TransferStep step_;
  std::vector<std::string> new_loads_;
  std::vector<std::string> loads_;
  std::vector<int64_t> stores_;
  std::vector<Arrival> arrivals_;
};

HostMemory::HostMemory() = default;
HostMemory::~HostMemory() = default;

std::unique_ptr<HostMemory> HostMemory::Make(std::mt19937_64& random, CacheManager& cache,
                                             const OffloadSchedulerConfig& config) {
  auto scheduler = OffloadScheduler::Create(config);
  if (!scheduler.ok()) return nullptr;
  std::unique_ptr<HostMemory> memory(new HostMemory());
  memory->connector_ =
      std::make_unique<Connector>(random, cache, config, std::move(scheduler).value());
  return memory;
}

std::unique_ptr<HostMemory> HostMemory::Make(std::mt19937_64& random, CacheManager& cache,
                                             const SimpleOffloadConfig& config) {
  auto offload = SimpleOffload::Create(config, cache.gpu_blocks());
  if (!offload.ok()) return nullptr;
  std::unique_ptr<HostMemory> memory(new HostMemory());
  memory->mirror_ = std::make_unique<Mirror>(random, std::move(offload).value());
  return memory;
}

void HostMemory::Add(const CacheRequest& request) {
  if (connector_) connector_->Add(request);
}
std::optional<int64_t> HostMemory::Match(const CacheRequest& request, int64_t local_tokens) {
  return connector_ ? connector_->Match(request, local_tokens)
                    : mirror_->Match(request, local_tokens);
}
bool HostMemory::Load(const CacheRequest& request, int64_t tokens) {
  return connector_ ? connector_->Load(request, tokens) : mirror_->Load(request, tokens);
}
void HostMemory::End(const CacheRequest& request, int64_t computed_tokens) {
  if (connector_) return connector_->End(request, computed_tokens);
  mirror_->End(request, computed_tokens);
}
void HostMemory::Step(std::span<const Scheduled> scheduled) {
  if (connector_) return connector_->Step(scheduled);
  mirror_->Step(scheduled);
}
std::vector<HostMemory::Arrival> HostMemory::TakeArrivals() {
  return connector_ ? connector_->TakeArrivals() : mirror_->TakeArrivals();
}
void HostMemory::Reset() {
  if (connector_) return connector_->Reset();
  mirror_->Reset();
}
std::vector<Event> HostMemory::TakeEvents() {
  return connector_ ? connector_->TakeEvents() : mirror_->TakeEvents();
}
std::optional<int64_t> HostMemory::Probe(const CacheRequest& request, int64_t local_tokens) {
  return connector_ ? connector_->Probe(request, local_tokens)
                    : mirror_->Probe(request, local_tokens);
}

}  // namespace kvcast::engine
