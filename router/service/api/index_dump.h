// GET /dump of the Mooncake indexer API: the content of the index, as store events. An empty index
// that applies these events has the same content.
//
//   {"<model>:<routing group>": {"block_size": n, "events": [
//     {"worker_id", "dp_rank", "medium", "group_idx", "event": {"event_id", "dp_rank",
//      "data": {"stored": {"parent_hash": null, "blocks": [{"block_hash"}, ...]}}}}, ...]}, ...}
//
// A block hash identifies its whole prefix. The index keeps no parents and no tokens, so the events
// of a dump contain no parents and no tokens. A byte hash is a string of hex digits. A block with
// more than one copy has the member "copies". Each worker is read at a different time, and a large
// worker is read in slices. The dump may contain a batch that is applied during the dump, or a part
// of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "router/service/route/service_core.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// A dump holds at most about this number of entries in memory, at 48 bytes per entry.
inline constexpr size_t kDumpEntriesMax = 1 << 20;

// Only one dump runs at a time. The reply is 503 while another dump runs. `core` must outlive the
// reply.
HttpReply DumpIndex(ServiceCore& core, const HttpRequest& request,
                    size_t entries_max = kDumpEntriesMax);

// The instance id under which the Mooncake indexer API shows the worker.
const std::string& InstanceOf(const WorkerRegistration& source);
// The same id as JSON: a number if the source was registered with a number, otherwise a string.
nlohmann::json InstanceJson(const WorkerRegistration& source);
// Tokens per block: the registered block size; if no block size is registered, the hash block size
// of the index. 0: not known yet.
int64_t BlockSizeOf(const ServiceCore& core, const FleetWorker& worker);
// False: the query parameter model_name or routing_group of the request differs from the value of
// the source.
bool IsWanted(const HttpRequest& request, const WorkerRegistration& source);

}  // namespace kvcast::router
