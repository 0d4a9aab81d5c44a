// ToldProperties: the properties of an engine that an operator can configure in a router. A replay
// configures all of them or none.
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
  // The paths by adapter name. If the run uses a name with two paths, both paths are in the set.
  std::map<std::string, std::set<std::string>> lora_paths;

  EngineRules release = EngineRules::kMain2026August;
  // By group_idx. A spec has kind, block size, window and chunk size. Its flags show whether the
  // group has a draft head, and whether the group takes part in prefix caching.
  std::vector<GroupSpec> groups;
  int64_t alignment = 0;             // of hits, in tokens
  int64_t scheduler_block_size = 0;  // alignment of cached prefixes, in tokens
  std::optional<int64_t> retention_interval;
  int64_t replay_tokens = 0;
  HitReports hit_reports = HitReports::kNever;

  // Positions in `groups` of the groups that have a draft head (EAGLE).
  std::vector<int64_t> EagleGroups() const;
  std::vector<int64_t> UncachedGroups() const;
  // By position in `groups`; only groups of chunked local attention.
  std::map<int64_t, int64_t> ChunkSizes() const;
};

// Not ok: the recorded configuration is invalid.
Result<ToldProperties> ToldPropertiesOf(const ScenarioConfig& config);
// Also includes properties that only the run's requests show: adapters and hit reports.
Result<ToldProperties> ToldPropertiesOf(const Scenario& scenario);

// Returns the registration of the engine with the index. All properties of `told` are configured.
WorkerConfig RegistrationOf(const ToldProperties& told, const std::string& name);

}  // namespace kvcast::tools
