// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/control_channel.h"

#include <cstring>
#include <zmq.hpp>

namespace kvcast::tools {
namespace {

constexpr int kLingerMs = 1000;

bool WaitReadable(zmq::socket_t& socket, int64_t timeout_ms) {
  zmq::pollitem_t item{socket.handle(), 0, ZMQ_POLLIN, 0};
  try {
    return zmq::poll(&item, 1, std::chrono::milliseconds(timeout_ms)) > 0;
  } catch (const zmq::error_t&) {  // EINTR: the caller checks its stop flag
    return false;
  }
}

// Returns all frames of one message. Empty: interrupted.
std::vector<std::string> ReceiveFrames(zmq::socket_t& socket) {
  std::vector<std::string> frames;
  try {
    do {
      zmq::message_t frame;
      if (!socket.recv(frame, zmq::recv_flags::dontwait)) return frames;
      frames.push_back(frame.to_string());
    } while (socket.get(zmq::sockopt::rcvmore) != 0);
  } catch (const zmq::error_t&) {
    frames.clear();
  }
  return frames;
}

}  // namespace

std::string PackTokens(std::span<const TokenId> tokens) {
  static_assert(sizeof(TokenId) == 8);
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()};
}

std::optional<std::vector<TokenId>> UnpackTokens(std::string_view body) {
  if (body.size() % sizeof(TokenId) != 0) return std::nullopt;
  std::vector<TokenId> tokens(body.size() / sizeof(TokenId));
  if (!tokens.empty()) std::memcpy(tokens.data(), body.data(), body.size());
  return tokens;
}

struct ControlServer::Impl {
  zmq::context_t context{1};
  zmq::socket_t socket{context, zmq::socket_type::router};
  std::string endpoint;
};

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlServer::~ControlServer() = default;

Result<std::unique_ptr<ControlServer>> ControlServer::Create() {
  try {
    auto impl = std::make_unique<Impl>();
    impl->socket.set(zmq::sockopt::linger, kLingerMs);
    impl->socket.set(zmq::sockopt::sndhwm, 0);
    impl->socket.set(zmq::sockopt::rcvhwm, 0);
    impl->socket.set(zmq::sockopt::router_mandatory, true);
    impl->socket.bind("tcp://127.0.0.1:*");
    impl->endpoint = impl->socket.get(zmq::sockopt::last_endpoint);
    return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
  } catch (const zmq::error_t& error) {
    return Status(StatusCode::kUnavailable, std::string("control socket: ") + error.what());
  }
}

const std::string& ControlServer::endpoint() const { return impl_->endpoint; }

std::optional<ControlMessage> ControlServer::Receive(int64_t timeout_ms) {
  if (!WaitReadable(impl_->socket, timeout_ms)) return std::nullopt;
  std::vector<std::string> frames = ReceiveFrames(impl_->socket);
  if (frames.size() != 2) return std::nullopt;
  return ControlMessage{std::move(frames[0]), std::move(frames[1]), {}};
}

Status ControlServer::Send(const std::string& peer, const std::string& header,
                           const std::string& body) {
  try {
    impl_->socket.send(zmq::buffer(peer), zmq::send_flags::sndmore);
    impl_->socket.send(zmq::buffer(header), zmq::send_flags::sndmore);
    impl_->socket.send(zmq::buffer(body), zmq::send_flags::none);
    return {};
  } catch (const zmq::error_t& error) {
    return {StatusCode::kUnavailable, "engine " + peer + ": " + error.what()};
  }
}

struct ControlClient::Impl {
  zmq::context_t context{1};
  zmq::socket_t socket{context, zmq::socket_type::dealer};
};

ControlClient::ControlClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlClient::~ControlClient() = default;

Result<std::unique_ptr<ControlClient>> ControlClient::Create(const std::string& endpoint,
                                                             const std::string& name) {
  try {
    auto impl = std::make_unique<Impl>();
    impl->socket.set(zmq::sockopt::routing_id, name);
    impl->socket.set(zmq::sockopt::linger, kLingerMs);
    impl->socket.set(zmq::sockopt::sndhwm, 0);
    impl->socket.set(zmq::sockopt::rcvhwm, 0);
    impl->socket.connect(endpoint);
    return std::unique_ptr<ControlClient>(new ControlClient(std::move(impl)));
  } catch (const zmq::error_t& error) {
    return Status(StatusCode::kUnavailable, "control " + endpoint + ": " + error.what());
  }
}

std::optional<ControlMessage> ControlClient::Receive(int64_t timeout_ms) {
  if (!WaitReadable(impl_->socket, timeout_ms)) return std::nullopt;
  std::vector<std::string> frames = ReceiveFrames(impl_->socket);
  if (frames.size() != 2) return std::nullopt;
  return ControlMessage{{}, std::move(frames[0]), std::move(frames[1])};
}

void ControlClient::Send(const std::string& header) {
  try {
    impl_->socket.send(zmq::buffer(header), zmq::send_flags::none);
  } catch (const zmq::error_t&) {
    // The demo has ended. The parent-death signal or the stop flag then ends the engine.
  }
}

}  // namespace kvcast::tools
