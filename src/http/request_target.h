// The target of a request: a path and a query, percent-encoded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "src/http/http_server.h"

namespace kvcast {

// Sets the path and the query of the request. False: an escape is invalid.
bool ReadTarget(std::string_view target, HttpRequest& request);

}  // namespace kvcast
