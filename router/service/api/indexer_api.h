// The Mooncake indexer API (RFC 1403, as Dynamo's standalone indexer serves it). A gateway that was
// written for such an indexer can use this service instead.
//
//   POST /register       instance_id, endpoint, model_name, block_size, [routing_group, dp_rank,
//                        replay_endpoint, server_key, insecure]
//                        -> 201 {"status": "ok", "worker": name}
//   POST /unregister     instance_id, model_name, [routing_group, dp_rank]
//   GET  /workers        [?model_name=] [?routing_group=]
//   POST /query          token_ids, model_name, [routing_group, lora_name, cache_salt]
//   POST /query_by_hash  block_hashes, model_name, [routing_group]
//   GET  /dump           [?model_name=] [?routing_group=]; see index_dump.h
//   GET  /health
//
// All counts are tokens. "gpu" is the reusable prefix, which Mooncake's and Dynamo's indexers
// cannot compute for a hybrid model. "cpu" is the prefix after loads from the CPU tier. "disk" is
// the prefix after loads from the CPU and storage tiers. "scores" has the count "gpu" of each rank.
// In "instances", each count is the maximum over the ranks of the instance, and "longest_matched"
// equals "disk". Each instance also has "dp": the count "gpu" of each rank, and "detail": the
// answer of POST /v1/query for each rank. "frequencies" is always empty. tenant_id is another name
// for routing_group. A query may have block_size, which must be a positive integer and has no
// effect.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "router/service/route/service_core.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// The routes of the Mooncake indexer API. `core` must outlive the routes.
std::vector<HttpRoute> IndexerRoutes(ServiceCore& core);

}  // namespace kvcast::router
