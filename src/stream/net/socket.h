// Socket and Context: owners of ZeroMQ handles. Errors are returned as Status.
//
// Only one thread may use a socket at a time. To pass a socket to another thread, a memory barrier
// is needed, for example a lock or a thread start.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kvcast/core/status.h"
#include "kvcast/stream/curve.h"
#include "src/base/mutex.h"
#include "src/stream/net/message.h"

namespace kvcast::stream {

class Gate;

// Error: this version of libzmq has known vulnerabilities that peers can use before they are
// authenticated (CVE-2020-15166, CVE-2021-20235).
Status CheckLibzmqVersion(int major, int minor, int patch);

// A ZeroMQ context. The destructor waits until all sockets of the context have sent their messages,
// or until their linger times have passed.
class Context {
 public:
  // A new context with its own I/O thread.
  static std::shared_ptr<Context> Create();
  // As Create, but the I/O threads have the scheduling class SCHED_BATCH (see SetBatchScheduling).
  // Throws std::system_error if no thread can start.
  static std::shared_ptr<Context> CreateInBackground();
  // A shared context of this process, created by CreateInBackground. The context exists as long as
  // a caller holds it.
  static std::shared_ptr<Context> SharedInBackground();
  // The shared context of this process for inproc endpoints, which connect only within one context,
  // and for live sockets. The context exists as long as a caller holds it.
  static std::shared_ptr<Context> Shared();

  // A shared context for the requests of followed sources.
  static std::shared_ptr<Context> SharedForRequests();

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  // False: no file descriptor was available for the context. No socket can be created in it.
  bool ok() const { return context_ != nullptr; }
  void* get() const { return context_; }

  // The gate of this context (see gate.h), which exists while a Guard holds it. The lock is held
  // while a gate starts or ends, because a context can have only one gate at a time.
  struct GateSlot {
    Mutex mutex;
    std::weak_ptr<Gate> gate KV_GUARDED_BY(mutex);
  };
  GateSlot& gate_slot() { return gate_slot_; }

 private:
  Context();
  void* const context_;
  GateSlot gate_slot_;
};

enum class SendResult : uint8_t { kSent, kWouldBlock, kUnreachable };
enum class RecvResult : uint8_t { kMessage, kNone };

// A ZMQ_EVENT_ of a monitored socket, its value, and the endpoint that the socket has bound, or to
// which it connects.
struct MonitorEvent {
  int event = 0;
  uint32_t value = 0;
  std::string endpoint;
};

class Socket {
 public:
  // `type` is a ZMQ_ socket type. Errors: the process has too few file descriptors left; see also
  // CheckLibzmqVersion.
  static Result<Socket> Create(std::shared_ptr<Context> context, int type);
  Socket() = default;
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }

  bool is_open() const { return socket_ != nullptr; }
  void* get() const { return socket_; }
  void Close();

  // REQUIRES: libzmq supports the option and accepts the value. Otherwise the process aborts.
  void SetOption(int option, int value);
  void SetOption(int option, int64_t value);
  void Subscribe(std::string_view prefix);
  // Makes the socket a CURVE server or a CURVE client. The socket then has only CURVE connections.
  // Must be called before Bind and Connect. REQUIRES: the keys are valid. A CURVE server also needs
  // a Guard.
  void Secure(const CurveKeyPair& server, const std::string& zap_domain);
  void Secure(const CurveClient& client);

  // The names of inproc endpoints that this library and libzmq use themselves are refused.
  Status Bind(const std::string& endpoint);
  Status Connect(const std::string& endpoint);
  // Ends all connections of `endpoint`, and opens the endpoint again. `bound`: true for an endpoint
  // of Bind, false for an endpoint of Connect. False: the endpoint cannot be opened yet, and stays
  // closed. Renew must then be called again some milliseconds later.
  bool Renew(const std::string& endpoint, bool bound);
  // libzmq accepts and ends connections of a socket only in calls on this socket. Such a call is
  // needed when descriptor() is readable. This function is such a call, and has no other effect.
  void ProcessCommands();
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

  // Returns a PAIR socket that receives the ZMQ_EVENT_ `events` of this socket. The PAIR socket
  // must be closed after this socket. Otherwise libzmq's I/O thread blocks forever when it sends an
  // event to the closed PAIR socket. All sockets that this thread serves then block too.
  Result<Socket> Monitor(int events);

 private:
  Socket(std::shared_ptr<Context> context, void* socket);
  void SetText(int option, const std::string& value);

  // The context outlives its sockets.
  std::shared_ptr<Context> context_;
  void* socket_ = nullptr;
  bool monitored_ = false;
};

// Returns the endpoint of a new monitor. It contains 128 random bits, so that no client can guess
// the endpoint and register a source with this endpoint.
std::string NewMonitorEndpoint();

// The next event of a monitor, if there is one.
std::optional<MonitorEvent> ReceiveMonitorEvent(Socket& monitor);

}  // namespace kvcast::stream
