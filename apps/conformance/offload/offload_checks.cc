// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/offload_checks.h"

#include <nlohmann/json.hpp>

namespace kvcast::tools {

void OffloadChecks::Expect(const nlohmann::json& ours, const nlohmann::json& recorded,
                           const std::string& name) {
  const bool equal = ours == recorded;
  Check(equal, equal ? name : name + " is " + ours.dump() + ", recorded " + recorded.dump());
}

}  // namespace kvcast::tools
