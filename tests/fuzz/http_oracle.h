// A second reader of HTTP/1.1 requests, by RFC 9112. It is slow and simple, and shares no code with
// the server's reader. It does not refuse all invalid requests, because it reads only requests that
// the server has accepted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kvcast::oracle {

struct HttpText {
  std::string method;
  std::string target;
  std::string host;
  std::string body;
  size_t bytes = 0;  // length of the request, with the empty lines before it
};

// Reads the request at the front. nullopt: the request is not complete, or a length is not a
// number.
std::optional<HttpText> ReadHttp(std::string_view text);

}  // namespace kvcast::oracle
