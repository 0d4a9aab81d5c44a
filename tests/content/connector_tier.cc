// A Tier made of an OffloadScheduler and its worker.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "kvcast/offload/offload_scheduler.h"
#include "kvcast/offload/offload_transfer.h"
#include "tests/content/tier.h"

namespace kvcast::content {

namespace {

constexpr int64_t kPageBytes = 16;

class ConnectorTier final : public Tier {
 public:
  explicit ConnectorTier(const TierParts& parts) : parts_(parts) {
    OffloadSchedulerConfig config;
    config.layout = {.groups = parts.config.groups,
                     .tokens_per_hash = parts.config.hash_block_size,
                     .blocks_per_chunk = parts.config.blocks_per_chunk};
    config.memory.page_bytes = kPageBytes;
    for (size_t g = 0; g < parts.config.groups.size(); ++g) {
      config.memory.chunk_bytes.push_back(parts.config.blocks_per_chunk *
                                          static_cast<int64_t>(BlockBytes(g)));
    }
    config.memory.capacity_bytes =
        parts.config.host_blocks * static_cast<int64_t>(parts.memory.WholeBlocks().block_bytes());
    if (parts.config.seed % 3 == 1) config.memory.policy = EvictionPolicyKind::kArc;
    if (parts.config.seed % 4 == 1) config.policy = OffloadPolicy::kRequestLevel;
    config.prompt_only = parts.config.seed % 5 == 1;
    config.max_pending_ms = 30;
    config.late_load_ms = parts.config.late_load_ms;
    config.rules = parts.config.rules;
    config.compatible = parts.config.fault == Fault::kLikeVllm;
    auto scheduler = OffloadScheduler::Create(config);
    EXPECT_TRUE(scheduler.ok()) << scheduler.status().ToString();
    scheduler_ = std::move(scheduler).value();
    MakeMemory();
  }

  void Add(const Request& request) override {
    EXPECT_TRUE(scheduler_->AddRequest(request.id, request.cache).ok());
  }
  std::optional<int64_t> Match(const Request& request, int64_t local_tokens,
                               int64_t now_ms) override {
    return scheduler_->MatchedTokens(request.id, local_tokens, now_ms).tokens;
  }
  bool AfterAlloc(const Request& request, int64_t external_tokens) override {
    if (external_tokens == 0) return true;
    std::vector<std::vector<BlockId>> tables;
    for (uint32_t g = 0; g < parts_.config.groups.size(); ++g) {
      const auto table = parts_.cache.BlockTable(request.cache, GroupIdx(g));
      tables.emplace_back(table.begin(), table.end());
    }
    return scheduler_->UpdateAfterAlloc(request.id, external_tokens, tables).ok();
  }
  void Preempt(const Request& request) override { preempted_.push_back(request.id); }
  bool Finish(const Request& request, bool aborted) override {
    return scheduler_->RequestFinished(request.id, request.computed, aborted);
  }

  void Step(std::span<const Scheduled> scheduled,
            const std::function<void()>& before_loads) override {
    for (const OffloadJob& job : std::exchange(deferred_, {})) Submit(job);
    std::vector<OffloadStep::Scheduled> step;
    for (const Scheduled& entry : scheduled) {
      Request& request = *entry.request;
      step.push_back({request.id, request.computed, entry.tokens,
                      std::exchange(request.starts, false), request.new_blocks});
    }
    const OffloadPlan& plan = scheduler_->BuildStep({step, std::exchange(preempted_, {}), {}});
    Flush(plan);
    before_loads();
    for (const OffloadJob& job : plan.loads) {
      Submit(job);
      if (parts_.config.fault == Fault::kReleasedEarly) early_reports_[job.id] = true;
    }
  }

  // The next step submits the stores.
  void AfterStep() override {}

  void TakeEnded(int64_t now_ms, std::vector<Arrival>& arrivals) override {
    std::vector<OffloadCompletion> ended;
    for (const auto& [job, success] : std::exchange(early_reports_, {})) {
      ended.push_back({job, 1, success});
    }
    for (const TransferResult& result : copies_->TakeEnded()) {
      if (parts_.config.fault != Fault::kLikeVllm) {
        EXPECT_NE(result.status.code(), StatusCode::kInvalidArgument) << result.status.ToString();
      }
      const OffloadJobId job = OffloadIdOf(result.id);
      const bool load = loads_.erase(job) > 0;
      Count(load, result.status.ok());
      if (load && parts_.config.fault == Fault::kReleasedEarly) continue;
      ended.push_back({job, 1, result.status.ok()});
    }
    OffloadArrivals arrived;
    scheduler_->OnCompletions(ended, arrived);
    using Kind = Arrival::Kind;
    for (const OffloadRequestId id : arrived.loaded) arrivals.push_back({id, Kind::kLoaded, {}});
    for (const OffloadRequestId id : arrived.failed) arrivals.push_back({id, Kind::kFailed, {}});
    for (const OffloadJobId job : arrived.released) arrivals.push_back({{}, Kind::kReleased, job});
    std::vector<LateLoad> late;
    if (parts_.config.late_load_ms > 0) scheduler_->TakeLateLoads(now_ms, late);
    for (const LateLoad& load : late) arrivals.push_back({load.request, Kind::kLate, load.job});
    parts_.counts.late_loads += std::ssize(late);
  }

  void Reset() override { EXPECT_TRUE(scheduler_->Reset().ok()); }
  std::vector<Event> TakeEvents() override { return scheduler_->TakeEvents(); }
  // If the request has copies of its own or a failed load, the events alone do not decide its
  // lookup.
  bool IsFree(const Request& request) const override {
    return !request.load_failed && scheduler_->InspectRequest(request.id)->jobs.empty();
  }
  bool Knows(const Request& request) const override {
    return scheduler_->InspectRequest(request.id).has_value();
  }
  bool idle() const override {
    return scheduler_->num_requests() == 0 && !scheduler_->has_pending_work() &&
           scheduler_->JobsInFlight().empty() && scheduler_->FencedBlocks().empty() &&
           deferred_.empty() && copies_->idle();
  }
  Copies& copies() override { return *copies_; }
  Status CheckInvariants() const override { return scheduler_->manager().CheckInvariants(); }
  size_t CellOffset(size_t group, int64_t cell) const override {
    return parts_.memory.CellOffset(group, cell);
  }

  std::vector<HostChunk> Readable() const override {
    std::vector<HostChunk> readable;
    for (const auto& chunk : scheduler_->manager().Inspect().chunks) {
      if (chunk.readers < 0) continue;
      const size_t group = chunk.key.group.value;
      HostChunk& out = readable.emplace_back();
      out.first_slot = chunk.slots.front();
      out.digest = chunk.key.digest;
      out.group = chunk.key.group;
      out.only_last = scheduler_->layout().groups[group].requires_cow_source;
      const size_t block_bytes = BlockBytes(group);
      const size_t slot_bytes = static_cast<size_t>(scheduler_->manager().slot_bytes());
      for (size_t b = 0; b < static_cast<size_t>(parts_.config.blocks_per_chunk); ++b) {
        auto& bytes = out.blocks.emplace_back(block_bytes);
        for (size_t i = 0; i < block_bytes; ++i) {
          const size_t offset = b * block_bytes + i;
          bytes[i] =
              host_[chunk.slots[offset / slot_bytes].value * slot_bytes + offset % slot_bytes];
        }
      }
    }
    return readable;
  }

 private:
  size_t BlockBytes(size_t group) const { return parts_.memory.LayoutOf(group).block_bytes(); }

  void MakeMemory() {
    const OffloadManager& manager = scheduler_->manager();
    const auto slot_bytes = static_cast<size_t>(manager.slot_bytes());
    host_.resize(slot_bytes * static_cast<size_t>(manager.num_slots()));
    std::vector<TransferGroupConfig> groups;
    for (size_t g = 0; g < parts_.config.groups.size(); ++g) {
      groups.push_back(
          {parts_.memory.LayoutOf(g), static_cast<uint32_t>(parts_.config.blocks_per_chunk)});
    }
    copies_ =
        std::make_unique<Copies>(parts_.config, std::move(groups),
                                 HostLayout{host_.data(), host_.size(), slot_bytes}, parts_.stream);
  }

  void Flush(const OffloadPlan& plan) {
    const std::set<OffloadJobId> flushed(plan.flush.begin(), plan.flush.end());
    const bool at_once = parts_.config.fault == Fault::kStoreTooEarly;
    for (const OffloadJob& job : plan.stores) {
      if (at_once || (flushed.contains(job.id) && parts_.config.fault != Fault::kNoFlush)) {
        Submit(job);
      } else {
        deferred_.push_back(job);
      }
    }
    if (parts_.config.fault == Fault::kNoFlush) return;
    std::vector<TransferJobId> waits;
    for (const OffloadJobId job : plan.flush) waits.push_back(TransferIdOf(job));
    parts_.counts.flushes += std::ssize(waits);
    if (!waits.empty()) copies_->Wait(waits);
  }

  void Submit(const OffloadJob& job) {
    if (!job.store) loads_.insert(job.id);
    copies_->Submit(ToTransferJob(job, *scheduler_, lists_));
  }

  void Count(bool load, bool success) {
    ++(load ? parts_.counts.loads : parts_.counts.stores);
    if (!success) ++(load ? parts_.counts.failed_loads : parts_.counts.failed_stores);
  }

  const TierParts parts_;
  std::unique_ptr<OffloadScheduler> scheduler_;
  std::vector<std::byte> host_;
  std::unique_ptr<Copies> copies_;    // must be destroyed before the memory
  std::vector<OffloadJob> deferred_;  // stores of the previous step
  std::set<OffloadJobId> loads_;      // in flight
  TransferLists lists_;
  // Loads that are reported before their copies end. The value is the reported success.
  std::map<OffloadJobId, bool> early_reports_;
  std::vector<OffloadRequestId> preempted_;
};

}  // namespace

std::unique_ptr<Tier> MakeConnectorTier(const TierParts& parts) {
  return std::make_unique<ConnectorTier>(parts);
}

}  // namespace kvcast::content
