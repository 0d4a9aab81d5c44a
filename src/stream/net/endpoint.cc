// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>

#include "kvcast/stream/publisher.h"

namespace kvcast {
namespace {

constexpr int64_t kMaxPort = 65535;

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Status BadEndpoint(std::string_view endpoint, std::string_view why) {
  return Status(StatusCode::kInvalidArgument,
                "endpoint " + std::string(endpoint) + ": " + std::string(why));
}

// Parses the text after the last colon, so that IPv6 addresses work. "*" means any port, like 0.
std::optional<int64_t> ParsePort(std::string_view text) {
  if (text == "*") return 0;
  int64_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (port < 0 || port > kMaxPort) return std::nullopt;
  return port;
}

Result<std::string> TcpEndpointForRank(std::string_view endpoint, int64_t rank) {
  const size_t colon = endpoint.rfind(':');
  const std::optional<int64_t> port = ParsePort(endpoint.substr(colon + 1));
  if (!port) return BadEndpoint(endpoint, "no port after the last colon");
  if (*port == 0) return std::string(endpoint);
  if (rank > kMaxPort - *port) return BadEndpoint(endpoint, "port plus rank is above 65535");
  return std::string(endpoint.substr(0, colon + 1)) + std::to_string(*port + rank);
}

// The address from which this node would send to other networks. Nothing is sent: connecting a
// datagram socket only looks up the route.
std::string AddressOfDefaultRoute() {
  constexpr char kLoopback[] = "127.0.0.1";
  constexpr char kElsewhere[] = "192.0.2.1";  // in a network that is reserved for documentation
  constexpr uint16_t kAnyPort = 9;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return kLoopback;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kAnyPort);
  inet_pton(AF_INET, kElsewhere, &address.sin_addr);
  socklen_t size = sizeof(address);
  const bool known =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
      address.sin_addr.s_addr != htonl(INADDR_ANY);
  close(fd);
  char text[INET_ADDRSTRLEN] = {};
  if (!known || inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text)) == nullptr) {
    return kLoopback;
  }
  return text;
}

}  // namespace

Result<std::string> NodeEndpoint(std::string_view endpoint, std::string_view host_ip) {
  if (endpoint != "tcp://*:0") return std::string(endpoint);
  if (host_ip == "0.0.0.0" || host_ip == "::" || host_ip == "*") {
    return BadEndpoint(endpoint, "host_ip is a wildcard, must be one address");
  }
  std::string host(host_ip);
  if (host.empty()) host = AddressOfDefaultRoute();
  if (Contains(host, ":")) host = "[" + host + "]";
  return "tcp://" + host + ":0";
}

Result<std::string> EndpointForRank(std::string_view endpoint, int64_t rank) {
  if (rank < 0) return BadEndpoint(endpoint, "data-parallel rank is negative");
  if (rank == 0 || endpoint.empty()) return std::string(endpoint);
  if (Contains(endpoint, "inproc")) return std::string(endpoint) + "_dp" + std::to_string(rank);
  if (Contains(endpoint, "tcp")) return TcpEndpointForRank(endpoint, rank);
  return BadEndpoint(endpoint, "only tcp and inproc have one endpoint per rank");
}

bool BindsEndpoint(std::string_view endpoint) {
  if (Contains(endpoint, "*") || Contains(endpoint, "::")) return true;
  if (endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://")) return true;
  if (endpoint.ends_with(":0")) return true;
  return endpoint.starts_with("tcp://127.") || endpoint.starts_with("tcp://0.0.0.0:");
}

}  // namespace kvcast
