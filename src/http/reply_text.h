// Renders replies as the bytes that are sent.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "src/http/http_server.h"

namespace kvcast {

// `head_only`: the reply has no body, for HEAD. A reply in pieces is rendered up to the end of
// `body`. If `takes_chunks`, `body` and each later piece are chunks. Otherwise the end of the
// connection ends the reply.
std::string RenderReply(const HttpReply& reply, bool keep_alive, bool head_only = false,
                        bool takes_chunks = true);
std::string RenderChunk(std::string_view piece);  // an empty piece ends the reply

}  // namespace kvcast
