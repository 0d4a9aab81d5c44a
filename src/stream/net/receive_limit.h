// ReceiveLimit: ends a connection of a PUB or ROUTER socket if its peer sends too many bytes.
//
// The peers of a PUB socket send subscriptions, and the peers of a ROUTER socket send requests: a
// few bytes each. libzmq keeps all subscriptions of a peer, and all parts of an unfinished message.
// A thread of this process reads the byte counts of the connections, because the thread that owns
// the socket may be busy with the subscriptions of such a peer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "src/base/mutex.h"
#include "src/stream/net/socket.h"
#include "src/stream/net/unfinished_bytes.h"

namespace kvcast::stream {

class ReceiveLimitThread;

// Thread-safe.
class ReceiveLimit {
 public:
  // A peer of a PUB socket may send this many bytes in total. In each second,
  // UnfinishedBytes::kFreeBytesPerSecond bytes do not count. A subscription has the bytes of its
  // topic, and 2 to 50 bytes more.
  static constexpr uint64_t kSubscriberBytes = 64 << 10;
  // A peer of a ROUTER socket may send this many bytes until its next request is received.
  static constexpr uint64_t kClientBytes = 256 << 10;
  // Events of the monitor of the socket. They must be passed to OnEvent.
  static constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED;

  // Throws std::system_error if the thread cannot start.
  explicit ReceiveLimit(uint64_t max_bytes);
  ~ReceiveLimit();
  ReceiveLimit(const ReceiveLimit&) = delete;
  ReceiveLimit& operator=(const ReceiveLimit&) = delete;

  // Monitors the socket, for a socket without a Guard. A Guard passes the events itself. Must be
  // called before the socket is bound or connected. The limit must be destroyed after the socket is
  // closed.
  Status Monitor(Socket& socket);
  void OnEvent(const MonitorEvent& event);
  // A message of the connection was received (see Multipart::connection).
  void NoteMessage(int connection);

  // Number of ended connections. A peer that reconnects may count several times.
  uint64_t ended() const { return ended_; }

 private:
  friend class ReceiveLimitThread;
  // Reads the events and the byte counts, and ends connections.
  void Check(int64_t now_ms);
  // nullptr: no connection with this descriptor is known.
  UnfinishedBytes* Find(int descriptor) KV_REQUIRES(mutex_);

  const uint64_t max_bytes_;
  std::atomic<uint64_t> ended_{0};
  Mutex mutex_;
  Socket monitor_ KV_GUARDED_BY(mutex_);
  std::vector<UnfinishedBytes> connections_ KV_GUARDED_BY(mutex_);
  // Descriptors whose first message came before the event of their connection. The descriptor of a
  // closed connection stays here until a new connection gets the descriptor.
  std::set<int> early_ KV_GUARDED_BY(mutex_);
  const std::shared_ptr<ReceiveLimitThread> thread_;
};

}  // namespace kvcast::stream
