// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/freshness_load.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/bench/service/event_load.h"
#include "apps/bench/service/freshness_prompts.h"
#include "kvcast/stream/publisher.h"

namespace kvcast::tools {
namespace {

constexpr uint64_t kFillBlocks = 512;  // per batch

// The state of one publisher.
class Source {
 public:
  explicit Source(int number) : number_(number), prompts_(number), tokens_(number) {}

  bool full() const { return stored_ - removed_ >= kHeldBlocks; }
  // Stores `blocks` blocks. A full source also removes `blocks` blocks.
  EventBatch Next(uint64_t blocks) {
    EventBatch batch;
    const bool removes = full();
    for (uint64_t left = blocks; left > 0;) left -= Store(left, batch);
    if (removes) Remove(blocks, batch);
    batch.ts = SteadyNow();
    return batch;
  }

 private:
  static BlockStored NewStore() {
    BlockStored stored;
    stored.block_size = kFreshnessBlockSize;
    stored.group_idx = 0;
    stored.kv_cache_spec_kind = "full_attention";
    stored.medium = "GPU";
    stored.token_ids.emplace();
    return stored;
  }

  uint64_t Store(uint64_t most, EventBatch& batch) {
    if (stored_ == prompt_.end) prompt_ = prompts_.Next();
    const uint64_t end = std::min(stored_ + most, prompt_.end);
    const uint64_t begin = stored_;
    BlockStored stored = NewStore();
    if (begin > prompt_.begin)
      stored.parent_block_hash = BlockHash(HashOfBlock(number_, begin - 1));
    for (; stored_ < end; ++stored_) {
      stored.block_hashes.emplace_back(HashOfBlock(number_, stored_));
      for (int64_t token = 0; token < kFreshnessBlockSize; ++token) {
        stored.token_ids->push_back(static_cast<TokenId>(tokens_() % 128000));
      }
    }
    batch.events.emplace_back(std::move(stored));
    return end - begin;
  }

  void Remove(uint64_t blocks, EventBatch& batch) {
    BlockRemoved removed;
    removed.group_idx = 0;
    removed.medium = "GPU";
    for (const uint64_t end = removed_ + blocks; removed_ < end; ++removed_) {
      removed.block_hashes.emplace_back(HashOfBlock(number_, removed_));
    }
    batch.events.emplace_back(std::move(removed));
  }

  const int number_;
  PromptSequence prompts_;
  std::minstd_rand tokens_;
  PromptSpan prompt_;
  uint64_t stored_ = 0;  // blocks stored so far, including the removed ones
  uint64_t removed_ = 0;
};

class Load {
 public:
  explicit Load(const FreshnessConfig& config) : config_(config) {}

  bool Open(const PipeEnd& out) {
    for (int i = 0; i < config_.sources; ++i) {
      auto publisher = Publisher::Create({.endpoint = "tcp://127.0.0.1:0",
                                          .replay_endpoint = "tcp://127.0.0.1:0",
                                          .shares_threads = true});
      if (!publisher.ok()) return false;
      publishers_.push_back(std::move(publisher).value());
      sources_.emplace_back(i);
    }
    return Fill() && std::ranges::all_of(publishers_, [&](const auto& publisher) {
             return out.Put(EndpointsOf(*publisher));
           });
  }

  bool Publish() {
    const double rate = static_cast<double>(config_.sources) * config_.batches_per_s;
    const double before_burst = kWarmUpSeconds + config_.seconds / 2.0;
    if (config_.burst <= 1) return PublishAt(rate, kWarmUpSeconds + config_.seconds);
    if (!PublishAt(rate, before_burst) || !PublishAt(rate * config_.burst, 1)) return false;
    const double reached = published_.rate;
    published_.burst_end = SteadyNow();
    if (!PublishAt(rate, config_.seconds / 2.0)) return false;
    published_.rate = reached;
    return true;
  }

  Published Result() {
    published_.publish = QuantilesOf(costs_);
    return published_;
  }

 private:
  bool Publish(size_t source, uint64_t blocks) {
    EventBatch batch = sources_[source].Next(blocks);
    const double before = SteadyNow();
    if (!publishers_[source]->Publish(std::move(batch)).ok()) return false;
    costs_.Add(SteadyNow() - before);
    ++published_.batches;
    return true;
  }

  bool Fill() {
    for (size_t i = 0; i < sources_.size(); ++i) {
      while (!sources_[i].full()) {
        if (!Publish(i, kFillBlocks)) return false;
      }
    }
    costs_ = {};
    return true;
  }

  // A late batch is published immediately: the benchmark offers the configured rate.
  bool PublishAt(double rate, double seconds) {
    const auto count = static_cast<uint64_t>(rate * seconds);
    const double start = SteadyNow();
    for (uint64_t i = 0; i < count; ++i) {
      const double due = start + static_cast<double>(i) / rate;
      if (const double early = due - SteadyNow(); early > 0) {
        std::this_thread::sleep_for(std::chrono::duration<double>(early));
      }
      if (!Publish(i % sources_.size(), static_cast<uint64_t>(config_.blocks_per_batch / 2))) {
        return false;
      }
    }
    published_.rate = static_cast<double>(count) / (SteadyNow() - start);
    return true;
  }

  const FreshnessConfig& config_;
  std::vector<std::unique_ptr<Publisher>> publishers_;
  std::vector<Source> sources_;
  bench::Samples costs_;  // in seconds
  Published published_;
};

}  // namespace

int PublishForFreshness(const FreshnessConfig& config, const PipeEnd& in, const PipeEnd& out) {
  Load load(config);
  char byte = 0;
  if (!load.Open(out) || !in.Get(byte, kPipePatienceMs)) return 1;
  if (!load.Publish() || !out.Put(load.Result())) return 1;
  in.Get(byte, kPipePatienceMs);
  return 0;
}

}  // namespace kvcast::tools
