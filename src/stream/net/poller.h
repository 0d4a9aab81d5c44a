// Poller: waits for any number of ZeroMQ sockets. Its cost depends only on the number of ready
// sockets, while zmq_poll makes a system call for every socket in every call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "kvcast/core/status.h"
#include "src/stream/net/socket.h"

namespace kvcast::stream {

// Thread-safe, except Wait, which only one thread may call.
class Poller {
 public:
  // A registration of a descriptor or socket. Its destructor ends the registration, and must run
  // before the descriptor or socket is closed.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept
        : poller_(std::exchange(other.poller_, nullptr)), descriptor_(other.descriptor_) {}
    Watch& operator=(Watch&& other) noexcept;
    ~Watch() { End(); }

   private:
    friend class Poller;
    Watch(const Poller* poller, int descriptor) : poller_(poller), descriptor_(descriptor) {}
    void End();

    const Poller* poller_ = nullptr;
    int descriptor_ = -1;
  };

  // Error: no file descriptor is available.
  static Result<std::unique_ptr<Poller>> Create();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Wait sets `*ready` while the descriptor is readable. `ready` and the poller must outlive the
  // watch. If a Wait of another thread is in progress when the watch ends, `ready` must outlive
  // this Wait, too. Error: the system cannot watch another descriptor.
  Result<Watch> Add(int descriptor, std::atomic<bool>* ready) const;
  // Wait sets `*ready` once when a message may have arrived. The descriptor of a ZeroMQ socket is
  // edge-triggered: it signals a message once, and any other call on the socket may clear the
  // signal. So the caller must receive from the socket until no message is left. After Add, and
  // after any other call on the socket, the caller must treat the socket as ready until it has
  // received all messages.
  Result<Watch> Add(const Socket& socket, std::atomic<bool>* ready) const {
    return AddEdges(socket.descriptor(), ready);
  }
  // Wait sets `*ready` once for each time that the descriptor becomes readable.
  Result<Watch> AddEdges(int descriptor, std::atomic<bool>* ready) const;

  // Waits until at least one descriptor is ready, or for `timeout_ms`. -1: without a time limit. A
  // signal may end the wait early. Wait does not set any flag to false.
  void Wait(int64_t timeout_ms) const;

 private:
  explicit Poller(int descriptor) : descriptor_(descriptor) {}
  Result<Watch> AddFor(int descriptor, uint32_t events, std::atomic<bool>* ready) const;
  const int descriptor_;
};

}  // namespace kvcast::stream
