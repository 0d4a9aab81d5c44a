// HostileEngine: a peer that sends a message without end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

#include "src/base/descriptor.h"
#include "tests/support/reserved_port.h"

namespace kvcast::stream {

// The maximum number of bytes that a test sends to a peer. The peer must end the connection much
// earlier, also on a busy machine.
inline constexpr size_t kFloodBytes = size_t{2} << 30;

// A TCP server on a free port of this machine.
class Listener {
 public:
  Listener() { EXPECT_EQ(listen(port_.descriptor().get(), 8), 0); }
  std::string endpoint() const { return port_.endpoint(); }
  Descriptor Accept() const {
    return Descriptor(accept4(port_.descriptor().get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  Descriptor Connect() const {
    Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return client;
  }

 private:
  kvcast::testing::ReservedPort port_;
};

inline bool SendAll(int descriptor, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(descriptor, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

// A part of a message that never ends: 60 kB, with the flags "more" and "long".
inline std::string EndlessPart() {
  std::string part("\x03\0\0\0\0\0\0\xea\x60", 9);
  return part + std::string(60000, 'x');
}

// The bytes with which a socket of this type begins: greeting and READY.
inline std::string Handshake(const std::string& socket_type) {
  std::string bytes = "\xff" + std::string(8, '\0') + "\x7f\x03\x01NULL";
  bytes.resize(64, '\0');
  std::string ready = "\x05READY\x0bSocket-Type" + std::string(3, '\0');
  ready += static_cast<char>(socket_type.size());
  ready += socket_type;
  return bytes + '\x04' + static_cast<char>(ready.size()) + ready;
}

// An engine that sends a message without end to each peer of this endpoint.
class HostileEngine {
 public:
  explicit HostileEngine(const std::string& socket_type)
      : thread_([this, socket_type] { Run(socket_type); }) {}
  ~HostileEngine() {
    stopping_ = true;
    // This connection ends the call of Accept.
    const Descriptor last = listener_.Connect();
    thread_.join();
  }
  std::string endpoint() const { return listener_.endpoint(); }
  int ended() const { return ended_; }     // number of ended connections
  bool failed() const { return failed_; }  // a peer took kFloodBytes

 private:
  // Waits for the READY of libzmq. Before libzmq has sent its READY, it takes a message as a part
  // of the handshake.
  static bool Greet(int peer, const std::string& socket_type) {
    std::string greeting(64, '\0');
    char ready[64];
    return SendAll(peer, Handshake(socket_type)) &&
           recv(peer, greeting.data(), greeting.size(), MSG_WAITALL) == 64 &&
           recv(peer, ready, sizeof(ready), 0) > 0;
  }

  void Run(const std::string& socket_type) {
    const std::string part = EndlessPart();
    while (!stopping_ && !failed_) {
      const Descriptor peer = listener_.Accept();
      // A small buffer makes the sender slower than the receiver.
      const int buffer = 4096;
      setsockopt(peer.get(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
      if (stopping_ || !Greet(peer.get(), socket_type)) continue;
      size_t sent = 0;
      while (sent < kFloodBytes && SendAll(peer.get(), part)) sent += part.size();
      if (sent >= kFloodBytes) failed_ = true;
      ++ended_;
    }
  }

  Listener listener_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::atomic<int> ended_{0};
  std::thread thread_;
};

}  // namespace kvcast::stream
