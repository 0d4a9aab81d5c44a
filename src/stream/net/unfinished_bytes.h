// UnfinishedBytes: the bytes that a peer has sent on one connection since its latest whole message.
//
// libzmq keeps the parts of an unfinished message without a bound. It also keeps all subscriptions
// of a peer. The kernel's count of received bytes includes these parts and subscriptions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace kvcast::stream {

// Thread-compatible.
class UnfinishedBytes {
 public:
  // In each second, this many bytes do not count, because a peer also sends bytes that belong to no
  // message, for example ZMTP heartbeats.
  static constexpr uint64_t kFreeBytesPerSecond = 64;

  // `descriptor`: of the connection. It is not owned, and may be closed at any time.
  UnfinishedBytes(int descriptor, int64_t now_ms);

  int descriptor() const { return descriptor_; }
  // False: the connection is closed. Another connection may have its descriptor.
  bool is_open() const;
  // A whole message of this connection was received. The bytes of the message, and all bytes that
  // arrive before the next Read, do not count.
  void NoteMessage() { has_message_ = true; }
  // Returns the unfinished bytes, less the free bytes. 0: not a TCP connection. nullopt: the
  // descriptor is closed, or belongs to another connection, which has received bytes.
  std::optional<uint64_t> Read(int64_t now_ms);

 private:
  int descriptor_;
  uint64_t inode_;         // differs between connections with the same descriptor
  uint64_t received_ = 0;  // since the start of the connection, at the latest Read
  uint64_t unfinished_ = 0;
  uint64_t free_ = 0;  // unused free bytes, in thousandths of a byte
  int64_t read_ms_;    // the time of the latest Read
  bool has_message_ = false;
};

}  // namespace kvcast::stream
