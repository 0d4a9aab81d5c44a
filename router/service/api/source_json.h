// Sources as an operator writes them: an object of the configuration file or of POST /v1/sources,
// or one flag on the command line (source_flag.h). All three forms have the members of
// source_members.h, and docs/options.md describes the members. If a member is absent, its field of
// WorkerRegistration keeps the default.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/discovery/dns_source.h"
#include "router/service/discovery/kubernetes_source.h"
#include "router/service/ingest/worker_ingest.h"

namespace kvcast::router {

// Not ok: one line that names the wrong member. Unknown members are refused.
Result<WorkerRegistration> SourceFromJson(const nlohmann::json& object);
// Returns the sources of an array. `name` begins the error texts.
Result<std::vector<WorkerRegistration>> SourcesFromJson(const nlohmann::json& array,
                                                        const std::string& name);
// Returns the sources of a file that RouterOptions::source_files names: {"sources": [...]}. Not ok:
// one line.
Result<std::vector<WorkerRegistration>> SourcesFromText(std::string_view text);
// Reads an object with `lookup` and `source`. In the members name, instance_id, endpoint and
// replay_endpoint of the source, {host} and {port} stand for the host and the port of a target.
Result<DnsSource> DnsSourceFromJson(const nlohmann::json& object);
// Reads an object with `service`, `selector`, `namespace`, `port_name` and `source`. The source is
// as for DnsSourceFromJson.
Result<KubernetesSource> KubernetesSourceFromJson(const nlohmann::json& object);
// Refuses TCP endpoints whose port is not from 1 to 65535, and https:// endpoints. If the endpoint
// is a log, refuses formats other than "engine", and members that describe a connection. If the
// format is trtllm, checks TrtllmConfig, and refuses groups. For other formats, refuses
// window_sizes, tokens_per_block, and endpoints of EventFeeds.
Status CheckFormat(const WorkerRegistration& source);
// The JSON that SourceFromJson accepts for this source. Most members with their default value are
// left out.
nlohmann::json SourceToJson(const WorkerRegistration& source);
// SourceToJson for clients: without the values of NONE_HASH, and with seeds as ShownHashSeed gives
// them.
nlohmann::json ShownSource(const WorkerRegistration& source);

}  // namespace kvcast::router
