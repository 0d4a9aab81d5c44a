// Scenario: one recorded engine run, read back as what a router would have seen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/event.h"
#include "kvcast/prefix_index.h"
#include "kvcast/status.h"

namespace kvcast::testing {

struct Probe {
  std::vector<TokenId> tokens;
  HashInputs inputs;
  int64_t hit = 0;                 // what the engine would reuse
  std::vector<int64_t> per_group;  // each group alone; empty where not recorded
};

struct ScenarioStep {
  EventBatch batch;
  std::vector<Probe> probes;  // looked up after the batch
};

struct Scenario {
  std::string name;
  WorkerConfig worker;  // the engine's configuration as a registration
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::vector<uint8_t> none_hash;
  EventHashForm hash_form = EventHashForm::kInt64;
  std::vector<ScenarioStep> steps;
  uint64_t cached_entries = 0;  // (group, hash) pairs in the engine's cache at the end
};

// Reads a .jsonl or .jsonl.gz file.
Result<Scenario> ReadScenario(const std::string& path);

// The hash chain of a probe as the events carry it.
std::vector<BlockHash> ChainOf(const Scenario& scenario, const Probe& probe);

}  // namespace kvcast::testing
