// Listening sockets of the HTTP server.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "kvcast/core/status.h"

namespace kvcast::router {

// A file descriptor, closed at the end of its life.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { Close(); }
  int get() const { return fd_; }
  void Close();

 private:
  int fd_ = -1;
};

struct Listener {
  Descriptor socket;  // non-blocking
  int port = 0;
};
// `address`: numeric, IPv4 or IPv6, or a name. kUnavailable: it cannot be listened on.
Result<Listener> ListenOn(const std::string& address, int port);

bool IsLoopbackAddress(std::string_view address);
// Of ZeroMQ: what binds it is heard on this machine alone.
bool IsLoopbackEndpoint(std::string_view endpoint);
// "localhost:80", "127.0.0.1", "[::1]:80": a Host header that only this machine's own pages have.
// A page elsewhere whose name was made to point here ("DNS rebinding") has another one.
bool IsLoopbackHost(std::string_view host);

// Files that this process may open, less a reserve for sockets of other parts.
size_t OpenFilesForConnections();

}  // namespace kvcast::router
