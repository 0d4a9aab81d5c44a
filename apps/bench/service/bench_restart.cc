// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/bench_restart.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "apps/bench/service/event_load.h"
#include "apps/bench/service/restart_load.h"
#include "apps/bench/service/restarted_router.h"
#include "apps/support/forked_process.h"
#include "apps/support/steady_now.h"

namespace kvcast::tools {
namespace {

constexpr int kStartMs = 120'000;
constexpr int kCheckMs = 150'000;

Status Failed(const char* problem) { return {StatusCode::kUnavailable, problem}; }

class RestartBench {
 public:
  explicit RestartBench(const RestartConfig& config) : config_(config) {}

  Status StartPublishers() {
    auto started = ForkedProcess::Start([this](const PipeEnd& in, const PipeEnd& out) {
      setpriority(PRIO_PROCESS, 0, config_.publishers_nice);
      return PublishForRestarts(config_, in, out);
    });
    if (!started.ok()) return started.status();
    publishers_ = std::move(started).value();
    endpoints_.resize(static_cast<size_t>(config_.sources));
    for (LoadEndpoints& endpoint : endpoints_) {
      if (!publishers_->from().Get(endpoint, kStartMs))
        return Failed("the publishers did not start");
    }
    return {};
  }

  bool BeginLoad() const { return publishers_->to().Put(char{1}); }
  // Stops the publishers, and reads the state of each source into counts_.
  bool EndLoad() {
    counts_.resize(endpoints_.size());
    return publishers_->to().Put(char{1}) &&
           publishers_->from().Get(result_.rate, kPipeTimeoutMs) &&
           std::ranges::all_of(counts_, [this](SourceCount& count) {
             return publishers_->from().Get(count, kPipeTimeoutMs);
           });
  }

  // Returns the seconds until the router answers exactly for all sources. -1: it does not do so
  // within a minute.
  Result<double> StartRouter(bool saves) {
    const double begin = SteadyNow();
    const auto state = Start({.saves = saves, .peer_port = 0, .seed = random_()}, router_);
    if (!state.ok()) return state.status();
    admin_port_ = state->admin_port;
    return state->answers_at == 0 ? -1 : state->answers_at - begin;
  }
  void KillRouter() { router_.reset(); }

  // Compares the router with the publishers. REQUIRES: the publishers are stopped.
  Status Check(const ForkedProcess& router) {
    RouterChecked checked;
    if (!Command(router, RouterCommand::kCheck) || !router.from().Get(checked, kCheckMs)) {
      return Failed("the router process has ended");
    }
    if (!checked.complete) return Failed("the router did not get all batches");
    result_.asked += checked.asked;
    result_.wrong += checked.wrong;
    result_.inexact += checked.inexact;
    result_.dropped += checked.dropped;
    result_.digest_checks += checked.digest_checks;
    result_.digest_mismatches += checked.digest_mismatches;
    return {};
  }

  Status MeasureSaves() {
    char byte = 0;
    if (!Command(*router_, RouterCommand::kMeasure) || !router_->from().Get(byte, kCheckMs) ||
        !BeginLoad() ||
        !router_->from().Get(result_.saves, kCheckMs + config_.query_seconds * 1000) ||
        !EndLoad()) {
      return Failed("the queries could not be measured");
    }
    return {};
  }

  // Kills the router at a random time under load, starts it again, and checks it.
  Status KillAndRestart() {
    std::uniform_real_distribution<double> seconds(
        0.2, 1.5 * static_cast<double>(config_.save_period_s));
    if (!BeginLoad()) return Failed("the publishers have ended");
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds(random_)));
    KillRouter();
    const auto restarted = StartRouter(true);
    if (!restarted.ok()) return restarted.status();
    if (*restarted < 0) return Failed("a restarted router does not answer exactly");
    restarts_.Add(*restarted);
    if (!EndLoad()) return Failed("the publishers have ended");
    return Check(*router_);
  }

  // Another router joins the running router under load, is checked, and ends.
  Status Join() {
    if (!BeginLoad()) return Failed("the publishers have ended");
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const double begin = SteadyNow();
    std::unique_ptr<ForkedProcess> joining;
    const auto state =
        Start({.saves = false, .peer_port = admin_port_, .seed = random_()}, joining);
    if (!state.ok()) return state.status();
    if (state->answers_at == 0) return Failed("a router that joined does not answer exactly");
    if (state->restored != endpoints_.size()) return Failed("a router did not get the state");
    arrivals_.Add(state->join_seconds);
    serves_.Add(state->serves_at - begin);
    joins_.Add(state->answers_at - begin);
    result_.join_bytes = state->join_bytes;
    if (!EndLoad()) return Failed("the publishers have ended");
    return Check(*joining);
  }

  Status MeasureCold() {
    KillRouter();
    if (!BeginLoad()) return Failed("the publishers have ended");
    const auto cold = StartRouter(false);
    if (!cold.ok()) return cold.status();
    result_.cold = *cold;
    return EndLoad() ? Status() : Failed("the publishers have ended");
  }

  RestartResult Take() {
    result_.restarted = QuantilesOf(restarts_);
    result_.arrived = QuantilesOf(arrivals_);
    result_.restored_after = QuantilesOf(serves_);
    result_.joined = QuantilesOf(joins_);
    return result_;
  }

 private:
  Result<RouterStarted> Start(const RouterStart& start, std::unique_ptr<ForkedProcess>& router) {
    auto started = ForkedProcess::Start([&](const PipeEnd& in, const PipeEnd& out) {
      return RunRestartedRouter(config_, endpoints_, start, in, out);
    });
    if (!started.ok()) return started.status();
    router = std::move(started).value();
    RouterStarted state;
    if (!router->from().Get(state, kStartMs)) return Failed("the router did not start");
    result_.restored += state.restored;
    return state;
  }
  bool Command(const ForkedProcess& router, RouterCommand command) const {
    return router.to().Put(command) && std::ranges::all_of(counts_, [&router](const auto& count) {
             return router.to().Put(count);
           });
  }

  const RestartConfig& config_;
  std::mt19937_64 random_{1};
  std::unique_ptr<ForkedProcess> publishers_;
  std::unique_ptr<ForkedProcess> router_;
  std::vector<LoadEndpoints> endpoints_;
  std::vector<SourceCount> counts_;
  int admin_port_ = 0;       // of router_
  bench::Samples restarts_;  // in seconds, as the three members below
  bench::Samples arrivals_;
  bench::Samples serves_;
  bench::Samples joins_;
  RestartResult result_;
};

}  // namespace

Result<RestartResult> RunRestartBench(const RestartConfig& config) {
  RestartBench bench(config);
  if (Status status = bench.StartPublishers(); !status.ok()) return status;
  const auto first = bench.StartRouter(true);
  if (!first.ok()) return first.status();
  if (*first < 0) return Failed("the first router does not answer exactly");
  if (!bench.BeginLoad() || !bench.EndLoad()) return Failed("the publishers have ended");
  if (Status status = bench.MeasureSaves(); !status.ok()) return status;
  for (int i = 0; i < config.kills; ++i) {
    if (Status status = bench.KillAndRestart(); !status.ok()) return status;
  }
  for (int i = 0; i < config.joins; ++i) {
    if (Status status = bench.Join(); !status.ok()) return status;
  }
  if (Status status = bench.MeasureCold(); !status.ok()) return status;
  return bench.Take();
}

}  // namespace kvcast::tools
