// The sources that clients register over HTTP. A source makes the router connect to an address, so
// a client could use the router to reach addresses that the client itself cannot reach.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcast/core/status.h"
#include "router/service/ingest/worker_ingest.h"
#include "src/http/ip_network.h"

namespace kvcast::router {

// Not ok (kInvalidArgument): one line that names the member. An endpoint of a client is
// tcp://HOST:PORT, for format trtllm also http:// or "push". (https:// passes this check, but
// EventFeeds::Add refuses https://.) Other transports of libzmq would open files and UDP sockets.
// If `networks` is not empty, each endpoint to which the router connects must have an IP address in
// one of the networks. Host names are then refused, because a name may resolve to another address
// later.
Status CheckClientSource(const WorkerRegistration& source, const std::vector<IpNetwork>& networks);

}  // namespace kvcast::router
