// SPDX-License-Identifier: Apache-2.0
#include "src/tools/scheme_replay.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "src/base/check.h"
#include "src/tools/conformance.h"
#include "src/tools/scenario_file.h"

namespace kvcast::tools {
namespace {

std::vector<uint8_t> BytesOf(const std::string& text) { return {text.begin(), text.end()}; }

ChainScheme TruthOf(const ScenarioConfig& config) {
  return {config.algorithm, "", BytesOf(config.none_hash), config.cache.hash_block_size};
}

bool IsTruth(const std::optional<ChainScheme>& scheme, const ScenarioConfig& config) {
  if (!scheme) return false;
  ChainScheme unnamed = *scheme;
  unnamed.seed.clear();
  return unnamed == TruthOf(config);
}

// A NONE_HASH that no engine has made.
std::vector<uint8_t> Decoy(uint8_t number) { return std::vector<uint8_t>(32, number); }

std::string InWords(const SchemeVerdict& verdict) {
  std::string text(SchemeStateName(verdict.state));
  if (verdict.scheme) text += ", " + ToString(*verdict.scheme);
  if (!verdict.reason.empty()) text += " (" + verdict.reason + ")";
  return text;
}

}  // namespace

Result<RecordedStream> ReadRecordedStream(const std::string& path) {
  auto scenario = ReadScenario(path);
  if (!scenario.ok()) return scenario.status();
  RecordedStream stream{path, std::move(scenario->config), {}};
  for (ScenarioStep& step : scenario->steps) {
    std::ranges::move(step.events, std::back_inserter(stream.events));
  }
  return stream;
}

SchemeOutcome ReplayScheme(const RecordedStream& stream, const SchemeDetectorConfig& config) {
  auto detector = SchemeDetector::Create(config);
  KV_CHECK(detector.ok());
  SchemeOutcome outcome;
  for (const Event& event : stream.events) {
    detector->Observe(event);
    const bool mismatch = detector->verdict().state == SchemeState::kMismatch;
    if (mismatch && outcome.mismatch_after == 0) {
      outcome.mismatch_after = detector->counters().stores;
    }
  }
  outcome.verdict = detector->verdict();
  outcome.counters = detector->counters();
  return outcome;
}

SchemeDetectorConfig SchemeCandidates(const std::vector<RecordedStream>& streams) {
  std::set<std::string> none_hashes;
  for (const RecordedStream& stream : streams) none_hashes.insert(stream.config.none_hash);
  SchemeDetectorConfig candidates;
  candidates.seeds = {"a decoy", "another decoy"};
  candidates.sample_period = 1;
  uint8_t number = 1;
  for (const std::string& none_hash : none_hashes) {
    candidates.none_hashes.push_back(Decoy(number++));
    candidates.none_hashes.push_back(BytesOf(none_hash));
  }
  return candidates;
}

SchemeDetectorConfig Without(SchemeDetectorConfig candidates, const std::string& none_hash) {
  std::erase(candidates.none_hashes, BytesOf(none_hash));
  return candidates;
}

std::vector<WrongRegistration> WrongRegistrations(const ScenarioConfig& truth,
                                                  const SchemeDetectorConfig& candidates) {
  SchemeDetectorConfig right = candidates;
  right.algorithm = truth.algorithm;
  right.none_hash = BytesOf(truth.none_hash);
  right.hash_block_size = truth.cache.hash_block_size;
  std::vector<WrongRegistration> wrong;
  for (const HashAlgorithm algorithm : {HashAlgorithm::kSha256, HashAlgorithm::kSha256Cbor,
                                        HashAlgorithm::kXxhash, HashAlgorithm::kXxhashCbor}) {
    if (algorithm == truth.algorithm) continue;
    wrong.push_back({"algorithm " + std::string(HashAlgorithmName(algorithm)), right});
    wrong.back().config.algorithm = algorithm;
  }
  wrong.push_back({"seed", right});
  wrong.back().config.none_hash = Decoy(0xdc);
  for (const int64_t unit : {2 * right.hash_block_size, right.hash_block_size / 2}) {
    wrong.push_back({"unit " + std::to_string(unit), right});
    wrong.back().config.hash_block_size = unit;
  }
  return wrong;
}

std::string CheckScheme(const RecordedStream& stream, const SchemeDetectorConfig& candidates,
                        const SchemeCheck& check) {
  const ScenarioConfig& truth = stream.config;
  const SchemeOutcome outcome = ReplayScheme(stream, candidates);
  const bool named = outcome.verdict.state == SchemeState::kMatched &&
                     IsTruth(outcome.verdict.scheme, truth) && outcome.counters.mismatched == 0;
  check(named, "found " + InWords(outcome.verdict) + ", recorded " + ToString(TruthOf(truth)));

  const SchemeDetectorConfig fewer = Without(candidates, truth.none_hash);
  const SchemeVerdict unknown = ReplayScheme(stream, fewer).verdict;
  check(unknown.state == SchemeState::kTokenMode, "without its seed: " + InWords(unknown));

  uint64_t latest = 0;
  for (const auto& [what, config] : WrongRegistrations(truth, candidates)) {
    const SchemeOutcome wrong = ReplayScheme(stream, config);
    const bool reported = wrong.mismatch_after > 0 && wrong.mismatch_after <= kStoresToReport &&
                          wrong.verdict.state == SchemeState::kMismatch;
    check(reported && IsTruth(wrong.verdict.scheme, truth),
          "registered with a wrong " + what + ": " + InWords(wrong.verdict));
    latest = std::max(latest, wrong.mismatch_after);
  }
  WrongRegistration lost = {"seed", Without(candidates, truth.none_hash)};
  lost.config.none_hash = Decoy(0xdc);
  const SchemeOutcome wrong = ReplayScheme(stream, lost.config);
  check(wrong.mismatch_after > 0 && wrong.mismatch_after <= kStoresToReport,
        "registered with a wrong seed, the right one unknown: " + InWords(wrong.verdict));
  latest = std::max(latest, wrong.mismatch_after);

  const SchemeCounters& counts = outcome.counters;
  return truth.name + ": " + InWords(outcome.verdict) + "; " + std::to_string(counts.tested) +
         " of " + std::to_string(counts.stores) +
         " stores tested, wrong registrations reported by store " + std::to_string(latest);
}

Status RunSchemeConformance(const std::vector<std::string>& paths, ConformanceReport& report) {
  std::vector<RecordedStream> streams;
  const auto files = ScenarioPaths(paths);
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    auto stream = ReadRecordedStream(file);
    if (!stream.ok()) return stream.status();
    streams.push_back(std::move(stream).value());
  }
  const SchemeDetectorConfig candidates = SchemeCandidates(streams);
  if (const auto valid = SchemeDetector::Create(candidates); !valid.ok()) return valid.status();
  for (const RecordedStream& stream : streams) {
    bool differs = false;
    report.notes.push_back(
        CheckScheme(stream, candidates, [&](bool equal, const std::string& what) {
          ++report.compared;
          if (equal) {
            ++report.equal;
          } else if (!std::exchange(differs, true)) {
            report.first_differences.push_back(stream.path + ": " + what);
          }
        }));
    ++report.files;
  }
  return {};
}

}  // namespace kvcast::tools
