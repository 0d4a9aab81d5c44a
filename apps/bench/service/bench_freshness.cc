// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/bench_freshness.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "apps/bench/machine/slow_times.h"
#include "apps/bench/machine/speed_probe.h"
#include "apps/bench/service/event_load.h"
#include "apps/bench/service/freshness_load.h"
#include "apps/bench/service/freshness_queries.h"
#include "apps/support/forked_process.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/stream/subscriber.h"
#include "kvcast/wire/wire.h"

namespace kvcast::tools {
namespace {

constexpr int kPatienceSeconds = 10;
constexpr auto kIdleTime = std::chrono::seconds(5);

QueryFigures FiguresOf(const QueryTimes& times) {
  return {QuantilesOf(times.short_prompts, 1e-9), QuantilesOf(times.any_prompts, 1e-9),
          times.short_prompts.size() + times.any_prompts.size(), times.hits};
}

// The router process: index, subscriber, and a thread that sends queries.
class Watcher {
 public:
  explicit Watcher(const FreshnessConfig& config)
      : config_(config), queries_(index_, config.sources) {}

  Status Start(const std::vector<LoadEndpoints>& endpoints) {
    delays_.reserve(static_cast<size_t>(config_.sources) *
                    static_cast<size_t>(config_.batches_per_s) *
                    static_cast<size_t>(config_.seconds + 1));
    auto made = Subscriber::Create({});
    if (!made.ok()) return made.status();
    subscriber_ = std::move(made).value();
    for (size_t i = 0; i < endpoints.size(); ++i) {
      const WorkerId worker(static_cast<uint32_t>(i));
      if (Status status = index_.AddWorker(worker, {.name = "source"}); !status.ok()) return status;
      auto sink = std::make_shared<BatchSink>(
          [this, worker](Seq, std::span<const uint8_t> payload) { OnBatch(worker, payload); },
          [this, worker](ResetReason) { index_.RestartWorker(worker); });
      Status status = subscriber_->Add({.worker = worker,
                                        .endpoint = endpoints[i].endpoint.data(),
                                        .replay_endpoint = endpoints[i].replay.data()},
                                       std::move(sink));
      if (!status.ok()) return status;
    }
    return {};
  }

  bool WaitForConnections() const {
    const double deadline = SteadyNow() + kPatienceSeconds;
    for (;;) {
      int synced = 0;
      for (int i = 0; i < config_.sources; ++i) {
        const auto state = subscriber_->status(WorkerId(static_cast<uint32_t>(i))).state;
        synced += state == SourceState::kSynced ? 1 : 0;
      }
      if (synced == config_.sources) return true;
      if (SteadyNow() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  void MeasureIdle() {
    queries_.Enter(FreshnessQueries::Phase::kIdle);
    std::this_thread::sleep_for(kIdleTime);
    queries_.Enter(FreshnessQueries::Phase::kNone);
  }
  // Starts the measurement, and returns.
  void BeginMeasurement() {
    speed_ = std::make_unique<bench::SpeedProbe>();
    begin_ = SteadyNow() + kWarmUpSeconds;
    queries_.Enter(FreshnessQueries::Phase::kBusy);
  }
  // Waits until `batches` batches are applied, or until none has arrived for kPatienceSeconds.
  void WaitFor(uint64_t batches) {
    uint64_t before = applied_;
    double since = SteadyNow();
    while (applied_ < batches && SteadyNow() - since < kPatienceSeconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (std::exchange(before, applied_.load()) != before) since = SteadyNow();
    }
  }

  // False: the index does not know the content of a held block. The query times are then not those
  // of a router that knows all contents.
  bool NamesAllBlocks() const {
    for (int i = 0; i < config_.sources; ++i) {
      const IndexCounters counters = index_.counters(WorkerId(static_cast<uint32_t>(i)));
      if (counters.ambiguous > 0 || counters.unnamed > 0) return false;
    }
    return true;
  }

  // Stops the subscriber and the queries. REQUIRES: BeginMeasurement was called.
  FreshnessResult Result(const Published& published) {
    FreshnessResult result;
    result.gaps = gaps();
    subscriber_.reset();
    result.published = published.batches;
    result.applied = applied_;
    result.rate = published.rate;
    result.publish = published.publish;
    queries_.Stop();
    result.idle = FiguresOf(queries_.idle());
    result.busy = FiguresOf(queries_.busy());
    for (const bench::TimedDelay& delay : delays_) {
      if (delay.begin > published.burst_end) continue;
      const double applied = delay.begin + static_cast<double>(delay.seconds);
      result.backlog = std::max(result.backlog, applied - published.burst_end);
    }
    const bench::SlowTimes slow(speed_->Stop());
    result.visible = QuantilesOf(bench::SlowTimes().AtFullSpeed(delays_));
    result.visible_full_speed = QuantilesOf(slow.AtFullSpeed(delays_));
    result.slow_share = slow.share();
    return result;
  }

 private:
  uint64_t gaps() const {
    uint64_t gaps = 0;
    for (int i = 0; i < config_.sources; ++i) {
      gaps += subscriber_->status(WorkerId(static_cast<uint32_t>(i))).gaps;
    }
    return gaps;
  }
  void OnBatch(WorkerId worker, std::span<const uint8_t> payload) {
    const DecodeOptions needed{.merge_removes = true};
    if (!DecodeBatch(payload, WireLimits(), needed, batch_, counts_).ok()) return;
    if (batch_.events.empty()) return;  // heartbeat
    index_.Apply(worker, batch_);
    const double now = SteadyNow();
    if (batch_.ts >= begin_) delays_.push_back({batch_.ts, static_cast<float>(now - batch_.ts)});
    for (const Event& event : batch_.events) {
      const auto* stored = std::get_if<BlockStored>(&event);
      if (stored == nullptr) continue;
      queries_.NoteStored(static_cast<int>(worker.value), stored->block_hashes.size());
    }
    ++applied_;
  }

  const FreshnessConfig& config_;
  PrefixIndex index_;
  EventBatch batch_;
  DecodeCounts counts_;
  // Until the subscriber's thread has ended, only that thread uses delays_.
  std::vector<bench::TimedDelay> delays_;
  std::unique_ptr<bench::SpeedProbe> speed_;
  std::atomic<double> begin_ = 1e300;
  std::atomic<uint64_t> applied_ = 0;
  FreshnessQueries queries_;
  std::unique_ptr<Subscriber> subscriber_;  // destroyed first: its thread uses the other members
};

}  // namespace

Quantiles QuantilesOf(const bench::Samples& samples, double seconds_of_one) {
  const auto at = [&](double q) { return samples.Quantile(q) * seconds_of_one; };
  return {at(0.5), at(0.99), at(0.999), at(1)};
}

Result<FreshnessResult> RunFreshnessBench(const FreshnessConfig& config) {
  const auto broken = [](const char* problem) { return Status(StatusCode::kUnavailable, problem); };
  const auto child =
      ForkedProcess::Start([&](const PipeEnd& from_router, const PipeEnd& to_router) {
        setpriority(PRIO_PROCESS, 0, config.publishers_nice);
        return PublishForFreshness(config, from_router, to_router);
      });
  if (!child.ok()) return child.status();
  const PipeEnd& out = (*child)->to();
  const PipeEnd& in = (*child)->from();

  std::vector<LoadEndpoints> endpoints(static_cast<size_t>(config.sources));
  for (LoadEndpoints& endpoint : endpoints) {
    if (!in.Get(endpoint, 30'000)) return broken("the publishers did not start");
  }
  Watcher watcher(config);
  if (Status status = watcher.Start(endpoints); !status.ok()) return status;
  if (!watcher.WaitForConnections()) return broken("some sources are not synced");
  if (!watcher.NamesAllBlocks()) {
    return Status(StatusCode::kInternal, "the index does not name all blocks of the sources");
  }
  watcher.MeasureIdle();
  watcher.BeginMeasurement();
  if (!out.Put(char{1})) return broken("the publisher process has ended");
  Published published;
  const int patience_ms = (kWarmUpSeconds + config.seconds + config.burst + 60) * 1000;
  if (!in.Get(published, patience_ms)) return broken("the publisher process did not finish");
  watcher.WaitFor(published.batches);
  return watcher.Result(published);
}

}  // namespace kvcast::tools
