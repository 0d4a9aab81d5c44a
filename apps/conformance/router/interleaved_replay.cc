// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/router/interleaved_replay.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace kvcast::tools {
namespace {

constexpr int kWorkersPerScenario = 2;

// The shared index of all workers, and for each worker an index of its own.
struct Fleet {
  PrefixIndex shared;
  std::vector<std::unique_ptr<PolicyIndex>> alone;
};

// One worker of the fleet.
class FleetMember : public PolicyIndex {
 public:
  using ReportDifference = std::function<void(const std::string& difference)>;
  FleetMember(Fleet& fleet, size_t self, ReportDifference report)
      : fleet_(fleet), self_(self), report_(std::move(report)) {}

  std::vector<size_t> Apply(const EventBatch& batch) override {
    fleet_.alone[self_]->Apply(batch);
    return fleet_.shared.Apply(Id(self_), batch).left_out;
  }
  Promise Match(std::span<const BlockHash> chain, int64_t hash_block_size,
                int64_t prompt_tokens) override;
  IndexCounters counters() const override { return fleet_.shared.counters(Id(self_)); }

  static WorkerId Id(size_t worker) { return WorkerId(static_cast<uint32_t>(worker)); }

 private:
  Fleet& fleet_;
  size_t self_;
  ReportDifference report_;  // called once per probe; empty text: no difference
};

Promise FleetMember::Match(std::span<const BlockHash> chain, int64_t hash_block_size,
                           int64_t prompt_tokens) {
  std::vector<Promise> together(fleet_.alone.size());
  for (const WorkerMatch& match : fleet_.shared.Match(chain, hash_block_size, prompt_tokens)) {
    together[match.worker.value] = PromiseOf(match);
  }
  std::string difference;
  for (size_t worker = 0; worker < together.size(); ++worker) {
    if (worker == self_) continue;
    const int64_t lone = fleet_.alone[worker]->Match(chain, hash_block_size, prompt_tokens).tokens;
    if (lone == together[worker].tokens) continue;
    difference = "worker " + std::to_string(worker) + " predicts " +
                 std::to_string(together[worker].tokens) + " among others, " +
                 std::to_string(lone) + " alone";
  }
  report_(difference);
  return together[self_];
}

struct Run {
  const Scenario* scenario = nullptr;
  RouterReplay replay;
  size_t next_step = 0;
};

Result<Run> StartRun(Fleet& fleet, const Scenario& scenario, const FileCheck& check) {
  const auto registration = RegistrationOf(scenario);
  if (!registration.ok()) return registration.status();
  auto alone = MakePolicyIndex(Policy::kExact, *registration);
  if (!alone.ok()) return alone.status();
  const size_t worker = fleet.alone.size();
  fleet.alone.push_back(std::move(alone).value());
  const Status added = fleet.shared.AddWorker(FleetMember::Id(worker), *registration);
  if (!added.ok()) return added;
  auto member = std::make_unique<FleetMember>(fleet, worker, [&](const std::string& difference) {
    check(scenario, difference.empty(), difference);
  });
  auto replay = RouterReplay::Create(
      scenario.config, std::move(member),
      [&](bool equal, const std::string& difference) { check(scenario, equal, difference); });
  if (!replay.ok()) return replay.status();
  return Run{&scenario, std::move(replay).value()};
}

// False: the run has ended.
bool Advance(Run& run) {
  const Scenario& scenario = *run.scenario;
  if (run.next_step < scenario.steps.size()) {
    run.replay.RunStep(scenario.steps[run.next_step++]);
    return true;
  }
  if (scenario.final_state) run.replay.CheckFinal(*scenario.final_state);
  return false;
}

}  // namespace

Status ReplayInterleaved(std::span<const Scenario> scenarios, uint64_t seed, const FileCheck& check,
                         PromiseError& error) {
  Fleet fleet;
  std::vector<Run> runs;
  for (size_t i = 0; i < scenarios.size() * kWorkersPerScenario; ++i) {
    auto run = StartRun(fleet, scenarios[i % scenarios.size()], check);
    if (!run.ok()) return run.status();
    runs.push_back(std::move(run).value());
  }
  std::mt19937_64 random(seed);
  while (!runs.empty()) {
    Run& run = runs[random() % runs.size()];
    if (Advance(run)) continue;
    error.Add(run.replay.error());
    std::swap(run, runs.back());
    runs.pop_back();
  }
  return Status();
}

}  // namespace kvcast::tools
