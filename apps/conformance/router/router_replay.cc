// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/router/router_replay.h"

#include <algorithm>
#include <utility>

#include "apps/conformance/router/told_properties.h"

namespace kvcast::tools {
namespace {

std::string HitText(int64_t tokens, int64_t replay) {
  const std::string text = std::to_string(tokens);
  return replay == 0 ? text : text + " with a replay of " + std::to_string(replay);
}

}  // namespace

void PromiseError::Add(const PromiseError& other) {
  probes += other.probes;
  exact += other.exact;
  over_tokens += other.over_tokens;
  under_tokens += other.under_tokens;
  over_probes += other.over_probes;
}

Result<WorkerConfig> RegistrationOf(const ScenarioConfig& config) {
  const auto told = ToldPropertiesOf(config);
  if (!told.ok()) return told.status();
  return RegistrationOf(*told, config.name);
}

Result<WorkerConfig> RegistrationOf(const Scenario& scenario) {
  const auto told = ToldPropertiesOf(scenario);
  if (!told.ok()) return told.status();
  return RegistrationOf(*told, scenario.config.name);
}

Result<RouterReplay> RouterReplay::Create(const ScenarioConfig& config,
                                          const WorkerConfig& registration, Check check) {
  auto index = MakePolicyIndex(Policy::kExact, registration);
  if (!index.ok()) return index.status();
  return Create(config, std::move(index).value(), std::move(check));
}

Result<RouterReplay> RouterReplay::Create(const ScenarioConfig& config,
                                          std::unique_ptr<PolicyIndex> index, Check check) {
  auto hashes = HashSource::Create(config);
  if (!hashes.ok()) return hashes.status();
  return RouterReplay(config, std::move(hashes).value(), std::move(index), std::move(check));
}

RouterReplay::RouterReplay(const ScenarioConfig& config, HashSource hashes,
                           std::unique_ptr<PolicyIndex> index, Check check)
    : hash_block_size_(config.cache.hash_block_size),
      hashes_(std::move(hashes)),
      check_(std::move(check)),
      index_(std::move(index)) {}

void RouterReplay::RunStep(const ScenarioStep& step) {
  for (const ScenarioOp& op : step.ops) prompts_.Follow(op);
  EventBatch batch;
  batch.events = step.events;
  index_->Apply(batch);
  for (const ScenarioProbe& probe : step.probes) RunProbe(step.step, probe);
}

void RouterReplay::RunProbe(int64_t step, const ScenarioProbe& probe) {
  const std::vector<TokenId> tokens = prompts_.TokensOf(probe.prompt);
  const std::vector<BlockHash> chain = hashes_.Chain(tokens, probe.prompt.inputs);
  const Promise promise = index_->Match(chain, hash_block_size_, std::ssize(tokens));
  const int64_t predicted = promise.tokens;
  ++error_.probes;
  error_.exact += predicted == probe.hit;
  error_.over_tokens += static_cast<uint64_t>(std::max<int64_t>(0, predicted - probe.hit));
  error_.under_tokens += static_cast<uint64_t>(std::max<int64_t>(0, probe.hit - predicted));
  error_.over_probes += predicted > probe.hit;
  // A probe also differs if its tokens could not be rebuilt.
  const bool same_prompt = std::ssize(tokens) == probe.prompt.length;
  const bool same_replay = promise.replay_tokens == probe.replay;
  const std::string prompt =
      "step " + std::to_string(step) + ": prompt of " + std::to_string(probe.prompt.length);
  if (!same_prompt || !same_replay || predicted != probe.hit) {
    return check_(false, prompt + " tokens: predicted " +
                             HitText(predicted, promise.replay_tokens) + ", recorded " +
                             HitText(probe.hit, probe.replay));
  }
  // The index has no tokens for a group that no event has shown yet.
  const bool comparable = promise.per_group.size() == probe.per_group.size();
  check_(!comparable || promise.per_group == probe.per_group,
         prompt + " tokens: the tokens by group differ");
}

void RouterReplay::CheckFinal(const ScenarioFinal& recorded) {
  uint64_t held = 0;
  for (const auto& group : recorded) held += group.size();
  const uint64_t indexed = counters().residencies;
  check_(indexed == held, "final: " + std::to_string(indexed) + " blocks in the index, recorded " +
                              std::to_string(held));
}

}  // namespace kvcast::tools
