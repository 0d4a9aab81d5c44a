// SPDX-License-Identifier: Apache-2.0
#include "src/tools/router_replay.h"

#include <algorithm>
#include <utility>

namespace kvcast::tools {

void PromiseError::Add(const PromiseError& other) {
  probes += other.probes;
  exact += other.exact;
  over_tokens += other.over_tokens;
  under_tokens += other.under_tokens;
  over_probes += other.over_probes;
  for (const auto& [reason, count] : other.under_probes) under_probes[reason] += count;
}

Result<WorkerConfig> RegistrationOf(const ScenarioConfig& config) {
  const auto cache = ValidateCacheConfig(config.cache);
  if (!cache.ok()) return cache.status();
  WorkerConfig registration;
  registration.name = config.name;
  registration.groups = cache->groups;
  registration.hash_block_size = cache->hash_block_size;
  registration.alignment = HitAlignment(*cache);
  return registration;
}

Result<WorkerConfig> RegistrationOf(const Scenario& scenario) {
  Result<WorkerConfig> registration = RegistrationOf(scenario.config);
  if (!registration.ok()) return registration;
  for (const ScenarioStep& step : scenario.steps) {
    for (const ScenarioOp& op : step.ops) {
      if (op.prompt.report_hits) registration->hit_reports = HitReports::kExpected;
    }
  }
  return registration;
}

Result<RouterReplay> RouterReplay::Create(const ScenarioConfig& config,
                                          const WorkerConfig& registration, Check check) {
  auto index = MakePolicyIndex(Policy::kExact, registration);
  if (!index.ok()) return index.status();
  return Create(config, std::move(index).value(), std::move(check));
}

Result<RouterReplay> RouterReplay::Create(const ScenarioConfig& config,
                                          std::unique_ptr<PolicyIndex> index, Check check,
                                          KeyMode mode) {
  auto keys = MakeKeySource(config, mode);
  if (!keys.ok()) return keys.status();
  return RouterReplay(config, std::move(keys).value(), std::move(index), std::move(check));
}

RouterReplay::RouterReplay(const ScenarioConfig& config, std::unique_ptr<KeySource> keys,
                           std::unique_ptr<PolicyIndex> index, Check check)
    : unit_(config.cache.hash_block_size),
      keys_(std::move(keys)),
      check_(std::move(check)),
      index_(std::move(index)) {}

void RouterReplay::RunStep(const ScenarioStep& step) {
  for (const ScenarioOp& op : step.ops) Follow(op);
  EventBatch batch;
  batch.events = step.events;
  keys_->NoteLeftOut(index_->Apply(keys_->Rekey(std::move(batch))));
  for (const ScenarioProbe& probe : step.probes) RunProbe(step.step, probe);
}

// Later prompts begin with what earlier requests had.
void RouterReplay::Follow(const ScenarioOp& op) {
  if (op.kind == OpKind::kAdd) requests_[op.request] = TokensOf(op.prompt);
  if (op.kind != OpKind::kOutput) return;
  for (const auto& [request, token] : op.sampled) requests_[request].push_back(token);
}

std::vector<TokenId> RouterReplay::TokensOf(const ScenarioPrompt& prompt) const {
  std::vector<TokenId> tokens;
  if (const auto from = requests_.find(prompt.from); from != requests_.end()) {
    tokens = from->second;
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(prompt.take)));
  }
  tokens.insert(tokens.end(), prompt.tokens.begin(), prompt.tokens.end());
  return tokens;
}

void RouterReplay::RunProbe(int64_t step, const ScenarioProbe& probe) {
  const std::vector<TokenId> tokens = TokensOf(probe.prompt);
  const std::vector<BlockHash> chain = keys_->Chain(tokens, probe.prompt.inputs);
  const int64_t predicted = index_->Match(chain, unit_, std::ssize(tokens));
  ++error_.probes;
  error_.exact += predicted == probe.hit;
  error_.over_tokens += static_cast<uint64_t>(std::max<int64_t>(0, predicted - probe.hit));
  error_.under_tokens += static_cast<uint64_t>(std::max<int64_t>(0, probe.hit - predicted));
  error_.over_probes += predicted > probe.hit;
  if (predicted < probe.hit) {
    ++error_.under_probes[keys_->WhyBelow(tokens, probe.prompt.inputs, probe.hit)];
  }
  // A probe whose tokens could not be put together again is a difference too.
  const bool same_prompt = std::ssize(tokens) == probe.prompt.length;
  check_(same_prompt && predicted == probe.hit,
         "step " + std::to_string(step) + ": prompt of " + std::to_string(probe.prompt.length) +
             " tokens: predicted " + std::to_string(predicted) + ", recorded " +
             std::to_string(probe.hit));
}

void RouterReplay::CheckFinal(const ScenarioFinal& recorded) {
  uint64_t held = 0;
  for (const auto& group : recorded) held += group.size();
  const uint64_t indexed = counters().residencies + keys_->held_back();
  check_(indexed == held, "final: " + std::to_string(indexed) + " blocks in the index, recorded " +
                              std::to_string(held));
}

}  // namespace kvcast::tools
