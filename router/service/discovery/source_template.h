// SourceTemplate: makes the source of a target, which a name server or an API server names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <functional>
#include <string>

#include "kvcast/core/status.h"
#include "router/service/ingest/worker_registration.h"

namespace kvcast::router {

struct SourceTarget {
  // A numeric address, or a host name in lower case and without a final dot. IPv6 addresses have no
  // brackets.
  std::string host;
  int port = 0;  // 0: unknown

  friend auto operator<=>(const SourceTarget&, const SourceTarget&) = default;
};

// Returns the source of a target. Not ok: the message is one line. Thread-safe.
using SourceTemplate = std::function<Result<WorkerRegistration>(const SourceTarget&)>;

// Replaces each "{host}" and "{port}" in the text. With `in_endpoint`, an IPv6 address gets
// brackets.
std::string FillIn(std::string text, const SourceTarget& target, bool in_endpoint);

}  // namespace kvcast::router
