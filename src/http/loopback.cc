// SPDX-License-Identifier: Apache-2.0
#include "src/http/loopback.h"

#include "src/http/ip_network.h"

namespace kvcast {

bool IsLoopbackAddress(std::string_view address) {
  if (address == "localhost" || address == "::1" || address == "[::1]") return true;
  // ParseIpAddress accepts only four numbers. Another text of digits and dots may be a name for a
  // resolver.
  return address.starts_with("127.") && ParseIpAddress(address).has_value();
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
