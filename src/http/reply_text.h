// Replies as the bytes that are sent.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "src/http/http_server.h"

namespace kvcast {

// `head_only`: all but the body, as HEAD wants it. Of a reply in pieces: up to the end of `body`;
// what comes behind it is in chunks if the client takes those, else up to the end of the
// connection.
std::string RenderReply(const HttpReply& reply, bool keep_alive, bool head_only = false,
                        bool takes_chunks = true);
std::string RenderChunk(std::string_view piece);  // of an empty piece: the end

}  // namespace kvcast
