// A client that sends bytes unchanged, for requests that an HTTP library would not send.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

namespace kvcast::testing {

class RawHttp {
 public:
  // Connects from the address `from` to 127.0.0.1.
  explicit RawHttp(int port, const char* from = "127.0.0.1")
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    const timeval timeout = {.tv_sec = 30, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  }
  RawHttp(RawHttp&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  ~RawHttp() {
    if (fd_ >= 0) close(fd_);
  }
  bool connected() const { return connected_; }

  // Returns false if the server closed the connection, or took no bytes for 30 seconds.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void EndSending() { shutdown(fd_, SHUT_WR); }
  // Returns all bytes until the server closes the connection. Returns "timeout" if no byte arrives
  // for 30 seconds.
  std::string ReadToEnd() {
    char buffer[4096];
    while (true) {
      const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
      if (got < 0) return errno == EAGAIN ? "timeout" : std::exchange(text_, {});
      if (got == 0) return std::exchange(text_, {});
      text_.append(buffer, static_cast<size_t>(got));
    }
  }
  // Returns the next bytes. Empty: the connection ended, or no byte arrived for 30 seconds.
  std::string ReadSome() {
    char buffer[4096];
    const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
    return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : "";
  }
  // Returns the bytes up to and including `end`. Returns fewer bytes if the connection ends before
  // `end` arrives, or if no byte arrives for 30 seconds.
  std::string ReadUpTo(std::string_view end) {
    char byte = 0;
    while (!text_.ends_with(end) && recv(fd_, &byte, 1, 0) == 1) text_ += byte;
    return std::exchange(text_, {});
  }

 private:
  int fd_;
  bool connected_ = false;
  std::string text_;
};

}  // namespace kvcast::testing
