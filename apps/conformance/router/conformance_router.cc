// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>
#include <utility>

#include "apps/conformance/conformance.h"
#include "apps/conformance/router/interleaved_replay.h"
#include "apps/conformance/router/policy_index.h"
#include "apps/conformance/router/router_replay.h"
#include "apps/conformance/router/service_replay.h"
#include "apps/conformance/scenario/scenario_file.h"
#include "apps/conformance/scenario/scenario_wire.h"

namespace kvcast::tools {
namespace {

enum class Feed : uint8_t { kRecorded, kDecoded, kWire, kInterleaved };

std::optional<Feed> ParseFeed(const std::string& name) {
  if (name == "recorded") return Feed::kRecorded;
  if (name == "decoded") return Feed::kDecoded;
  if (name == "wire") return Feed::kWire;
  if (name == "interleaved") return Feed::kInterleaved;
  return std::nullopt;
}

// Counts the checks of one policy. Keeps the first difference of each file.
class Tally {
 public:
  explicit Tally(ConformanceReport& report) : report_(report) {}

  void Check(const Scenario& file, bool equal, const std::string& difference) {
    ++report_.compared;
    if (equal) {
      ++report_.equal;
    } else if (std::exchange(differing_, &file) != &file) {
      report_.first_differences.push_back(file.path + ": " + difference);
    }
  }

 private:
  ConformanceReport& report_;
  const Scenario* differing_ = nullptr;
};

ConformanceReport::PolicyFigures FiguresOf(Policy policy, const PromiseError& error) {
  const auto probes = static_cast<double>(std::max<uint64_t>(1, error.probes));
  return {std::string(PolicyName(policy)), error.probes,
          100.0 * static_cast<double>(error.exact) / probes,
          static_cast<double>(error.over_tokens) / probes,
          static_cast<double>(error.under_tokens) / probes};
}

// Replaces the events of each step by the events that the decoder returns for the step's payload.
Status PassOverWire(Scenario& scenario, bool recorded_only) {
  for (ScenarioStep& step : scenario.steps) {
    if (recorded_only && step.payload.empty()) continue;
    auto events = EventsOverWire(scenario.config, step);
    if (!events.ok()) {
      return {events.status().code(), scenario.path + ": step " + std::to_string(step.step) + ": " +
                                          events.status().message()};
    }
    step.events = std::move(events).value();
  }
  return Status();
}

Status ReplayAlone(const Scenario& scenario, Policy policy, const RouterReplay::Check& check,
                   PromiseError& error) {
  const auto registration = RegistrationOf(scenario);
  if (!registration.ok()) return registration.status();
  auto index = MakePolicyIndex(policy, *registration);
  if (!index.ok()) return index.status();
  auto replay = RouterReplay::Create(scenario.config, std::move(index).value(), check);
  if (!replay.ok()) return replay.status();
  for (const ScenarioStep& step : scenario.steps) replay->RunStep(step);
  error.Add(replay->error());
  return Status();
}

ConformanceReport::ExactFigures ExactFiguresOf(const ServiceFigures& served,
                                               const ServiceReplayOptions& options) {
  ConformanceReport::ExactFigures figures;
  figures.exact = served.exact;
  figures.exact_wrong = served.exact_wrong;
  figures.not_exact = served.not_exact;
  figures.proven_not_exact = served.proven_not_exact;
  figures.settled = served.settled;
  figures.settled_equal = served.settled_equal;
  figures.settled_exact = served.settled_exact;
  figures.only_exact_counts = options.told == Told::kNothing;
  return figures;
}

std::string NoteOf(const Scenario& scenario, const ServiceFigures& figures) {
  return scenario.config.name + ": " + std::to_string(figures.equal) + " of " +
         std::to_string(figures.probes) + " equal, " + std::to_string(figures.exact) + " exact, " +
         std::to_string(figures.exact_wrong) + " exact and wrong, " + std::to_string(figures.over) +
         " over, " + std::to_string(figures.under) + " under; settled " +
         std::to_string(figures.settled_equal) + "/" + std::to_string(figures.settled_exact) + "/" +
         std::to_string(figures.settled);
}

class RouterRun {
 public:
  RouterRun(std::vector<Policy> policies, const ServiceReplayOptions& service, Feed feed,
            uint64_t seed, uint64_t joins, ConformanceReport& report)
      : policies_(std::move(policies)),
        service_(service),
        feed_(feed),
        seed_(seed),
        joins_(joins),
        random_(seed),
        report_(report),
        errors_(policies_.size()) {}

  Status Run(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      auto scenario = ReadScenario(file);
      if (!scenario.ok()) return scenario.status();
      if (Status status = RunScenario(std::move(scenario).value()); !status.ok()) return status;
      ++report_.files;
    }
    if (Status status = ReplayWaiting(); !status.ok()) return status;
    if (all_figures_.probes > 0) {
      report_.exactness = ExactFiguresOf(all_figures_, service_);
      report_.exactness->joined_not_equal = joined_not_equal_;
      report_.exactness->only_exact_counts |= joins_ > 0;
    }
    const bool exact_alone = policies_ == std::vector{Policy::kExact};
    for (size_t i = 0; i < policies_.size() && !exact_alone; ++i) {
      report_.policies.push_back(FiguresOf(policies_[i], errors_[i]));
    }
    return Status();
  }

 private:
  Status RunScenario(Scenario scenario) {
    if (feed_ == Feed::kInterleaved) {
      waiting_.push_back(std::move(scenario));
      return Status();
    }
    Tally tally(report_);
    if (policies_[0] == Policy::kExact) {
      const Status status =
          joins_ > 0 ? JoinLate(scenario, tally) : Serve(scenario, service_, tally);
      if (!status.ok()) return {status.code(), scenario.path + ": " + status.message()};
      report_.notes.push_back(NoteOf(scenario, file_figures_));
      all_figures_.Add(std::exchange(file_figures_, {}));
    }
    if (feed_ != Feed::kDecoded && policies_.size() > 1) {
      Status status = PassOverWire(scenario, feed_ == Feed::kRecorded);
      if (!status.ok()) return status;
    }
    for (size_t i = 0; i < policies_.size(); ++i) {
      if (policies_[i] == Policy::kExact) continue;
      const auto check = [&](bool equal, const std::string& difference) {
        if (i == 0) tally.Check(scenario, equal, difference);
      };
      const Status status = ReplayAlone(scenario, policies_[i], check, errors_[i]);
      if (!status.ok()) return {status.code(), scenario.path + ": " + status.message()};
    }
    return Status();
  }

  Status Serve(const Scenario& scenario, const ServiceReplayOptions& options, Tally& tally) {
    auto replay =
        ServiceReplay::Create(scenario, options, [&](bool equal, const std::string& difference) {
          tally.Check(scenario, equal, difference);
        });
    const Status status = replay.ok() ? (*replay)->Run() : replay.status();
    if (!status.ok()) return status;
    const ServiceFigures& figures = (*replay)->figures();
    file_figures_.Add(figures);
    errors_[0].probes += figures.probes;
    errors_[0].exact += figures.equal;
    // A snapshot does not supply the properties that are not configured. Without these properties,
    // an answer may differ.
    if (options.snapshot && options.told == Told::kAll) {
      joined_not_equal_ += figures.proven_not_equal;
    }
    return Status();
  }

  Status JoinLate(const Scenario& scenario, Tally& tally) {
    if (scenario.steps.size() < 2) return Status();
    std::uniform_int_distribution<size_t> random_step(1, scenario.steps.size() - 1);
    for (uint64_t i = 0; i < joins_; ++i) {
      ServiceReplayOptions options = service_;
      options.join_at = random_step(random_);
      for (const bool snapshot : {false, true}) {
        options.snapshot = snapshot;
        const Status status = Serve(scenario, options, tally);
        if (!status.ok()) return status;
      }
    }
    return Status();
  }

  Status ReplayWaiting() {
    if (waiting_.empty()) return Status();
    std::vector<Tally> tallies(waiting_.size(), Tally(report_));
    const auto check = [&](const Scenario& file, bool equal, const std::string& difference) {
      tallies[static_cast<size_t>(&file - waiting_.data())].Check(file, equal, difference);
    };
    return ReplayInterleaved(waiting_, seed_, check, errors_[0]);
  }

  std::vector<Policy> policies_;
  ServiceReplayOptions service_;
  Feed feed_;
  uint64_t seed_;
  uint64_t joins_;
  std::mt19937_64 random_;
  ConformanceReport& report_;
  std::vector<PromiseError> errors_;  // by policy
  ServiceFigures file_figures_;       // exact policy, current file
  ServiceFigures all_figures_;        // exact policy, all files
  uint64_t joined_not_equal_ = 0;
  std::vector<Scenario> waiting_;  // for the interleaved run
};

}  // namespace

Status RunRouterConformance(const std::vector<std::string>& paths,
                            const RouterConformanceOptions& options, ConformanceReport& report) {
  const auto feed = ParseFeed(options.feed);
  if (!feed) return {StatusCode::kInvalidArgument, "unknown feed '" + options.feed + "'"};
  ServiceReplayOptions service;
  if (options.told == "nothing") {
    service.told = Told::kNothing;
  } else if (options.told != "all") {
    return {StatusCode::kInvalidArgument, "--told: expected all or nothing"};
  }
  if (options.scheme == "unknown") {
    service.scheme = Scheme::kUnknown;
  } else if (options.scheme != "found") {
    return {StatusCode::kInvalidArgument, "--scheme: expected found or unknown"};
  }
  std::vector<Policy> policies(kPolicies.begin(), kPolicies.end());
  if (options.policy != "all") {
    const auto policy = ParsePolicy(options.policy);
    if (!policy) return {StatusCode::kInvalidArgument, "unknown policy '" + options.policy + "'"};
    policies = {*policy};
  }
  if (*feed == Feed::kInterleaved && policies != std::vector{Policy::kExact}) {
    return {StatusCode::kInvalidArgument, "--feed interleaved: only for the policy exact"};
  }
  if (options.joins > 0 &&
      (*feed == Feed::kInterleaved || policies != std::vector{Policy::kExact})) {
    return {StatusCode::kInvalidArgument,
            "--joins: only for the policy exact, and not with --feed interleaved"};
  }
  const auto files = ScenarioPaths(paths);
  if (!files.ok()) return files.status();
  return RouterRun(std::move(policies), service, *feed, options.seed, options.joins, report)
      .Run(*files);
}

}  // namespace kvcast::tools
