// PeerLink: the connection to the load endpoint of one other router.
//
// ZeroMQ does not connect again after some errors, and a restarted router may have another address.
// So a link that receives nothing for some time looks up the name of its peer, and connects again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "router/service/load/load_peer.h"
#include "src/stream/follow/endless_message.h"
#include "src/stream/follow/peer_address.h"
#include "src/stream/net/name_resolver.h"
#include "src/stream/net/poller.h"
#include "src/stream/net/socket.h"

namespace kvcast::router {

// Thread-compatible. All times are in milliseconds of one monotonic clock.
class PeerLink {
 public:
  // The link connects again if it has received nothing for this time. The time must be longer than
  // kMaxLoadPeriodMs.
  static constexpr int64_t kReopenMs = 3000;

  // `keys`: the keys of this router, which the link uses if the peer has a server key. `poller` and
  // `ready` must outlive the link. The poller sets `*ready` to true when a message may have
  // arrived.
  PeerLink(const LoadPeer& peer, const std::optional<CurveKeyPair>& keys,
           std::shared_ptr<stream::Context> context, const stream::Poller& poller,
           std::atomic<bool>* ready);

  // Call at least every kMaxLoadPeriodMs. Starts and finishes name lookups, and opens the socket.
  // Closes the socket if the peer sends a message without an end.
  void Advance(stream::NameResolver& resolver, int64_t now_ms);
  // The next message, valid until the next call of Receive. nullopt: none has arrived.
  std::optional<stream::Frames> Receive(int64_t now_ms);
  bool open() const { return sub_.is_open(); }

 private:
  Status Open(int64_t now_ms);
  void Close();
  void CheckPeer(int64_t now_ms);

  std::optional<CurveClient> curve_;
  const std::shared_ptr<stream::Context> context_;
  const stream::Poller& poller_;
  std::atomic<bool>* const ready_;
  stream::PeerAddress address_;
  stream::Socket monitor_;  // of sub_; must be closed after sub_
  stream::Socket sub_;
  stream::Poller::Watch watch_;
  stream::Multipart message_;
  stream::EndlessMessage endless_;
  int64_t checked_at_ms_ = 0;  // time of the latest check by `endless_`
  int64_t heard_ms_ = 0;       // time of the latest message, or of the latest Open
  int64_t retry_at_ms_ = 0;    // the socket must not be opened before this time
};

}  // namespace kvcast::router
