// SPDX-License-Identifier: Apache-2.0
#include "src/http/loopback.h"

namespace kvcast {

bool IsLoopbackAddress(std::string_view address) {
  const bool numeric = address.find_first_not_of("0123456789.") == std::string_view::npos;
  return address == "localhost" || (numeric && address.starts_with("127.")) || address == "::1" ||
         address == "[::1]";
}

bool IsLoopbackEndpoint(std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  if (!endpoint.starts_with(kTcp)) {
    return endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://");
  }
  endpoint.remove_prefix(kTcp.size());
  return IsLoopbackAddress(endpoint.substr(0, endpoint.rfind(':')));
}

bool IsLoopbackHost(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1) == "[::1]";
  host = host.substr(0, host.rfind(':'));
  return IsLoopbackAddress(host);
}

}  // namespace kvcast
