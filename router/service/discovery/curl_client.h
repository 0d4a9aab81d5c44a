// The HttpClient of libcurl. It is a library of its own, because only the kvcast program needs
// libcurl.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "router/service/discovery/http_client.h"

namespace kvcast::router {

// Speaks HTTP/1.1, and TLS 1.2 or later with a verified certificate. Keeps one connection for
// several requests. Uses no proxy, and follows no redirect, because a request contains a token.
HttpClient MakeCurlClient();

}  // namespace kvcast::router
