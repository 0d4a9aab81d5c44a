// The API of the field's indexers (Mooncake's RFC 1403, as Dynamo's standalone indexer serves it),
// so that a gateway written for them can ask this service instead.
//
//   POST /register       instance_id, endpoint, model_name, block_size, [routing_group, dp_rank,
//                        replay_endpoint]                                -> 201 {"status": "ok"}
//   POST /unregister     instance_id, model_name, [routing_group, dp_rank]
//   GET  /workers        [?model_name=] [?routing_group=]
//   POST /query          token_ids, model_name, [routing_group, lora_name, cache_salt]
//   POST /query_by_hash  block_hashes, model_name, [routing_group]
//   GET  /dump           [?model_name=] [?routing_group=]; see index_dump.h
//   GET  /health
//
// What is counted is tokens. "gpu" is the reusable prefix, which those indexers cannot know of a
// hybrid model; "cpu" and "disk" go on from it. Each instance also has "detail": per rank what
// POST /v1/query says. "frequencies" is always empty. tenant_id is another name of routing_group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "router/service/service_core.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// `core` must outlive the routes.
std::vector<HttpRoute> FieldRoutes(ServiceCore& core);

}  // namespace kvcast::router
