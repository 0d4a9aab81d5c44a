// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/router/scheme_replay.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "apps/conformance/conformance.h"
#include "apps/conformance/scenario/scenario_file.h"
#include "src/base/check.h"

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

std::string InWords(const SchemeVerdict& verdict) {
  std::string text(SchemeStateName(verdict.state));
  if (verdict.scheme) text += ", " + ToString(*verdict.scheme);
  if (!verdict.reason.empty()) text += " (" + verdict.reason + ")";
  return text;
}

// True: an event of the stream may have a key of this kind.
bool MayHave(const RecordedStream& stream, KeyKind kind) {
  const auto has = [kind](const Event& event) {
    const auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr) return false;
    if (kind == KeyKind::kLora) return stored->lora_name.has_value();
    const auto is = [kind, stored](const ExtraKey& key) {
      if (kind == KeyKind::kEmbeddings) return std::holds_alternative<Bytes>(key.value);
      if (kind == KeyKind::kImages) return std::holds_alternative<ExtraKeyList>(key.value);
      const auto* text = std::get_if<std::string>(&key.value);
      return text != nullptr && stored->lora_name != *text;
    };
    if (!stored->extra_keys) return false;
    return std::ranges::any_of(*stored->extra_keys, [&](const std::optional<ExtraKeys>& keys) {
      return keys && std::ranges::any_of(*keys, is);
    });
  };
  return std::ranges::any_of(stream.events, has);
}

std::string KindInWords(const SchemeVerdict& verdict, KeyKind kind) {
  const auto& [proof, reason] = verdict.of(kind);
  std::string text = std::string(KeyKindName(kind)) + " keys " + std::string(KeyProofName(proof));
  if (!reason.empty()) text += " (" + reason + ")";
  return text;
}

// Checks the proofs of the kinds of key. A kind that the stream has must be proven in the form of
// the engine, or unproven. A kind that the stream does not have must be unproven.
void CheckKinds(const RecordedStream& stream, const SchemeOutcome& outcome,
                const SchemeCheck& check) {
  const ChainForm& form = stream.config.chain_form;
  const SchemeVerdict& verdict = outcome.verdict;
  const bool ahead = form.lookahead > 0;
  const KeyKind used = ahead ? KeyKind::kLookahead : KeyKind::kPlain;
  const KeyKind unused = ahead ? KeyKind::kPlain : KeyKind::kLookahead;
  check(verdict.of(used).proof == KeyProof::kProven, KindInWords(verdict, used));
  check(verdict.of(unused).proof == KeyProof::kUnproven, KindInWords(verdict, unused));
  check(verdict.lookahead == form.lookahead, "lookahead " + std::to_string(verdict.lookahead));
  const KeyProof true_proof =
      form.extra_keys == ExtraKeyScheme::kBare ? KeyProof::kBare : KeyProof::kTagged;
  for (const KeyKind kind :
       {KeyKind::kSalt, KeyKind::kLora, KeyKind::kImages, KeyKind::kEmbeddings}) {
    const KeyKindCounters& counts = outcome.counters.kinds[static_cast<size_t>(kind)];
    // If a name has two paths, one path proves the key, and the other path contradicts the key.
    const bool may_miss = kind == KeyKind::kLora && !stream.other_paths.empty();
    const KeyProof proof = verdict.of(kind).proof;
    const bool right = proof == true_proof || (may_miss && proof == KeyProof::kRefuted);
    const bool seen = MayHave(stream, kind);
    check(seen ? right || proof == KeyProof::kUnproven : proof == KeyProof::kUnproven,
          KindInWords(verdict, kind));
    check(may_miss || counts.misses == 0, KindInWords(verdict, kind) + " missed");
    if (seen) check(counts.fits > 0, KindInWords(verdict, kind) + " never fitted");
  }
}

// With tagged keys, an adapter without its path is never proven. The other kinds of key must not be
// affected.
void CheckUnknownPaths(const RecordedStream& stream, const SchemeDetectorConfig& candidates,
                       const SchemeCheck& check) {
  RecordedStream without_paths = stream;
  without_paths.lora_paths.clear();
  const SchemeVerdict verdict = ReplayScheme(without_paths, candidates).verdict;
  const bool bare = stream.config.chain_form.extra_keys == ExtraKeyScheme::kBare;
  const KeyProof lora = verdict.of(KeyKind::kLora).proof;
  check(verdict.state == SchemeState::kMatched, "without paths: " + InWords(verdict));
  check(lora == (bare ? KeyProof::kBare : KeyProof::kUnproven),
        "without paths: " + KindInWords(verdict, KeyKind::kLora));
}

// A NONE_HASH that no engine has produced.
std::vector<uint8_t> Decoy(uint8_t number) { return std::vector<uint8_t>(32, number); }

}  // namespace

Result<RecordedStream> ReadRecordedStream(const std::string& path) {
  auto scenario = ReadScenario(path);
  if (!scenario.ok()) return scenario.status();
  RecordedStream stream{path, std::move(scenario->config), {}, {}, {}};
  for (ScenarioStep& step : scenario->steps) {
    std::ranges::move(step.events, std::back_inserter(stream.events));
    for (const ScenarioOp& op : step.ops) {
      const auto& [name, lora_path] =
          std::tie(op.prompt.inputs.lora_name, op.prompt.inputs.lora_path);
      if (name.empty()) continue;
      const auto told = stream.lora_paths.try_emplace(name, lora_path).first;
      if (told->second != lora_path) stream.other_paths.insert(name);
    }
  }
  return stream;
}

SchemeOutcome ReplayScheme(const RecordedStream& stream, const SchemeDetectorConfig& config) {
  SchemeDetectorConfig told = config;
  told.lora_paths = stream.lora_paths;
  auto detector = SchemeDetector::Create(told);
  KV_CHECK(detector.ok());
  SchemeOutcome outcome;
  for (const Event& event : stream.events) {
    detector->Observe(event);
    const bool mismatch = detector->verdict().state == SchemeState::kMismatch;
    if (mismatch && outcome.mismatch_after == 0) {
      outcome.mismatch_after = detector->counters().testable;
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
  for (const int64_t hash_block_size : {2 * right.hash_block_size, right.hash_block_size / 2}) {
    wrong.push_back({"unit " + std::to_string(hash_block_size), right});
    wrong.back().config.hash_block_size = hash_block_size;
  }
  return wrong;
}

std::string CheckScheme(const RecordedStream& stream, const SchemeDetectorConfig& candidates,
                        const SchemeCheck& check) {
  const ScenarioConfig& truth = stream.config;
  const SchemeOutcome outcome = ReplayScheme(stream, candidates);
  const bool fits = outcome.counters.mismatched == 0 || !stream.other_paths.empty();
  const bool named = outcome.verdict.state == SchemeState::kMatched &&
                     IsTruth(outcome.verdict.scheme, truth) && fits;
  check(named, "found " + InWords(outcome.verdict) + ", recorded " + ToString(TruthOf(truth)));

  CheckKinds(stream, outcome, check);
  if (!stream.lora_paths.empty()) CheckUnknownPaths(stream, candidates, check);

  const SchemeDetectorConfig fewer = Without(candidates, truth.none_hash);
  const SchemeVerdict unknown = ReplayScheme(stream, fewer).verdict;
  check(unknown.state == SchemeState::kTokenMode, "without its seed: " + InWords(unknown));

  uint64_t latest = 0;
  for (const auto& [property, config] : WrongRegistrations(truth, candidates)) {
    const SchemeOutcome wrong = ReplayScheme(stream, config);
    const bool reported = wrong.mismatch_after > 0 && wrong.mismatch_after <= kStoresToReport &&
                          wrong.verdict.state == SchemeState::kMismatch;
    check(reported && IsTruth(wrong.verdict.scheme, truth),
          "registered with a wrong " + property + ": " + InWords(wrong.verdict));
    latest = std::max(latest, wrong.mismatch_after);
  }
  WrongRegistration unknown_seed = {"seed", Without(candidates, truth.none_hash)};
  unknown_seed.config.none_hash = Decoy(0xdc);
  const SchemeOutcome wrong = ReplayScheme(stream, unknown_seed.config);
  check(wrong.mismatch_after > 0 && wrong.mismatch_after <= kStoresToReport,
        "registered with a wrong seed, the right seed unknown: " + InWords(wrong.verdict));
  latest = std::max(latest, wrong.mismatch_after);

  const SchemeCounters& counts = outcome.counters;
  return truth.name + ": " + InWords(outcome.verdict) + "; " + std::to_string(counts.tested) +
         " of " + std::to_string(counts.stores) +
         " stores tested, wrong registrations reported by testable store " + std::to_string(latest);
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
        CheckScheme(stream, candidates, [&](bool equal, const std::string& difference) {
          ++report.compared;
          if (equal) {
            ++report.equal;
          } else if (!std::exchange(differs, true)) {
            report.first_differences.push_back(stream.path + ": " + difference);
          }
        }));
    ++report.files;
  }
  return {};
}

}  // namespace kvcast::tools
