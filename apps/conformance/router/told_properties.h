// ToldProperties: the properties of an engine that an operator can tell a router. A replay hands
// over all of them, or none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/conformance/scenario/scenario_file.h"
#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::tools {

struct ToldProperties {
  // The hash scheme.
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::vector<uint8_t> none_hash;
  ChainForm chain_form;
  EventHashForm hash_form = EventHashForm::kInt64;
  int64_t hash_block_size = 0;
  // By adapter name; a name that the run uses with two paths has both.
  std::map<std::string, std::set<std::string>> lora_paths;

  EngineRules release = EngineRules::kMain2026August;
  // By group_idx, with their kinds, block sizes, windows and chunk sizes, and with the flags of
  // groups that drop a block and of those outside prefix caching.
  std::vector<GroupSpec> groups;
  int64_t alignment = 0;             // of hits
  int64_t scheduler_block_size = 0;  // of what is cached
  std::optional<int64_t> retention_interval;
  int64_t replay_tokens = 0;
  HitReports hit_reports = HitReports::kNever;

  // Positions in `groups`.
  std::vector<int64_t> EagleGroups() const;
  std::vector<int64_t> UncachedGroups() const;
  // By position in `groups`, chunked local attention only.
  std::map<int64_t, int64_t> ChunkSizes() const;
};

// Not ok: the recorded configuration is not valid.
Result<ToldProperties> ToldPropertiesOf(const ScenarioConfig& config);
// With what only the run's requests show: adapters, and hit reports.
Result<ToldProperties> ToldPropertiesOf(const Scenario& scenario);

// As an engine is registered with the index when all is told.
WorkerConfig RegistrationOf(const ToldProperties& told, const std::string& name);

}  // namespace kvcast::tools
