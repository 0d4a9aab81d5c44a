// The sources that clients register over HTTP. A source makes the router connect to an address, so
// a client could use the router to reach addresses that the client itself cannot reach.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcast/core/status.h"
#include "router/service/ingest/worker_ingest.h"
#include "src/http/ip_network.h"

namespace kvcast::router {

struct ClientSourceRules {
  bool allow_remote = false;  // sources with `bind` may listen beyond loopback
  // Networks to which a source may point. If there are any, each endpoint must have an IP address
  // and no name, because a name may resolve to another address later. Empty: all addresses and
  // names.
  std::vector<IpNetwork> networks;
};

// True: the source listens, and not only for programs of this machine.
bool ListensBeyondLoopback(const WorkerRegistration& source);

// Not ok (kInvalidArgument): one line that names the member. An endpoint of a client is
// tcp://HOST:PORT, for format trtllm also http://, https:// or "push". Other transports of libzmq
// would open files and UDP sockets.
Status CheckClientSource(const WorkerRegistration& source, const ClientSourceRules& rules);

}  // namespace kvcast::router
