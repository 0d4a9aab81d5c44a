// The address of the server: a TCP port, or a unix socket.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "src/http/server_impl.h"

namespace kvcast {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr int kBacklog = 4096;
// The segment size of Ethernet. The loopback interface has segments of 64 KiB. With these segments,
// the kernel queues up to 2.5 MB for a client on the same machine. If the server closes such a
// connection, the thread of the server must free these bytes.
constexpr int kSegmentBytes = 1460;

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

Status Unavailable(const std::string& where, const std::string& why) {
  return {StatusCode::kUnavailable, "http: cannot listen on " + where + why};
}

// Removes a socket that no process listens on. Not ok: a process listens on the socket, or the file
// at the path is not a socket.
Status RemoveOldSocket(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return Status();
  if (!S_ISSOCK(info.st_mode)) return Unavailable("unix:" + path, ": the file is not a socket");
  asio::io_context io;
  asio::local::stream_protocol::socket probe(io);
  boost::system::error_code error;
  probe.connect(asio::local::stream_protocol::endpoint(path), error);
  if (error != asio::error::connection_refused) {
    return Unavailable("unix:" + path, ": the socket is in use");
  }
  unlink(path.c_str());
  return Status();
}

}  // namespace

Status HttpServer::Impl::Listen() {
  return options_.unix_path.empty() ? ListenOnTcp() : ListenOnUnix();
}

// Opens and binds the acceptor. It does not listen yet.
Status HttpServer::Impl::OpenAcceptor(const asio::generic::stream_protocol::endpoint& endpoint) {
  Error error;
  listener_.acceptor.close(error);
  listener_.acceptor.open(endpoint.protocol(), error);
  if (error) return Unavailable("", error.message());
  // Asio in Boost 1.74 does not set this flag, so child processes would inherit the socket.
  fcntl(listener_.acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  listener_.acceptor.non_blocking(true, error);  // Accept must not wait for a connection
  if (error) return Unavailable("", error.message());
  if (endpoint.protocol().family() != AF_UNIX) {
    Error ignored;
    listener_.acceptor.set_option(asio::socket_base::reuse_address(true), ignored);
    setsockopt(listener_.acceptor.native_handle(), IPPROTO_TCP, TCP_MAXSEG, &kSegmentBytes,
               sizeof(kSegmentBytes));
  }
  listener_.acceptor.bind(endpoint, error);
  return error ? Unavailable("", error.message()) : Status();
}

Status HttpServer::Impl::ListenOnTcp() {
  const std::string& address = options_.address;
  const bool brackets = address.starts_with('[') && address.ends_with(']');
  const std::string name = brackets ? address.substr(1, address.size() - 2) : address;
  Error error;
  const auto found = tcp::resolver(io_).resolve(name, std::to_string(options_.port),
                                                tcp::resolver::passive, error);
  for (const auto& entry : found) {
    if (!OpenAcceptor(entry.endpoint()).ok()) continue;
    listener_.acceptor.listen(kBacklog, error);
    if (error) continue;
    listener_.port = PortOf(listener_.acceptor.native_handle());
    return Status();
  }
  return Unavailable(address + ":" + std::to_string(options_.port), "");
}

Status HttpServer::Impl::ListenOnUnix() {
  const std::string& path = options_.unix_path;
  if (path.size() >= sizeof(sockaddr_un::sun_path) || path.find('\0') != std::string::npos) {
    return {StatusCode::kInvalidArgument,
            "http: unix:" + path + ": the path is too long for a unix socket, or contains a NUL"};
  }
  if (Status status = RemoveOldSocket(path); !status.ok()) return status;
  const Status opened = OpenAcceptor(asio::local::stream_protocol::endpoint(path));
  if (!opened.ok()) return Unavailable("unix:" + path, "");
  listener_.owns_path = true;
  // No client can connect before the socket listens.
  Error error;
  const bool is_private = chmod(path.c_str(), S_IRUSR | S_IWUSR) == 0;
  if (is_private) listener_.acceptor.listen(kBacklog, error);
  return is_private && !error ? Status() : Unavailable("unix:" + path, "");
}

void HttpServer::Impl::Unlisten() {
  if (listener_.owns_path) unlink(options_.unix_path.c_str());
  listener_.owns_path = false;
}

}  // namespace kvcast
