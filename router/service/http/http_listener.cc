// SPDX-License-Identifier: Apache-2.0
#include "router/service/http/http_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

namespace kvcast::router {
namespace {

constexpr int kBacklog = 4096;
constexpr size_t kReservedFiles = 256;

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// Without SO_REUSEPORT, which would let a second server take a port in use.
Descriptor TryListen(const addrinfo& info) {
  Descriptor socket(::socket(info.ai_family, info.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  if (socket.get() < 0) return socket;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(socket.get(), info.ai_addr, info.ai_addrlen) != 0) return Descriptor();
  if (listen(socket.get(), kBacklog) != 0) return Descriptor();
  return socket;
}

}  // namespace

void Descriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Result<Listener> ListenOn(const std::string& address, int port) {
  const std::string name = address.starts_with('[') && address.ends_with(']')
                               ? address.substr(1, address.size() - 2)
                               : address;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* info = error == 0 ? found : nullptr; info != nullptr; info = info->ai_next) {
    Listener listener{TryListen(*info), port};
    if (listener.socket.get() < 0) continue;
    listener.port = PortOf(listener.socket.get());
    return listener;
  }
  return Status(StatusCode::kUnavailable,
                "http: cannot listen on " + address + ":" + std::to_string(port));
}

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

size_t OpenFilesForConnections() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kReservedFiles;
  const auto files = static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 24));
  return files > 2 * kReservedFiles ? files - kReservedFiles : std::max<size_t>(files / 2, 1);
}

}  // namespace kvcast::router
