// GET /dump of the Mooncake indexer API: the content of the index, as events that build the same
// index.
//
//   {"<model>:<routing group>": {"block_size": n, "events": [
//     {"worker_id", "dp_rank", "medium", "group_idx", "event": {"event_id", "dp_rank",
//      "data": {"stored": {"parent_hash": null, "blocks": [{"block_hash"}, ...]}}}}, ...]}, ...}
//
// A block hash identifies its whole prefix, so the index keeps no parents and no tokens. So the
// events of a dump contain no parents and no tokens. A byte hash is a string of hex digits. A block
// with several copies has "copies". Each worker is read at a different time, and a large worker is
// read in slices. A batch that is applied during the dump may or may not be part of the dump.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "router/service/route/service_core.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// A dump holds at most about this number of entries in memory, at 48 bytes per entry.
inline constexpr size_t kDumpEntriesMax = 1 << 20;

// Only one dump runs at a time; the reply is 503 while another dump runs. `core` must outlive the
// reply.
HttpReply DumpIndex(ServiceCore& core, const HttpRequest& request,
                    size_t entries_max = kDumpEntriesMax);

// The instance id under which the Mooncake indexer API shows the worker.
const std::string& InstanceOf(const WorkerRegistration& source);
nlohmann::json InstanceJson(const WorkerRegistration& source);
// Tokens per block: the registered block size, otherwise the hash block size of the index. 0: not
// known yet.
int64_t BlockSizeOf(const ServiceCore& core, const FleetWorker& worker);
// False: ?model_name= or ?routing_group= of the request differs from the value of the source.
bool IsWanted(const HttpRequest& request, const WorkerRegistration& source);

}  // namespace kvcast::router
