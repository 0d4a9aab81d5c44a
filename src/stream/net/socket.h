// Socket and Context: ZeroMQ handles with an owner, failures as Status.
//
// A socket belongs to one thread at a time; handing it over needs a lock or a thread start.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kvcast/core/status.h"
#include "src/stream/net/message.h"

namespace kvcast::stream {

// Destruction waits until the sockets made from it are flushed within their linger times.
class Context {
 public:
  // One of its own, with its own I/O thread.
  static std::shared_ptr<Context> Create();
  // The same, with I/O threads in the background (see background.h). Throws std::system_error if no
  // thread can start.
  static std::shared_ptr<Context> CreateInBackground();
  // One such for all who ask. Lives as long as somebody holds it.
  static std::shared_ptr<Context> SharedInBackground();
  // The one of this process: inproc endpoints meet only inside one context. Lives as long as
  // somebody holds it.
  static std::shared_ptr<Context> Shared();

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  // False: there were no descriptors for it. No socket can be made from it.
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
  // `type` is a ZMQ_ socket type. Fails only when the process has too few descriptors left.
  static Result<Socket> Create(std::shared_ptr<Context> context, int type);
  Socket() = default;
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }

  bool is_open() const { return socket_ != nullptr; }
  void* get() const { return socket_; }
  void Close();

  // REQUIRES: an option and value that libzmq knows; anything else is our own mistake.
  void SetOption(int option, int value);
  void SetOption(int option, int64_t value);
  void Subscribe(std::string_view prefix);

  Status Bind(const std::string& endpoint);
  Status Connect(const std::string& endpoint);
  // Readable when there may be something to receive; see Poller.
  int descriptor() const;
  // As bound or connected, wildcards and port 0 resolved.
  std::string last_endpoint() const;

  // Copies the bytes.
  SendResult Send(Frame bytes, bool more);
  // Sends the bytes of `payload` without copying if that repays; `owner`, if given, is released
  // when ZeroMQ needs the bytes no more, on any thread.
  SendResult SendShared(Payload payload, std::shared_ptr<void> owner, bool more);
  // Never waits.
  RecvResult Receive(Multipart& message);

  // A PAIR socket that gets the ZMQ_EVENT_ `events` of this one. It must be closed after this one:
  // libzmq's thread would wait for ever to tell one that is gone, and all that the thread serves
  // with it.
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
