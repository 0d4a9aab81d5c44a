// SourcePolicy: the sources that the service may follow.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/ingest/worker_ingest.h"
#include "src/http/ip_network.h"

namespace kvcast::router {

struct SourcePolicy {
  bool allow_remote = false;  // RouterOptions::allow_remote
  bool has_keys = false;      // the router has CURVE keys of its own
  bool reads_logs = false;    // RouterOptions::open_log is set
  // Networks that must contain the endpoints of the sources that HTTP clients register. Empty: no
  // restriction. See client_sources.h.
  std::vector<IpNetwork> networks;
};

enum class SourceOrigin : uint8_t { kOperator, kHttp };

// Not ok in these cases. The message is one line that names the source, or the wrong member of the
// source.
// - A source with `bind` listens on an address that is not loopback, and the policy does not allow
//   it.
// - An endpoint is not a loopback endpoint, and the source has neither a server_key nor `insecure`.
// - The source has a server_key, and `insecure` is set.
// - The source has a server_key that is malformed, or a server_key while the router has no keys.
// - The source comes from HTTP, and CheckClientSource refuses it.
// - The source has the endpoint of a log (src/event_log/open_log.h), and the router reads no logs.
// For sources with feed endpoints (event_feeds.h) and for logs, only the last two rules apply,
// because these endpoints are not ZeroMQ endpoints.
Status CheckSource(const WorkerRegistration& source, const SourcePolicy& policy,
                   SourceOrigin origin);

// "curve": the source has a server_key. "insecure": the source is registered as insecure. "none":
// neither.
std::string_view SecurityOf(const WorkerRegistration& source);

}  // namespace kvcast::router
