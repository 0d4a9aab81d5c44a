// Runs the recorded lookups of the engine's offloading connector by our rules, and compares the
// results.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>

#include "apps/conformance/offload/offload_checks.h"
#include "kvcast/spec/offload_rules.h"

namespace kvcast::tools {

// Throws the exceptions of OffloadManagerReplay.
class OffloadLookupReplay {
 public:
  explicit OffloadLookupReplay(OffloadChecks& checks) : checks_(checks) {}

  // Takes a group configuration, a lookup, a scan, or a rule with its arguments.
  void Run(const nlohmann::json& record);

 private:
  void RunLookup(const nlohmann::json& record);

  OffloadChecks& checks_;
  std::map<int64_t, OffloadLayout> layouts_;
};

}  // namespace kvcast::tools
