// Poller: waits for any number of ZeroMQ sockets, at the cost of those that are ready. zmq_poll
// makes a system call for each socket each time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kvcast/core/status.h"
#include "src/stream/net/socket.h"

namespace kvcast::stream {

// Thread-safe, but for Wait, which one thread calls.
class Poller {
 public:
  // Ends the watching when it is destroyed, which must be before what it watches is closed.
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

  // Fails when no descriptor is left.
  static Result<std::unique_ptr<Poller>> Create();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Lets Wait set `*ready` while the descriptor is readable. `ready` and the poller must outlive
  // the watch. Fails when the system can watch no more.
  Result<Watch> Add(int descriptor, bool* ready) const;
  // Lets Wait set `*ready` when a message may have come. The socket must then be received from
  // until it has none: it says so once, and other calls on it may take its word away. So what was
  // not emptied since such a call, or since Add, counts as ready.
  Result<Watch> Add(const Socket& socket, bool* ready) const;

  // Waits for one of them, -1: for ever. Does not set any flag to false.
  void Wait(int64_t timeout_ms) const;

 private:
  explicit Poller(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
};

}  // namespace kvcast::stream
