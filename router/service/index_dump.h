// GET /dump of the field's API: all that the index holds, as the events that would put it there.
//
//   {"<model>:<routing group>": {"block_size": n, "events": [
//     {"worker_id", "dp_rank", "medium", "group_idx", "event": {"event_id", "dp_rank",
//      "data": {"stored": {"parent_hash": null, "blocks": [{"block_hash"}, ...]}}}}, ...]}, ...}
//
// A hash alone says which prefix it ends, so the index keeps no parents and no tokens, and a dump
// cannot tell them. A byte hash is a string of hex digits. A block of which there are several
// copies has "copies". Each worker is read at a time of its own, a large one piece by piece: what
// is applied meanwhile may be in it or not.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "router/service/service_core.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// Entries that are in memory at one time, at 48 bytes each.
inline constexpr size_t kDumpEntriesMax = 1 << 20;

// One at a time: 503 while another is under way. `core` must outlive the reply.
HttpReply DumpIndex(ServiceCore& core, const HttpRequest& request,
                    size_t entries_max = kDumpEntriesMax);

// Of the field's names for a worker.
const std::string& InstanceOf(const RouterSource& source);
nlohmann::json InstanceJson(const RouterSource& source);
int64_t BlockSizeOf(const ServiceCore& core, const FleetWorker& worker);
// Neither ?model_name= nor ?routing_group= names another one.
bool IsWanted(const HttpRequest& request, const RouterSource& source);

}  // namespace kvcast::router
