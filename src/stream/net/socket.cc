// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/socket.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "src/base/batch_scheduling.h"
#include "src/base/check.h"
#include "src/base/weak_singleton.h"

namespace kvcast::stream {
namespace {

// Below this many bytes a copy is cheaper than the bookkeeping of a shared buffer.
constexpr size_t kMinSharedBytes = 2048;
// Maximum number of sockets of a context. A followed source has three sockets in each of its two
// contexts. Both ends of a monitor count.
constexpr int kMaxSockets = 16384;

// libzmq starts its threads with the first socket of a context, and ends the process if these
// threads get no descriptors. HasSpareDescriptors makes such an end unlikely, but cannot prevent
// it: other threads may take the descriptors after the check.
constexpr size_t kSpareDescriptors = 16;

bool HasSpareDescriptors() {
  std::array<int, kSpareDescriptors> spare{};
  size_t opened = 0;
  while (opened < spare.size() && (spare[opened] = eventfd(0, EFD_CLOEXEC)) >= 0) ++opened;
  for (size_t i = 0; i < opened; ++i) close(spare[i]);
  return opened == spare.size();
}

Status SocketError(const std::string& what) {
  const int error = zmq_errno();
  const bool bad_argument = error == EINVAL || error == EPROTONOSUPPORT || error == ENOCOMPATPROTO;
  return Status(bad_argument ? StatusCode::kInvalidArgument : StatusCode::kUnavailable,
                what + ": " + zmq_strerror(error));
}

SendResult SendMessage(void* socket, zmq_msg_t* message, bool more) {
  const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
  while (zmq_msg_send(message, socket, flags) == -1) {
    if (zmq_errno() == EINTR) continue;
    const bool would_block = zmq_errno() == EAGAIN;
    zmq_msg_close(message);
    return would_block ? SendResult::kWouldBlock : SendResult::kUnreachable;
  }
  return SendResult::kSent;
}

// If another socket had such a name, that socket would become the peer of a monitor or of the gate.
// libzmq's I/O thread would wait for that socket.
bool IsReserved(std::string_view endpoint) {
  return endpoint.starts_with("inproc://kvcast-") || endpoint.starts_with("inproc://zeromq.");
}

Status ReservedError(const std::string& endpoint) {
  return {StatusCode::kInvalidArgument, endpoint + ": the name is reserved"};
}

Status CheckLibrary() {
  int major = 0;
  int minor = 0;
  int patch = 0;
  zmq_version(&major, &minor, &patch);
  return CheckLibzmqVersion(major, minor, patch);
}

// Owns a buffer while ZeroMQ reads from it.
struct SharedBuffer {
  Payload payload;
  std::shared_ptr<void> owner;
};

void ReleaseSharedBuffer(void*, void* hint) { delete static_cast<SharedBuffer*>(hint); }

}  // namespace

std::string NewMonitorEndpoint() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device device;
  std::string endpoint = "inproc://kvcast-monitor-";
  for (int word = 0; word < 4; ++word) {
    const uint32_t bits = device();
    for (int digit = 0; digit < 8; ++digit) endpoint += kDigits[bits >> (4 * digit) & 15];
  }
  return endpoint;
}

Status CheckLibzmqVersion(int major, int minor, int patch) {
  if (std::array{major, minor, patch} >= std::array{4, 3, 3}) return Status();
  return {StatusCode::kFailedPrecondition,
          "libzmq " + std::to_string(major) + "." + std::to_string(minor) + "." +
              std::to_string(patch) + " has known vulnerabilities; at least 4.3.3 is needed"};
}

Context::Context() : context_(zmq_ctx_new()) {
  if (!ok()) return;
  KV_CHECK(zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, kMaxSockets) == 0);
}

Context::~Context() {
  if (!ok()) return;
  while (zmq_ctx_term(context_) == -1 && zmq_errno() == EINTR) {
  }
}

std::shared_ptr<Context> Context::Create() { return std::shared_ptr<Context>(new Context); }

// The option ZMQ_THREAD_SCHED_POLICY is not used, because libzmq aborts if the system refuses the
// policy.
std::shared_ptr<Context> Context::CreateInBackground() {
  std::shared_ptr<Context> context = Create();
  std::thread starter([&context] {
    SetBatchScheduling();
    // The first socket starts the I/O threads.
    (void)Socket::Create(context, ZMQ_PAIR);
  });
  starter.join();
  return context;
}

std::shared_ptr<Context> Context::Shared() {
  static WeakSingleton<Context> shared;
  return shared.Get(&Context::Create, [](const Context& context) { return context.ok(); });
}

std::shared_ptr<Context> Context::SharedForRequests() {
  static WeakSingleton<Context> shared;
  return shared.Get(&Context::Create, [](const Context& context) { return context.ok(); });
}

std::shared_ptr<Context> Context::SharedInBackground() {
  static WeakSingleton<Context> shared;
  return shared.Get(&Context::CreateInBackground,
                    [](const Context& context) { return context.ok(); });
}

Socket::Socket(std::shared_ptr<Context> context, void* socket)
    : context_(std::move(context)), socket_(socket) {}

Socket::Socket(Socket&& other) noexcept
    : context_(std::move(other.context_)),
      socket_(std::exchange(other.socket_, nullptr)),
      monitored_(other.monitored_) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this == &other) return *this;
  Close();
  context_ = std::move(other.context_);
  socket_ = std::exchange(other.socket_, nullptr);
  monitored_ = other.monitored_;
  return *this;
}

void Socket::Close() {
  if (socket_ != nullptr) {
    // This call ends the monitor at once. zmq_close alone would end it later, on another thread.
    if (monitored_) zmq_socket_monitor(socket_, nullptr, 0);
    KV_CHECK(zmq_close(socket_) == 0);
  }
  socket_ = nullptr;
  context_.reset();
}

Result<Socket> Socket::Create(std::shared_ptr<Context> context, int type) {
  static const Status library = CheckLibrary();
  if (!library.ok()) return library;
  if (!context->ok() || !HasSpareDescriptors()) {
    return Status(StatusCode::kUnavailable, "cannot create a socket: too few file descriptors");
  }
  void* socket = zmq_socket(context->get(), type);
  if (socket == nullptr) return SocketError("cannot create a socket");
  return Socket(std::move(context), socket);
}

void Socket::SetOption(int option, int value) {
  KV_CHECK(zmq_setsockopt(socket_, option, &value, sizeof(value)) == 0);
}

void Socket::SetOption(int option, int64_t value) {
  KV_CHECK(zmq_setsockopt(socket_, option, &value, sizeof(value)) == 0);
}

void Socket::Subscribe(std::string_view prefix) {
  KV_CHECK(zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, prefix.data(), prefix.size()) == 0);
}

void Socket::Secure(const CurveKeyPair& server, const std::string& zap_domain) {
  SetOption(ZMQ_CURVE_SERVER, 1);
  SetText(ZMQ_CURVE_SECRETKEY, server.secret_key);
  SetText(ZMQ_ZAP_DOMAIN, zap_domain);
}

void Socket::Secure(const CurveClient& client) {
  SetText(ZMQ_CURVE_SERVERKEY, client.server_key);
  SetText(ZMQ_CURVE_PUBLICKEY, client.keys.public_key);
  SetText(ZMQ_CURVE_SECRETKEY, client.keys.secret_key);
}

void Socket::SetText(int option, const std::string& value) {
  KV_CHECK(zmq_setsockopt(socket_, option, value.data(), value.size()) == 0);
}

Status Socket::Bind(const std::string& endpoint) {
  if (IsReserved(endpoint)) return ReservedError(endpoint);
  if (zmq_bind(socket_, endpoint.c_str()) == 0) return Status();
  if (zmq_errno() == ENODEV) {
    return Status(StatusCode::kInvalidArgument,
                  "cannot bind " + endpoint + ": needs an address of this machine, not a name");
  }
  return SocketError("cannot bind " + endpoint);
}

Status Socket::Connect(const std::string& endpoint) {
  if (IsReserved(endpoint)) return ReservedError(endpoint);
  if (zmq_connect(socket_, endpoint.c_str()) == 0) return Status();
  return SocketError("cannot connect to " + endpoint);
}

bool Socket::Renew(const std::string& endpoint, bool bound) {
  if (!bound) {
    zmq_disconnect(socket_, endpoint.c_str());
    return zmq_connect(socket_, endpoint.c_str()) == 0;
  }
  // If an earlier Renew has released the endpoint already, zmq_unbind fails and changes nothing.
  zmq_unbind(socket_, endpoint.c_str());
  return zmq_bind(socket_, endpoint.c_str()) == 0;
}

void Socket::ProcessCommands() {
  int events = 0;
  size_t size = sizeof(events);
  KV_CHECK(zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size) == 0);
}

int Socket::descriptor() const {
  int descriptor = -1;
  size_t size = sizeof(descriptor);
  KV_CHECK(zmq_getsockopt(socket_, ZMQ_FD, &descriptor, &size) == 0);
  return descriptor;
}

std::string Socket::last_endpoint() const {
  char text[1024];
  size_t size = sizeof(text);
  KV_CHECK(zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, text, &size) == 0);
  return text;
}

SendResult Socket::Send(Frame bytes, bool more) {
  zmq_msg_t message;
  KV_CHECK(zmq_msg_init_size(&message, bytes.size()) == 0);
  if (!bytes.empty()) std::memcpy(zmq_msg_data(&message), bytes.data(), bytes.size());
  return SendMessage(socket_, &message, more);
}

SendResult Socket::SendShared(Payload payload, std::shared_ptr<void> owner, bool more) {
  if (owner == nullptr && payload->size() < kMinSharedBytes) return Send(*payload, more);
  auto* buffer = new SharedBuffer{std::move(payload), std::move(owner)};
  // The cast is needed because the C API has no const. ZeroMQ does not write into a message that it
  // sends. An empty vector may have no address, and a message without an address would never be
  // released.
  static uint8_t nothing;
  auto* data = const_cast<uint8_t*>(buffer->payload->data());
  zmq_msg_t message;
  KV_CHECK(zmq_msg_init_data(&message, data != nullptr ? data : &nothing, buffer->payload->size(),
                             ReleaseSharedBuffer, buffer) == 0);
  return SendMessage(socket_, &message, more);
}

RecvResult Socket::Receive(Multipart& message) {
  message.count_ = 0;
  bool more = true;
  while (more) {
    Message& frame = message.messages_[std::min(message.count_, Multipart::kMaxFrames - 1)];
    if (zmq_msg_recv(frame.get(), socket_, ZMQ_DONTWAIT) == -1) {
      if (zmq_errno() == EINTR) continue;
      return RecvResult::kNone;
    }
    more = zmq_msg_more(frame.get()) != 0;
    if (message.count_ < Multipart::kMaxFrames) ++message.count_;
  }
  for (size_t i = 0; i < message.count_; ++i) message.views_[i] = message.messages_[i].bytes();
  return RecvResult::kMessage;
}

Result<Socket> Socket::Monitor(int events) {
  const std::string endpoint = NewMonitorEndpoint();
  if (zmq_socket_monitor(socket_, endpoint.c_str(), events) == -1) {
    return SocketError("cannot monitor a socket");
  }
  monitored_ = true;
  Result<Socket> monitor = Create(context_, ZMQ_PAIR);
  if (!monitor.ok()) return monitor;
  monitor->SetOption(ZMQ_LINGER, 0);
  if (zmq_connect(monitor->socket_, endpoint.c_str()) != 0) {
    return SocketError("cannot monitor a socket");
  }
  return monitor;
}

std::optional<MonitorEvent> ReceiveMonitorEvent(Socket& monitor) {
  Multipart message;
  if (monitor.Receive(message) == RecvResult::kNone) return std::nullopt;
  uint16_t event = 0;
  uint32_t value = 0;
  const Frame head = message.frames()[0];
  if (head.size() < sizeof(event) + sizeof(value)) return MonitorEvent();
  std::memcpy(&event, head.data(), sizeof(event));
  std::memcpy(&value, head.data() + sizeof(event), sizeof(value));
  const Frame endpoint = message.frames().size() > 1 ? message.frames()[1] : Frame();
  return MonitorEvent{event, value, {endpoint.begin(), endpoint.end()}};
}

}  // namespace kvcast::stream
