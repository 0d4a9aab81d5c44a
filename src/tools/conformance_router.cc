// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/tools/conformance.h"
#include "src/tools/interleaved_replay.h"
#include "src/tools/policy_index.h"
#include "src/tools/router_replay.h"
#include "src/tools/scenario_file.h"
#include "src/tools/scenario_wire.h"

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

// Counts the checks of one policy; names the first difference of each file.
class Tally {
 public:
  explicit Tally(ConformanceReport& report) : report_(report) {}

  void Check(const Scenario& file, bool equal, const std::string& what) {
    ++report_.compared;
    if (equal) {
      ++report_.equal;
    } else if (std::exchange(differing_, &file) != &file) {
      report_.first_differences.push_back(file.path + ": " + what);
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

// Replaces the steps' events by what the decoder makes of their payloads.
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

ConformanceReport::TokenModeFigures TokenModeFiguresOf(const PromiseError& error) {
  ConformanceReport::TokenModeFigures figures;
  figures.above = error.over_probes;
  figures.below = error.under_probes;
  for (const auto& [reason, probes] : error.under_probes) {
    if (reason != kUnexplained) figures.explained += probes;
  }
  return figures;
}

Status ReplayAlone(const Scenario& scenario, Policy policy, KeyMode mode,
                   const RouterReplay::Check& check, PromiseError& error) {
  const auto registration = RegistrationOf(scenario);
  if (!registration.ok()) return registration.status();
  auto index = MakePolicyIndex(policy, *registration);
  if (!index.ok()) return index.status();
  auto replay = RouterReplay::Create(scenario.config, std::move(index).value(), check, mode);
  if (!replay.ok()) return replay.status();
  for (const ScenarioStep& step : scenario.steps) replay->RunStep(step);
  if (policy == Policy::kExact && scenario.final_state) replay->CheckFinal(*scenario.final_state);
  error.Add(replay->error());
  return Status();
}

class RouterRun {
 public:
  RouterRun(std::vector<Policy> policies, KeyMode mode, Feed feed, uint64_t seed,
            ConformanceReport& report)
      : policies_(std::move(policies)),
        mode_(mode),
        feed_(feed),
        seed_(seed),
        report_(report),
        errors_(policies_.size()) {}

  Status Run(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      auto scenario = ReadScenario(file);
      if (!scenario.ok()) return scenario.status();
      if (Status status = Take(std::move(scenario).value()); !status.ok()) return status;
      ++report_.files;
    }
    if (Status status = ReplayWaiting(); !status.ok()) return status;
    if (mode_ != KeyMode::kEngineHash) report_.token_mode = TokenModeFiguresOf(errors_[0]);
    const bool exact_alone = policies_ == std::vector{Policy::kExact};
    for (size_t i = 0; i < policies_.size() && !exact_alone; ++i) {
      report_.policies.push_back(FiguresOf(policies_[i], errors_[i]));
    }
    return Status();
  }

 private:
  Status Take(Scenario scenario) {
    if (feed_ == Feed::kInterleaved) {
      waiting_.push_back(std::move(scenario));
      return Status();
    }
    if (feed_ != Feed::kDecoded) {
      Status status = PassOverWire(scenario, feed_ == Feed::kRecorded);
      if (!status.ok()) return status;
    }
    Tally tally(report_);
    for (size_t i = 0; i < policies_.size(); ++i) {
      const auto check = [&](bool equal, const std::string& what) {
        if (i == 0) tally.Check(scenario, equal, what);
      };
      const Status status = ReplayAlone(scenario, policies_[i], mode_, check, errors_[i]);
      if (!status.ok()) return {status.code(), scenario.path + ": " + status.message()};
    }
    return Status();
  }

  Status ReplayWaiting() {
    if (waiting_.empty()) return Status();
    std::vector<Tally> tallies(waiting_.size(), Tally(report_));
    const auto check = [&](const Scenario& file, bool equal, const std::string& what) {
      tallies[static_cast<size_t>(&file - waiting_.data())].Check(file, equal, what);
    };
    return ReplayInterleaved(waiting_, seed_, check, errors_[0], mode_);
  }

  std::vector<Policy> policies_;
  KeyMode mode_;
  Feed feed_;
  uint64_t seed_;
  ConformanceReport& report_;
  std::vector<PromiseError> errors_;  // by policy
  std::vector<Scenario> waiting_;     // for the interleaved run
};

}  // namespace

Status RunRouterConformance(const std::vector<std::string>& paths,
                            const RouterConformanceOptions& options, ConformanceReport& report) {
  const auto feed = ParseFeed(options.feed);
  if (!feed) return {StatusCode::kInvalidArgument, "unknown feed '" + options.feed + "'"};
  const auto mode = ParseKeyMode(options.mode);
  if (!mode) return {StatusCode::kInvalidArgument, "unknown mode '" + options.mode + "'"};
  std::vector<Policy> policies(kPolicies.begin(), kPolicies.end());
  if (options.policy != "all") {
    const auto policy = ParsePolicy(options.policy);
    if (!policy) return {StatusCode::kInvalidArgument, "unknown policy '" + options.policy + "'"};
    policies = {*policy};
  }
  if (*feed == Feed::kInterleaved && policies != std::vector{Policy::kExact}) {
    return {StatusCode::kInvalidArgument, "the interleaved feed is for the exact policy"};
  }
  if (*mode != KeyMode::kEngineHash && policies != std::vector{Policy::kExact}) {
    return {StatusCode::kInvalidArgument, "token mode is for the exact policy"};
  }
  const auto files = ScenarioPaths(paths);
  if (!files.ok()) return files.status();
  return RouterRun(std::move(policies), *mode, *feed, options.seed, report).Run(*files);
}

}  // namespace kvcast::tools
