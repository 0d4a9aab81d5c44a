// The connection between the demo and its engine processes: small JSON messages with an optional
// binary body, over ZMQ on loopback.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"

namespace kvcast::tools {

struct ControlMessage {
  std::string peer;    // name of the engine; set in messages that the server receives
  std::string header;  // JSON text
  std::string body;    // empty in messages that the server receives
};

// Token ids as a message body. Each id has 8 bytes, little-endian.
std::string PackTokens(std::span<const TokenId> tokens);
// nullopt: the size of `body` is not a multiple of 8.
std::optional<std::vector<TokenId>> UnpackTokens(std::string_view body);

// The demo's side. Only the owner thread may use it.
class ControlServer {
 public:
  // Binds to a free port of 127.0.0.1.
  static Result<std::unique_ptr<ControlServer>> Create();
  ~ControlServer();
  const std::string& endpoint() const;
  // Waits up to timeout_ms for one message. nullopt: no valid message arrived, or a signal
  // interrupted the wait.
  std::optional<ControlMessage> Receive(int64_t timeout_ms);
  // Not ok: the peer is not connected.
  Status Send(const std::string& peer, const std::string& header, const std::string& body = {});

 private:
  struct Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The engine's side. Only the owner thread may use it.
class ControlClient {
 public:
  static Result<std::unique_ptr<ControlClient>> Create(const std::string& endpoint,
                                                       const std::string& name);
  ~ControlClient();
  // See ControlServer::Receive.
  std::optional<ControlMessage> Receive(int64_t timeout_ms);
  // Ignores errors: the demo may have ended.
  void Send(const std::string& header);

 private:
  struct Impl;
  explicit ControlClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::tools
