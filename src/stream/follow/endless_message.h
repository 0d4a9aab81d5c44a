// EndlessMessage: finds a peer of a socket whose message does not end. The socket belongs to a
// followed source.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/stream/net/unfinished_bytes.h"

namespace kvcast::stream {

// Thread-compatible.
class EndlessMessage {
 public:
  enum class Verdict : uint8_t {
    kNone,
    // A peer has sent more than the limit. The bytes may be messages that were not received yet, so
    // the owner must receive from the socket until it is empty.
    kLook,
    // The socket was empty after kLook, so the bytes belong to a message that does not end.
    kEndless,
  };

  // The interval between two calls of Check.
  static constexpr int64_t kCheckMs = 50;
  // The bytes that the system may have received for a connection before libzmq reads them. The
  // default of Linux is 6 MiB.
  static constexpr int64_t kMaxUnreadBytes = 32 << 20;
  static constexpr uint64_t LimitFor(int64_t max_frame_bytes) {
    return static_cast<uint64_t>(max_frame_bytes + kMaxUnreadBytes);
  }

  // `limit`: see LimitFor.
  explicit EndlessMessage(uint64_t limit) : limit_(limit) {}

  // Messages of the connection may have been received before this call, so the bytes until the next
  // Check do not count.
  void Connect(int descriptor, int64_t now_ms) {
    Disconnect(descriptor);
    peers_.emplace_back(descriptor, now_ms).NoteMessage();
  }
  void Disconnect(int descriptor) {
    std::erase_if(peers_, [=](const auto& peer) { return peer.descriptor() == descriptor; });
  }
  void Clear() {
    peers_.clear();
    suspects_ = looked_ = false;
  }

  // The owner has received a message from this connection. kUnknown: the socket has one peer.
  static constexpr int kUnknown = -1;
  void NoteMessage(int descriptor) {
    for (UnfinishedBytes& peer : peers_) {
      if (descriptor != kUnknown && peer.descriptor() != descriptor) continue;
      peer.NoteMessage();
      if (suspect_ == peer.descriptor()) suspects_ = false;
    }
  }
  // The socket is empty.
  void NoteEmpty() { looked_ = true; }

  // Must be called every kCheckMs. Between two calls, a peer can send bytes without a limit.
  Verdict Check(int64_t now_ms) {
    if (suspects_ && looked_) return Verdict::kEndless;
    suspects_ = looked_ = false;
    for (UnfinishedBytes& peer : peers_) {
      if (peer.Read(now_ms).value_or(0) <= limit_) continue;
      suspects_ = true;
      suspect_ = peer.descriptor();
    }
    return suspects_ ? Verdict::kLook : Verdict::kNone;
  }

 private:
  const uint64_t limit_;
  std::vector<UnfinishedBytes> peers_;
  bool suspects_ = false;
  int suspect_ = kUnknown;  // the descriptor, if suspects_
  bool looked_ = false;     // the socket was empty since the latest Check
};

}  // namespace kvcast::stream
