// A worker's diagnosis and its reuse, as members of /v1/state.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "router/service/route/reuse_watch.h"

namespace kvcast::router {

// {"cause": "none"|"not_enough_data"|a cause's name, "explanation": text, "group": n|null,
//  "group_kind": name|null, "tested_prompts", "lost_prompts", "lost_by_cause": {cause: n, ...},
//  "alignment", "group_alignment", "sampled_blocks", "usable_blocks", "usable_share": x|null,
//  "groups": [{"group", "kind", "sampled_blocks", "usable_blocks"}],
//  "observed": [{"kind", "cause", "requests", "predicted_tokens", "reused_tokens"}]}
nlohmann::json ReuseJson(const ReuseDiagnosis& diagnosis, const std::vector<GroupSpec>& groups,
                         const ReuseByKindAndCause& totals);

}  // namespace kvcast::router
