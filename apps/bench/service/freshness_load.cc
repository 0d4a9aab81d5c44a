// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/freshness_load.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "apps/bench/service/event_load.h"
#include "apps/bench/service/freshness_prompts.h"
#include "apps/bench/service/prompt_source.h"
#include "kvcast/stream/publisher.h"

namespace kvcast::tools {
namespace {

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
      sources_.emplace_back(i, kHeldBlocks);
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
  std::vector<PromptSource> sources_;
  bench::Samples costs_;  // in seconds
  Published published_;
};

}  // namespace

int PublishForFreshness(const FreshnessConfig& config, const PipeEnd& in, const PipeEnd& out) {
  Load load(config);
  char byte = 0;
  if (!load.Open(out) || !in.Get(byte, kPipeTimeoutMs)) return 1;
  if (!load.Publish() || !out.Put(load.Result())) return 1;
  in.Get(byte, kPipeTimeoutMs);
  return 0;
}

}  // namespace kvcast::tools
