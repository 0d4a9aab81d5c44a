// SourceLink: the sockets of one followed source, and the SourcePump that they feed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "kvcast/stream/subscriber.h"
#include "src/stream/follow/source_pump.h"
#include "src/stream/follow/source_transport.h"
#include "src/stream/net/poller.h"
#include "src/stream/net/socket.h"

namespace kvcast::stream {

// Open may be called on any thread. All other functions must be called on one thread.
class SourceLink final : private SourceTransport {
 public:
  // Subscribes, and connects or binds. `poller` and `turns` must outlive the link. `turns` is not
  // used before the first Work.
  static Result<std::unique_ptr<SourceLink>> Open(
      const SourceConfig& source, const SubscriberConfig& config, std::shared_ptr<Context> context,
      const Poller& poller, std::shared_ptr<ReplicaSink> sink, FairPermits& turns);
  SourceLink(const SourceLink&) = delete;
  SourceLink& operator=(const SourceLink&) = delete;

  WorkerId worker() const { return config_.worker; }
  // The time of the next Work, if the clock is not set back.
  int64_t deadline_ms() const { return ready_ ? kAtOnce : pump_.deadline_ms(); }
  bool is_due(int64_t now_ms) const { return pump_.renewal_scheduled() || now_ms >= deadline_ms(); }
  bool is_sure() const { return pump_.source().is_sure(); }
  SourceStatus status(int64_t now_ms) const {
    SourceStatus status = pump_.source().status(now_ms);
    status.bound = config_.bind;
    return status;
  }

  // Must be called once, before the first Work, by the thread that waits on the poller. Registers
  // the sockets with the poller.
  void Start();
  // Handles a bounded number of waiting messages, and all due timers. Never blocks.
  void Work(int64_t now_ms) {
    ready_ = false;
    pump_.Work(now_ms);
  }
  void Contradict(int64_t now_ms) { pump_.Contradict(now_ms); }
  // After this call the sink is not called.
  void Mute() { pump_.Mute(); }

 private:
  SourceLink(const SourceConfig& source, const SubscriberConfig& config,
             std::shared_ptr<Context> context, const Poller& poller,
             std::shared_ptr<ReplicaSink> sink, FairPermits& turns);
  Status CheckReplayEndpoint() const;
  Status CheckLiveEndpoint() const;
  Status ConnectLive();
  Result<std::array<Poller::Watch, 2>> WatchBoth(const Socket& socket, const Socket& monitor);

  bool OpenLive() override { return ConnectLive().ok(); }
  void EndLive() override;
  std::optional<LiveEvent> NextLiveEvent() override;
  std::optional<Frames> ReceiveLive() override { return Receive(sub_); }
  void OpenRequest(Frame start) override;
  void CloseRequest() override;
  std::optional<Frames> ReceiveReply() override { return Receive(replay_); }
  bool TakeReplyCut() override;
  std::optional<Frames> Receive(Socket& socket);

  const SourceConfig config_;
  const int recv_hwm_;
  const int64_t max_frame_bytes_;
  const std::shared_ptr<Context> context_;
  const Poller& poller_;
  const std::shared_ptr<ReplicaSink> sink_;
  bool started_ = false;
  bool connected_at_once_ = false;  // inproc: no monitor events, and never a reconnect
  bool ready_ = true;               // a socket may have a message
  Multipart message_;
  Socket monitor_;  // monitor of sub_; must be closed after sub_
  Socket sub_;
  Socket replay_monitor_;
  Socket replay_;  // one DEALER per request: late replies to other requests cannot mix in
  // Declared after the sockets that they watch, so that they are destroyed first.
  std::array<Poller::Watch, 2> live_watches_;
  std::array<Poller::Watch, 2> replay_watches_;
  SourcePump pump_;
};

}  // namespace kvcast::stream
