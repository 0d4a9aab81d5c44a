// Socket and Context: owners of ZeroMQ handles. Errors are returned as Status.
//
// Only one thread may use a socket at a time. To pass it to another thread, a lock or a thread
// start is needed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kvcast/core/status.h"
#include "src/stream/net/message.h"

namespace kvcast::stream {

// A ZeroMQ context. The destructor waits until all sockets of the context have sent their messages,
// or until their linger times have passed.
class Context {
 public:
  // A new context with its own I/O thread.
  static std::shared_ptr<Context> Create();
  // As Create, but the I/O threads run in the background (see batch_scheduling.h). Throws
  // std::system_error if no thread can start.
  static std::shared_ptr<Context> CreateInBackground();
  // A second shared context of this process. Its I/O threads run in the background, as with
  // CreateInBackground. It exists as long as a caller holds it.
  static std::shared_ptr<Context> SharedInBackground();
  // The shared context of this process. It is needed because inproc endpoints connect only within
  // one context. It exists as long as a caller holds it.
  static std::shared_ptr<Context> Shared();

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  // False: no file descriptor was available for the context. No socket can be created in it.
  bool ok() const { return context_ != nullptr; }
  void* get() const { return context_; }

 private:
  Context();
  void* const context_;
};

enum class SendResult : uint8_t { kSent, kWouldBlock, kUnreachable };
enum class RecvResult : uint8_t { kMessage, kNone };

class Socket {
 public:
  // `type` is a ZMQ_ socket type. Error: the process has too few file descriptors left.
  static Result<Socket> Create(std::shared_ptr<Context> context, int type);
  Socket() = default;
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }

  bool is_open() const { return socket_ != nullptr; }
  void* get() const { return socket_; }
  void Close();

  // REQUIRES: libzmq knows the option and accepts the value. Otherwise the process aborts.
  void SetOption(int option, int value);
  void SetOption(int option, int64_t value);
  void Subscribe(std::string_view prefix);

  Status Bind(const std::string& endpoint);
  Status Connect(const std::string& endpoint);
  // This descriptor is readable when a message may have arrived; see Poller.
  int descriptor() const;
  // The bound or connected endpoint, with wildcards and port 0 resolved.
  std::string last_endpoint() const;

  // Copies the bytes.
  SendResult Send(Frame bytes, bool more);
  // Sends the bytes of `payload`, without a copy if that is cheaper. When ZeroMQ does not need the
  // bytes any more, `owner` is released, on any thread. `owner` may be nullptr.
  SendResult SendShared(Payload payload, std::shared_ptr<void> owner, bool more);
  // Never blocks.
  RecvResult Receive(Multipart& message);

  // Returns a PAIR socket that receives the ZMQ_EVENT_ `events` of this socket. It must be closed
  // after this socket. Otherwise libzmq's I/O thread blocks forever when it sends an event to the
  // closed monitor. All sockets that this thread serves then block too.
  Result<Socket> Monitor(int events);

 private:
  Socket(std::shared_ptr<Context> context, void* socket);

  // The context outlives its sockets.
  std::shared_ptr<Context> context_;
  void* socket_ = nullptr;
  bool monitored_ = false;
};

// The event number of the next monitor message, if there is one.
std::optional<int> ReceiveMonitorEvent(Socket& monitor);

}  // namespace kvcast::stream
