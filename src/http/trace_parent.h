// The trace of a request (W3C Trace Context).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "src/http/http_server.h"

namespace kvcast {

// The value of the request's traceparent header: "VERSION-TRACE_ID-PARENT_ID-FLAGS", 2, 32, 16 and
// 2 hex digits in lower case. Empty: the request has no such header, or the value has another form.
std::string_view TraceParentOf(const HttpRequest& request);

}  // namespace kvcast
