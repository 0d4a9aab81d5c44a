// The listeners and answers of the HTTP servers in the log.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "src/base/logger.h"
#include "src/http/http_server.h"

namespace kvcast::router {

// Writes the answer to the log if it is a refusal (401, 403) or a failure (500 and above, except
// from /readyz). At level debug, writes every answer. Takes no lock for an answer that is not
// written.
void LogAnswer(Logger& log, const HttpAnswer& answer);

// `listener`: "public" or "admin". `port`: as bound.
void LogListening(Logger& log, std::string_view listener, const HttpOptions& options, int port);

}  // namespace kvcast::router
