// Registrations and removals by HTTP clients. Every registration, every removal and every refused
// registration is written to the log.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/route/service_core.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// Checks and adds the source. nullopt: the source was added. Otherwise: the reply to the client.
std::optional<HttpReply> AddForClient(ServiceCore& core, const HttpRequest& request,
                                      const WorkerRegistration& source);
// The reply to a client whose source is refused. `name`: empty if the request names no source.
HttpReply RefuseSource(ServiceCore& core, const HttpRequest& request, std::string_view name,
                       const Status& status);
// Removes the source from the fleet and from the saved state (see ClientSourceFile::Keep). Ok if at
// least one of them had the source. Otherwise: the status of Fleet::Remove.
Status RemoveForClient(ServiceCore& core, const HttpRequest& request, const std::string& name);

}  // namespace kvcast::router
