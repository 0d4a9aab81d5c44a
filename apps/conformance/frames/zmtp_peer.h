// ZmtpPeer: a client that uses ZMTP 3.1 (NULL mechanism) over a plain TCP socket, without libzmq.
//
// The peer receives every byte of the server. It can wait until the server has processed the sent
// bytes. Thread-compatible.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

class ZmtpPeer {
 public:
  // `endpoint` is a bound tcp endpoint of this machine. Connect uses only its port. A read or
  // a send that takes longer than `timeout_ms` returns kUnavailable.
  static Result<ZmtpPeer> Connect(const std::string& endpoint, int timeout_ms = 10000);
  ZmtpPeer(ZmtpPeer&& other) noexcept;
  ZmtpPeer& operator=(ZmtpPeer&& other) noexcept;
  ~ZmtpPeer();

  // Sends raw bytes. Received bytes are kept until they are taken.
  Status Send(const std::string& bytes);
  Status ReceiveAtLeast(size_t bytes);
  const std::string& received() const { return received_; }

  // Sends the greeting and READY of a socket of this type ("SUB", "DEALER", ...).
  Status Handshake(const std::string& socket_type);
  Status Subscribe(const std::string& topic);
  // Returns when the server's socket has received all bytes that were sent before. Removes the
  // server's answer to this call from received().
  Status Fence();

  // REQUIRES for SendMessage and ReceiveMessage: Handshake was called.
  Status SendMessage(const std::vector<std::string>& frames);
  // Returns the frames of the next message.
  Result<std::vector<std::string>> ReceiveMessage();

 private:
  ZmtpPeer(int descriptor, int timeout_ms) : descriptor_(descriptor), timeout_ms_(timeout_ms) {}
  Status ReceiveSome();
  Status PingPong();
  Result<std::string> TakeFrame(uint8_t& flags);

  int descriptor_ = -1;
  int timeout_ms_ = 0;
  uint32_t pings_ = 0;
  std::string received_;
};

}  // namespace kvcast::tools
