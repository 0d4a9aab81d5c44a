// Writes the listeners and the answers of the HTTP servers to the log.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "src/base/logger.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// Writes the answer to the log if its status is 401 or 403, or at least 500. A status of at least
// 500 from /readyz is not written. At level debug, writes every answer. Takes no lock for an answer
// that is not written.
void LogAnswer(Logger& log, const HttpAnswer& answer);

// Must be called after the listener is bound. `listener`: "public", "admin" or "relay". `port`: the
// bound port.
void LogListening(Logger& log, std::string_view listener, const HttpOptions& options, int port);

}  // namespace kvcast::router
