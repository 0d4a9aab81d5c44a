// DnsSource: a name to look up, and the sources of its targets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <functional>
#include <string>

#include "kvcast/core/status.h"
#include "router/service/ingest/worker_registration.h"

namespace kvcast::router {

// One answer of a lookup.
struct DnsTarget {
  // A numeric address, or the host name in an SRV record, in lower case and without a final dot.
  // IPv6 addresses have no brackets.
  std::string host;
  int port = 0;  // of an SRV record; 0: an address

  friend auto operator<=>(const DnsTarget&, const DnsTarget&) = default;
};

// A name to look up.
struct DnsSource {
  std::string lookup;  // see DnsClient::Look
  // Returns the source of a target. Not ok: one line.
  std::function<Result<WorkerRegistration>(const DnsTarget&)> source_of;
};

// Replaces each "{host}" and "{port}" in the text. With `in_endpoint`, an IPv6 address gets
// brackets.
std::string FillIn(std::string text, const DnsTarget& target, bool in_endpoint);

}  // namespace kvcast::router
