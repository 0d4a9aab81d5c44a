// ReservedPort: a port that a test must name before a server listens on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "src/base/descriptor.h"

namespace kvcast::testing {

// A TCP port of 127.0.0.1. While the object exists, the kernel gives the port to no other socket. A
// server with SO_REUSEADDR, such as libzmq, may bind the port while the socket of this object does
// not listen.
class ReservedPort {
 public:
  ReservedPort() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    EXPECT_EQ(setsockopt(descriptor_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(descriptor_.get(), any, size), 0);
    EXPECT_EQ(getsockname(descriptor_.get(), any, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  std::string endpoint() const { return "tcp://127.0.0.1:" + std::to_string(port_); }
  uint16_t port() const { return port_; }
  const Descriptor& descriptor() const { return descriptor_; }

 private:
  Descriptor descriptor_;
  uint16_t port_ = 0;
};

}  // namespace kvcast::testing
