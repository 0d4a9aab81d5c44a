// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/router/told_properties.h"

#include <utility>

namespace kvcast::tools {
namespace {

template <typename Has>
std::vector<int64_t> PositionsOf(const std::vector<GroupSpec>& groups, Has has) {
  std::vector<int64_t> positions;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (has(groups[i])) positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

void AddRequest(const ScenarioPrompt& prompt, ToldProperties& told) {
  if (prompt.report_hits) told.hit_reports = HitReports::kExpected;
  if (prompt.inputs.lora_name.empty()) return;
  told.lora_paths[prompt.inputs.lora_name].insert(prompt.inputs.lora_path);
}

}  // namespace

std::vector<int64_t> ToldProperties::EagleGroups() const {
  return PositionsOf(groups, [](const GroupSpec& group) { return group.eagle; });
}

std::vector<int64_t> ToldProperties::UncachedGroups() const {
  return PositionsOf(groups, [](const GroupSpec& group) { return !group.prefix_cacheable; });
}

std::map<int64_t, int64_t> ToldProperties::ChunkSizes() const {
  std::map<int64_t, int64_t> sizes;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].chunk_size > 0) sizes.emplace(static_cast<int64_t>(i), groups[i].chunk_size);
  }
  return sizes;
}

Result<ToldProperties> ToldPropertiesOf(const ScenarioConfig& config) {
  auto cache = ValidateCacheConfig(config.cache);
  if (!cache.ok()) return cache.status();
  ToldProperties told;
  told.algorithm = config.algorithm;
  told.none_hash.assign(config.none_hash.begin(), config.none_hash.end());
  told.chain_form = config.chain_form;
  told.hash_form = config.hash_form;
  told.hash_block_size = cache->hash_block_size;
  told.release = cache->rules;
  told.alignment = HitAlignment(*cache);
  told.scheduler_block_size = cache->scheduler_block_size;
  told.retention_interval = cache->retention_interval;
  told.replay_tokens = config.replay_tokens;
  told.groups = std::move(cache->groups);
  return told;
}

Result<ToldProperties> ToldPropertiesOf(const Scenario& scenario) {
  Result<ToldProperties> told = ToldPropertiesOf(scenario.config);
  if (!told.ok()) return told;
  for (const ScenarioStep& step : scenario.steps) {
    for (const ScenarioOp& op : step.ops) AddRequest(op.prompt, *told);
    for (const ScenarioProbe& probe : step.probes) AddRequest(probe.prompt, *told);
  }
  return told;
}

WorkerConfig RegistrationOf(const ToldProperties& told, const std::string& name) {
  WorkerConfig registration;
  registration.name = name;
  registration.groups = told.groups;
  registration.hash_block_size = told.hash_block_size;
  registration.alignment = told.alignment;
  registration.hit_reports = told.hit_reports;
  registration.rules = told.release;
  registration.hash_lookahead_tokens = told.chain_form.lookahead;
  registration.replay_tokens = told.replay_tokens;
  return registration;
}

}  // namespace kvcast::tools
