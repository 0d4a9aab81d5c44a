// The target of a request: a path and a query, percent-encoded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "src/http/http_server.h"

namespace kvcast {

// Maximum number of names in a query.
inline constexpr size_t kMaxQueryNames = 128;

// Sets the path and the query of the request. Returns the reason if the target is invalid, and
// nullptr otherwise.
const char* ReadTarget(std::string_view target, HttpRequest& request);

}  // namespace kvcast
