// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/bench_hostile.h"

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/bench/machine/slow_times.h"
#include "apps/bench/machine/speed_probe.h"
#include "apps/bench/service/event_load.h"
#include "apps/bench/service/freshness_load.h"
#include "apps/support/steady_now.h"
#include "router/service/ingest/fleet.h"

namespace kvcast::tools {
namespace {

using router::FleetWorker;
using router::WorkerRegistration;

constexpr int kAwaitSeconds = 20;

// glibc asks a name server twice, and waits for 5 s each time.
constexpr std::chrono::seconds kUnansweredLookup(10);

Status Broken(const char* problem) { return {StatusCode::kUnavailable, problem}; }

std::atomic<uint64_t> lookups = 0;  // calls of NoAnswer in this process

// Replaces the system's resolver. Only an attack with Attack::unanswered_names uses host names.
std::string NoAnswer(const std::string&) {
  ++lookups;
  std::this_thread::sleep_for(kUnansweredLookup);
  return {};
}

std::string NameOf(const char* kind, size_t i) { return kind + std::to_string(i); }

// The ingestion of a router. This class measures the delays of the good sources' batches.
class Router {
 public:
  Router(const FreshnessConfig& good, size_t ingest_threads)
      : good_(static_cast<size_t>(good.sources)),
        index_(ContentKeys::OfProcess(), ingest_threads),
        delays_(good_) {}

  Status Start() {
    SubscriberConfig config;
    config.resolve = NoAnswer;
    auto fleet = router::Fleet::Create(
        config, index_, {.on_applied = [this](const FleetWorker& worker, const auto& applied) {
          OnApplied(worker, applied.batch);
        }});
    if (!fleet.ok()) return fleet.status();
    fleet_ = std::move(fleet).value();
    return {};
  }
  Status Add(const std::string& name, const LoadEndpoints& endpoints) {
    WorkerRegistration source;
    source.worker.name = name;
    source.endpoint = endpoints.endpoint.data();
    source.replay_endpoint = endpoints.replay.data();
    return fleet_->Add(source);
  }

  // Waits until the good sources are synced. False: a source is not synced after kAwaitSeconds.
  bool AwaitSynced() const {
    return Await([this] {
      for (size_t i = 0; i < good_; ++i) {
        if (StateOf(NameOf("good-", i)) != SourceState::kSynced) return false;
      }
      return true;
    });
  }
  // From now on, measures the batches that are published after a warm-up of kWarmUpSeconds.
  void BeginMeasurement() {
    speed_ = std::make_unique<bench::SpeedProbe>();
    begin_ = SteadyNow() + kWarmUpSeconds;
  }
  void AwaitApplied(uint64_t batches) const {
    Await([this, batches] { return applied_ >= batches; });
  }

  // Stops the ingestion. REQUIRES: BeginMeasurement was called.
  HostileResult Result(const Published& published) {
    HostileResult result;
    result.published = published.batches;
    result.rate = published.rate;
    result.hostile_state = StateOf(NameOf("hostile-", 0));
    fleet_.reset();
    result.applied = applied_;
    result.hostile_applied = hostile_applied_;
    const bench::SlowTimes slow(speed_->Stop());
    bench::Samples all;
    bench::Samples full_speed;
    for (const std::vector<bench::TimedDelay>& delays : delays_) {
      all.Add(bench::SlowTimes().AtFullSpeed(delays));
      full_speed.Add(slow.AtFullSpeed(delays));
    }
    result.visible = QuantilesOf(all);
    result.visible_full_speed = QuantilesOf(full_speed);
    result.slow_share = slow.share();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    result.resident_mib = static_cast<double>(usage.ru_maxrss) / 1024;
    return result;
  }

 private:
  template <typename Condition>
  static bool Await(const Condition& condition) {
    const double deadline = SteadyNow() + kAwaitSeconds;
    while (!condition()) {
      if (SteadyNow() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  SourceState StateOf(const std::string& name) const {
    const auto worker = fleet_->view()->Find(name);
    return worker == nullptr ? SourceState::kConnecting : fleet_->State(*worker);
  }

  // For one worker, only one thread at a time calls this function. The good workers have the first
  // ids.
  void OnApplied(const FleetWorker& worker, const EventBatch& batch) {
    if (batch.events.empty()) return;  // heartbeat
    if (worker.id.value >= good_) {
      ++hostile_applied_;
      return;
    }
    if (batch.ts >= begin_) {
      delays_[worker.id.value].push_back({batch.ts, static_cast<float>(SteadyNow() - batch.ts)});
    }
    ++applied_;
  }

  const size_t good_;
  PrefixIndex index_;
  std::vector<std::vector<bench::TimedDelay>> delays_;  // by good worker
  std::unique_ptr<bench::SpeedProbe> speed_;
  std::atomic<double> begin_ = 1e300;
  std::atomic<uint64_t> applied_ = 0;
  std::atomic<uint64_t> hostile_applied_ = 0;
  std::unique_ptr<router::Fleet> fleet_;  // destroyed first: its threads use the other members
};

// Adds the sources whose endpoints arrive on `in`.
Status AddAll(Router& router, const char* kind, size_t count, const PipeEnd& in) {
  for (size_t i = 0; i < count; ++i) {
    LoadEndpoints endpoints;
    if (!in.Get(endpoints, kPipeTimeoutMs)) return Broken("a publisher did not start");
    if (Status status = router.Add(NameOf(kind, i), endpoints); !status.ok()) return status;
  }
  return {};
}

Result<HostileResult> Run(const Attack* attack, const FreshnessConfig& good,
                          size_t ingest_threads) {
  const auto publishers = ForkedProcess::Start([&](const PipeEnd& in, const PipeEnd& out) {
    setpriority(PRIO_PROCESS, 0, good.publishers_nice);
    return PublishForFreshness(good, in, out);
  });
  if (!publishers.ok()) return publishers.status();
  std::unique_ptr<ForkedProcess> attacker;
  if (attack != nullptr) {
    auto started = ForkedProcess::Start([&](const PipeEnd& in, const PipeEnd& out) {
      setpriority(PRIO_PROCESS, 0, good.publishers_nice);
      return SendHostile(*attack, in, out);
    });
    if (!started.ok()) return started.status();
    attacker = std::move(started).value();
  }
  Router router(good, ingest_threads);
  if (Status status = router.Start(); !status.ok()) return status;
  const auto sources = static_cast<size_t>(good.sources);
  if (Status status = AddAll(router, "good-", sources, (*publishers)->from()); !status.ok()) {
    return status;
  }
  if (!router.AwaitSynced()) return Broken("some good sources are not synced");
  if (attacker != nullptr) {
    const auto count = static_cast<size_t>(attack->sources);
    if (Status status = AddAll(router, "hostile-", count, attacker->from()); !status.ok()) {
      return status;
    }
    if (!attacker->to().Put(char{1})) return Broken("the attacker has ended");
  }
  router.BeginMeasurement();
  Published published;
  const int patience_ms = (kWarmUpSeconds + good.seconds + 60) * 1000;
  if (!(*publishers)->to().Put(char{1}) || !(*publishers)->from().Get(published, patience_ms)) {
    return Broken("the publishers did not finish");
  }
  router.AwaitApplied(published.batches);
  HostileSent sent;
  if (attacker != nullptr) {
    if (!attacker->to().Put(char{1}) || !attacker->from().Get(sent, kPipeTimeoutMs)) {
      return Broken("the attacker did not finish");
    }
  }
  if (attack != nullptr && attack->unanswered_names && lookups == 0) {
    return Broken("no name was looked up");
  }
  HostileResult result = router.Result(published);
  result.sent = sent;
  return result;
}

}  // namespace

Result<HostileResult> RunHostileBench(const Attack* attack, const FreshnessConfig& good,
                                      size_t ingest_threads) {
  const auto child = ForkedProcess::Start([&](const PipeEnd&, const PipeEnd& out) {
    const auto result = Run(attack, good, ingest_threads);
    return result.ok() && out.Put(*result) ? 0 : 1;
  });
  if (!child.ok()) return child.status();
  HostileResult result;
  if (!(*child)->from().Get(result, (good.seconds + 120) * 1000)) {
    return Broken("the router process failed");
  }
  return result;
}

}  // namespace kvcast::tools
