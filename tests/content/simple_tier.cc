// A Tier made of a SimpleOffload and its worker.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "kvcast/offload/offload_transfer.h"
#include "kvcast/offload/simple_offload.h"
#include "tests/content/tier.h"

namespace kvcast::content {

namespace {

class WithoutPins final : public GpuBlockPool {
 public:
  explicit WithoutPins(GpuBlockPool& pool) : pool_(pool) {}

  std::span<const BlockId> BlockTable(const CacheRequest& request, GroupIdx group) const override {
    return pool_.BlockTable(request, group);
  }
  std::optional<BlockContent> ContentOf(BlockId block) const override {
    return pool_.ContentOf(block);
  }
  std::optional<BlockId> NextFree(std::optional<BlockId> after) const override {
    return pool_.NextFree(after);
  }
  bool IsFree(BlockId block) const override { return pool_.IsFree(block); }
  void Pin(std::span<const BlockId>) override {}
  void Unpin(std::span<const BlockId>, bool) override {}

 private:
  GpuBlockPool& pool_;
};

class SimpleTier final : public Tier {
 public:
  explicit SimpleTier(const TierParts& parts)
      : parts_(parts), without_pins_(parts.cache.gpu_blocks()) {
    SimpleOffloadConfig config;
    config.cache = parts.cache.config();
    config.num_cpu_blocks = parts.config.host_blocks;
    if (parts.config.tier == TierKind::kSimpleLazy) config.mode = StoreMode::kLazy;
    GpuBlockPool& pool =
        parts.config.fault == Fault::kNoPin ? without_pins_ : parts.cache.gpu_blocks();
    auto offload = SimpleOffload::Create(config, pool);
    EXPECT_TRUE(offload.ok()) << offload.status().ToString();
    offload_ = std::move(offload).value();
    host_.resize(block_bytes_ * static_cast<size_t>(parts.config.host_blocks));
    copies_ = std::make_unique<Copies>(
        parts_.config, std::vector<TransferGroupConfig>{{parts.memory.WholeBlocks(), 1}},
        HostLayout{host_.data(), host_.size(), block_bytes_}, parts.stream);
  }

  void Add(const Request&) override {}
  std::optional<int64_t> Match(const Request& request, int64_t local_tokens, int64_t) override {
    return offload_->Match(request.cache, local_tokens);
  }
  bool AfterAlloc(const Request& request, int64_t external_tokens) override {
    const bool ok = offload_->UpdateAfterAlloc(request.cache, external_tokens).ok();
    if (ok && external_tokens > 0) new_loads_.push_back({request.cache.id, request.id, false});
    return ok;
  }
  void Preempt(const Request& request) override {
    offload_->Preempt(request.cache, request.computed);
  }
  // Pins hold the blocks of running copies.
  bool Finish(const Request& request, bool) override {
    offload_->RequestFinished(request.cache, request.computed);
    std::erase_if(new_loads_, [&](const Load& load) { return load.request == request.id; });
    return false;
  }

  void Step(std::span<const Scheduled> scheduled,
            const std::function<void()>& before_loads) override {
    std::vector<StepRequest> step;
    for (const Scheduled& entry : scheduled) {
      step.push_back({&entry.request->cache, entry.request->computed});
    }
    offload_->BuildStep(step, step_);
    if (step_.need_flush) EndCopies();
    if (parts_.config.fault == Fault::kStoreTooEarly) SubmitStores();
    before_loads();
    if (step_.load_event) {
      loads_[Submit(CopyDirection::kLoad, step_.load)] = {std::exchange(new_loads_, {}),
                                                          now_ms_ + parts_.config.late_load_ms};
      if (parts_.config.fault == Fault::kReleasedEarly) {
        for (auto& [job, loads] : loads_) {
          for (const Load& load : std::exchange(loads.requests, {})) {
            Complete(load, true, released_);
          }
        }
      }
    }
  }

  void AfterStep() override {
    if (parts_.config.fault != Fault::kStoreTooEarly) SubmitStores();
  }

  void TakeEnded(int64_t now_ms, std::vector<Arrival>& arrivals) override {
    now_ms_ = now_ms;
    std::move(released_.begin(), released_.end(), std::back_inserter(arrivals));
    released_.clear();
    for (const TransferResult& result : copies_->TakeEnded()) {
      EXPECT_NE(result.status.code(), StatusCode::kInvalidArgument) << result.status.ToString();
      const bool ok = result.status.ok();
      if (const auto store = stores_.find(result.id); store != stores_.end()) {
        EXPECT_TRUE(offload_->CompleteStore(store->second, 1, ok).ok());
        stores_.erase(store);
        ++parts_.counts.stores;
        parts_.counts.failed_stores += !ok;
      } else {
        for (const Load& load : loads_.at(result.id).requests) Complete(load, ok, arrivals);
        loads_.erase(result.id);
        ++parts_.counts.loads;
        parts_.counts.failed_loads += !ok;
      }
    }
    for (auto& [job, loads] : loads_) {
      if (parts_.config.late_load_ms == 0 || now_ms < loads.late_at_ms) continue;
      for (Load& load : loads.requests) GiveUp(load, arrivals);
    }
  }

  void Reset() override { offload_->Reset(); }
  std::vector<Event> TakeEvents() override { return offload_->TakeEvents(); }
  bool IsFree(const Request&) const override { return true; }
  bool Knows(const Request&) const override { return false; }
  bool idle() const override {
    return !offload_->has_pending_work() && copies_->idle() &&
           offload_->usage().free_blocks == offload_->usage().total_blocks;
  }
  Copies& copies() override { return *copies_; }
  Status CheckInvariants() const override { return offload_->CheckInvariants(); }
  size_t CellOffset(size_t group, int64_t cell) const override {
    return parts_.memory.CellOffsetInWhole(group, cell);
  }

  std::vector<HostChunk> Readable() const override {
    std::vector<HostChunk> readable;
    for (const auto& [block, content] : offload_->Inspect().cached) {
      const auto begin = host_.begin() + static_cast<ptrdiff_t>(block.value * block_bytes_);
      HostChunk& out = readable.emplace_back();
      out.first_slot = SlotId(block.value);
      out.digest = content.digest;
      out.group = content.group;
      out.blocks.emplace_back(begin, begin + static_cast<ptrdiff_t>(block_bytes_));
    }
    return readable;
  }

 private:
  struct Load {
    std::string name;
    OffloadRequestId request;
    bool given_up = false;
  };
  struct Loads {
    std::vector<Load> requests;
    int64_t late_at_ms = 0;
  };

  TransferJobId Submit(CopyDirection direction, const BlockPairs& pairs) {
    const TransferJobId job(next_job_++);
    copies_->Submit(ToTransferJob(job, direction, pairs, lists_));
    return job;
  }

  void SubmitStores() {
    if (step_.store_event) stores_[Submit(CopyDirection::kStore, step_.store)] = *step_.store_event;
  }

  void EndCopies() {
    std::vector<TransferJobId> jobs;
    for (const auto& [job, event] : stores_) jobs.push_back(job);
    for (const auto& [job, loads] : loads_) jobs.push_back(job);
    parts_.counts.flushes += std::ssize(jobs);
    copies_->Wait(jobs);
  }

  void Complete(const Load& load, bool success, std::vector<Arrival>& arrivals) {
    EXPECT_TRUE(offload_->CompleteLoad(load.name, success).ok());
    if (load.given_up) return;
    arrivals.push_back(
        {load.request, success ? Arrival::Kind::kLoaded : Arrival::Kind::kFailed, {}});
  }

  void GiveUp(Load& load, std::vector<Arrival>& arrivals) {
    if (std::exchange(load.given_up, true)) return;
    EXPECT_TRUE(offload_->GiveUpLoad(load.name).ok());
    arrivals.push_back({load.request, Arrival::Kind::kGivenUp, {}});
    ++parts_.counts.late_loads;
  }

  const TierParts parts_;
  const size_t block_bytes_ = parts_.memory.WholeBlocks().block_bytes();
  WithoutPins without_pins_;
  std::unique_ptr<SimpleOffload> offload_;
  std::vector<std::byte> host_;
  std::unique_ptr<Copies> copies_;  // must be destroyed before the memory
  TransferStep step_;
  TransferLists lists_;
  uint64_t next_job_ = 1;
  std::vector<Load> new_loads_;  // of this step
  std::map<TransferJobId, int64_t> stores_;
  std::map<TransferJobId, Loads> loads_;
  int64_t now_ms_ = 0;
  std::vector<Arrival> released_;
};

}  // namespace

std::unique_ptr<Tier> MakeSimpleTier(const TierParts& parts) {
  return std::make_unique<SimpleTier>(parts);
}

}  // namespace kvcast::content
