// Files that are embedded in the program and served unchanged.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "src/http/http_server.h"

namespace kvcast::router {

std::string_view OpenApiText();  // schemas/openapi.json
std::vector<HttpRoute> StaticRoutes();

}  // namespace kvcast::router
