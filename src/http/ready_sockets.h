// ReadySockets: finds the watched sockets that have bytes or room, a bounded number at a time.
// Boost.Asio instead runs a handler for each ready socket before it looks again for other sockets.
// If thousands of sockets get bytes at the same time, all other connections then wait.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>

namespace kvcast {

// Thread-compatible. Only the thread of the io_context may use it.
class ReadySockets {
 public:
  // Maximum number of sockets that Take passes.
  static constexpr size_t kMostTaken = 64;

  enum class For : uint8_t {
    kBytes,  // a socket is ready if it has bytes, its end, or an error
    kRoom,   // a socket is ready if bytes can be sent, or if it has an error
  };
  ReadySockets(boost::asio::io_context& io, For readiness);

  // False: no file descriptor was free. The other functions must not be called.
  bool is_open() const { return epoll_.is_open(); }

  // Watches `socket` until Take has passed `id`, or until the socket is closed. False: the kernel
  // has no memory for it.
  bool Watch(int socket, uint64_t id);
  // Calls `ready` once, when a watched socket is ready. After that call, the caller must call Take
  // until Take returns false, and must then call AsyncWait again.
  void AsyncWait(std::function<void()> ready);
  // Passes the ids of ready sockets. The socket of an id may be closed already. True: more sockets
  // may be ready.
  bool Take(const std::function<void(uint64_t id)>& take);

 private:
  const uint32_t watched_;
  boost::asio::posix::stream_descriptor epoll_;
  std::array<epoll_event, kMostTaken> events_;
};

}  // namespace kvcast
