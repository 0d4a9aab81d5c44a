// SourceLink: the sockets of one followed source, and the SourcePump that they feed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "kvcast/stream/subscriber.h"
#include "src/stream/follow/endless_message.h"
#include "src/stream/follow/peer_address.h"
#include "src/stream/follow/source_pump.h"
#include "src/stream/follow/source_sockets.h"
#include "src/stream/follow/source_transport.h"
#include "src/stream/net/poller.h"
#include "src/stream/net/socket.h"

namespace kvcast::stream {

struct SourceContexts {
  std::shared_ptr<Context> live;  // also used for requests to inproc endpoints
  // Requests have a context of their own, because each request closes a socket. When a socket
  // closes, libzmq visits the monitors of all sockets of the same context.
  std::shared_ptr<Context> requests;
};

// Open may be called on any thread. The other functions must be called by one thread at a time.
// Work may run while another thread is in Poller::Wait.
class SourceLink final : private SourceTransport {
 public:
  // Subscribes, and connects or binds. If an endpoint has a name, the link connects later, when the
  // resolver has found its address. `poller`, `turns` and `resolver` must outlive the link. `turns`
  // is not used before the first Work.
  static Result<std::unique_ptr<SourceLink>> Open(const SourceConfig& source,
                                                  const SubscriberConfig& config,
                                                  SourceContexts contexts, const Poller& poller,
                                                  std::shared_ptr<ReplicaSink> sink,
                                                  RequestTurns& turns, NameResolver& resolver);
  SourceLink(const SourceLink&) = delete;
  SourceLink& operator=(const SourceLink&) = delete;

  WorkerId worker() const { return config_.worker; }
  // The time of the next Work, if the clock is not set back.
  int64_t deadline_ms() const {
    if (ready_) return kAtOnce;
    return std::min(pump_.deadline_ms(), looks_again() ? look_again_due_ms_ : kNever);
  }
  bool is_due(int64_t now_ms) const { return pump_.renewal_scheduled() || now_ms >= deadline_ms(); }
  TurnLength next_turn(int64_t now_ms) const { return pump_.next_turn(now_ms); }
  bool is_sure() const { return pump_.source().is_sure(); }
  std::optional<SavedPosition> Position() const { return pump_.source().Position(); }
  SourceStatus status(int64_t now_ms) const {
    SourceStatus status = pump_.source().status(now_ms);
    status.bound = config_.bind;
    status.failed_handshakes = failed_handshakes_;
    const bool connecting = status.state == SourceState::kConnecting;
    if (connecting && !has_addresses()) status.reason = SourceReason::kUnresolved;
    return status;
  }

  // Must be called once, before the first Work, by the thread that waits on the poller. Registers
  // the sockets with the poller.
  void Start();
  // See SourcePump::Work.
  void Work(int64_t now_ms, bool takes_large = true);
  // Ends a connection on which a message does not end. Must be called every
  // EndlessMessage::kCheckMs, and not during a call of Work.
  void CheckPeers(int64_t now_ms);
  // See SourcePump::Contradict.
  void Contradict(int64_t now_ms) { pump_.Contradict(now_ms); }
  // After this call the sink is not called.
  void Mute() { pump_.Mute(); }

 private:
  SourceLink(const SourceConfig& source, const SubscriberConfig& config, SourceContexts contexts,
             const Poller& poller, std::shared_ptr<ReplicaSink> sink, RequestTurns& turns,
             NameResolver& resolver);
  Status CheckKeys() const;
  Status CheckReplayEndpoint() const;
  Status CheckLiveEndpoint() const;
  // True: the name may have got another address since it was looked up.
  bool looks_again() const { return has_names() && !connected_ && !pump_.renewal_scheduled(); }
  bool has_names() const { return live_address_.has_name() || replay_address_.has_name(); }
  bool has_addresses() const { return live_address_.is_known() && replay_address_.is_known(); }
  Status ConnectLive();
  Result<std::array<Poller::Watch, 2>> WatchBoth(const Socket& socket, const Socket& monitor);

  bool OpenLive() override;
  void EndLive() override;
  std::optional<LiveEvent> NextLiveEvent() override;
  std::optional<Frames> ReceiveLive() override { return Receive(sub_, live_message_); }
  void OpenRequest(Frame start) override;
  void CloseRequest() override;
  std::optional<Frames> ReceiveReply() override { return Receive(replay_, reply_message_); }
  bool TakeReplyCut() override;
  void CloseReplySocket();
  std::optional<Frames> Receive(Socket& socket, EndlessMessage& endless);

  const SourceConfig config_;
  const SourceSocketOptions sockets_;
  const SourceContexts contexts_;
  const Poller& poller_;
  NameResolver& resolver_;
  const std::shared_ptr<ReplicaSink> sink_;
  PeerAddress live_address_;
  PeerAddress replay_address_;
  int64_t now_ms_ = 0;  // time of the current Work
  // When to look the names up again, if there is no live connection.
  int64_t look_again_due_ms_ = 0;
  bool connected_ = false;  // the live connection is established
  bool started_ = false;
  bool connected_at_once_ = false;  // inproc: has no monitor events, and never reconnects
  std::atomic<bool> ready_{true};   // a socket may have a message
  uint64_t failed_handshakes_ = 0;
  Multipart message_;
  EndlessMessage live_message_;
  EndlessMessage reply_message_;
  Socket monitor_;  // monitor of sub_; must be closed after sub_
  Socket sub_;
  Socket replay_monitor_;
  Socket replay_;  // one DEALER per request: it receives no late replies to earlier requests
  // Declared after the sockets that they watch, so that they are destroyed first.
  std::array<Poller::Watch, 2> live_watches_;
  std::array<Poller::Watch, 2> replay_watches_;
  SourcePump pump_;
};

}  // namespace kvcast::stream
