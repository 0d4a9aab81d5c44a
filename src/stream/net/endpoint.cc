// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "kvcast/stream/publisher.h"

namespace kvcast {
namespace {

constexpr int64_t kMaxPort = 65535;
constexpr size_t kMaxNameBytes = 253;
constexpr size_t kMaxLabelBytes = 63;

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
  if (!port) return BadEndpoint(endpoint, "the endpoint has no port");
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

bool IsAddress(int family, const std::string& host) {
  in6_addr address;
  return inet_pton(family, host.c_str(), &address) == 1;
}

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

// Labels of letters, digits, - and _, joined by dots. A name of only digits and dots would be a
// malformed address.
bool IsName(std::string_view host) {
  if (host.size() > kMaxNameBytes) return false;
  if (host.find_first_not_of("0123456789.") == std::string_view::npos) return false;
  if (host.ends_with('.')) host.remove_suffix(1);
  while (true) {
    const std::string_view label = host.substr(0, host.find('.'));
    if (label.empty() || label.size() > kMaxLabelBytes) return false;
    if (!std::all_of(label.begin(), label.end(), IsNameChar)) return false;
    if (label.size() == host.size()) return true;
    host.remove_prefix(label.size() + 1);
  }
}

Result<Endpoint> ParseTcp(std::string_view text, std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return BadEndpoint(text, "the endpoint has no port");
  const std::string_view digits = address.substr(colon + 1);
  const std::optional<int64_t> port = digits == "*" ? std::nullopt : ParsePort(digits);
  if (!port || *port == 0) return BadEndpoint(text, "the port must be from 1 to 65535");
  std::string host(address.substr(0, colon));
  const bool brackets = host.starts_with('[') && host.ends_with(']');
  if (brackets) host = host.substr(1, host.size() - 2);
  const bool valid =
      brackets ? IsAddress(AF_INET6, host) : IsAddress(AF_INET, host) || IsName(host);
  if (!valid) {
    return BadEndpoint(text, "the host must be an IPv4 address, [an IPv6 address] or a name");
  }
  return Endpoint{Transport::kTcp, std::move(host), static_cast<int>(*port)};
}

}  // namespace

bool Endpoint::has_name() const {
  return transport == Transport::kTcp && !IsAddress(AF_INET, host) && !IsAddress(AF_INET6, host);
}

bool Endpoint::is_local() const {
  if (transport != Transport::kTcp) return true;
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && !has_name());
}

std::string Endpoint::ToString() const {
  if (transport == Transport::kIpc) return "ipc://" + host;
  if (transport == Transport::kInproc) return "inproc://" + host;
  const bool brackets = Contains(host, ":");
  return "tcp://" + (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Endpoint> ParseEndpoint(std::string_view text) {
  const size_t end = text.find("://");
  const std::string_view transport = text.substr(0, end);
  if (end == std::string_view::npos) return BadEndpoint(text, "expected tcp://HOST:PORT");
  const std::string_view address = text.substr(end + 3);
  if (transport == "tcp") return ParseTcp(text, address);
  if (transport != "ipc" && transport != "inproc") {
    return BadEndpoint(text, "the transport must be tcp, ipc or inproc");
  }
  if (address.empty() || Contains(address, std::string_view("\0", 1))) {
    return BadEndpoint(text, "the name is empty or contains a NUL byte");
  }
  if (transport == "inproc") return Endpoint{Transport::kInproc, std::string(address), 0};
  if (address.size() >= sizeof(sockaddr_un::sun_path))
    return BadEndpoint(text, "the path is too long");
  return Endpoint{Transport::kIpc, std::string(address), 0};
}

Result<std::string> NodeEndpoint(std::string_view endpoint, std::string_view host_ip) {
  if (endpoint != "tcp://*:0") return std::string(endpoint);
  if (host_ip == "0.0.0.0" || host_ip == "::" || host_ip == "*") {
    return BadEndpoint(endpoint, "host_ip must be one address, not a wildcard");
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
  return BadEndpoint(endpoint, "a rank above 0 needs a tcp or inproc endpoint");
}

bool BindsEndpoint(std::string_view endpoint) {
  if (Contains(endpoint, "*") || Contains(endpoint, "::")) return true;
  if (endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://")) return true;
  if (endpoint.ends_with(":0")) return true;
  return endpoint.starts_with("tcp://127.") || endpoint.starts_with("tcp://0.0.0.0:");
}

}  // namespace kvcast
