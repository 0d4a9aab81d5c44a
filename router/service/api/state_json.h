// GET /v1/state: the current state of the fleet, for people and dashboards.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "router/service/route/service_core.h"

namespace kvcast::router {

// {"workers": [{"name", "model", "instance_id", "routing_group", "data_parallel_rank", "endpoint",
//   "state", "hint", "security": see SecurityOf, "failed_handshakes", "next_seq",
//   "event_age_seconds": x|null, "named_by": "content"|"scheme",
//   "unnamed_blocks", "ambiguous", "scheme", "scheme_reason", "gaps", "lost", "batches",
//   "restarts", "rejected_events", "residencies", "load": {...}, "load_rates": see
//   load_rates.h, "groups": [{"group", "kind",
//   "block_size", "sliding_window", "tiers": {"GPU": {"held", "stored", "removed"}, ...}}],
//   "reuse": see reuse_json.h}],
//  "routing": {...}, "queries", "bad_queries"
//  [, "peers": {"router": name of this router, "routers": n, "age_ms": x|null}]}
nlohmann::json StateJson(const ServiceCore& core);

}  // namespace kvcast::router
