// SourceLink: the sockets of one followed source, and the Source that they feed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvcast/stream/subscriber.h"
#include "src/stream/poller.h"
#include "src/stream/socket.h"
#include "src/stream/source.h"
#include "src/stream/turns.h"

namespace kvcast::stream {

// Opened on any thread, then used by one.
class SourceLink {
 public:
  // From one live connection to the next, so that frames which no connection survives do not keep
  // the machine busy.
  static constexpr int64_t kRenewalPauseMs = 100;

  // Subscribes, and connects or binds. `poller`, `sink` and `turns` must outlive the link; `turns`
  // is used once it works.
  static Result<std::unique_ptr<SourceLink>> Open(const SourceConfig& source,
                                                  const SubscriberConfig& config,
                                                  std::shared_ptr<Context> context,
                                                  const Poller& poller, const SubscriberSink& sink,
                                                  Turns& turns);
  ~SourceLink() { LeaveTurns(); }
  SourceLink(const SourceLink&) = delete;
  SourceLink& operator=(const SourceLink&) = delete;

  WorkerId worker() const { return config_.worker; }
  // When to call Work, if the clock is not set back.
  int64_t deadline_ms() const {
    return ready_ || has_new_turn() ? Source::kAtOnce
                                    : std::min(source_.deadline_ms(), renew_due_ms_);
  }
  bool is_due(int64_t now_ms) const { return renewal_scheduled() || now_ms >= deadline_ms(); }
  bool is_sure() const { return source_.is_sure(); }
  SourceStatus status(int64_t now_ms) const {
    SourceStatus status = source_.status(now_ms);
    status.bound = config_.bind;
    return status;
  }

  // Once, by the thread that waits on the poller, and before the first Work: from here on the
  // poller knows the link.
  void Start();
  // Handles a bounded number of waiting messages and what is due. Never waits.
  void Work(int64_t now_ms);
  void Contradict(int64_t now_ms) { source_.OnContradiction(now_ms); }
  // The sink is not called any more.
  void Mute() { muted_ = true; }

 private:
  SourceLink(const SourceConfig& source, const SubscriberConfig& config,
             std::shared_ptr<Context> context, const Poller& poller, const SubscriberSink& sink,
             Turns& turns);
  Status CheckReplayEndpoint() const;
  Status CheckLiveEndpoint() const;
  Status ConnectLive();
  Result<std::array<Poller::Watch, 2>> WatchBoth(const Socket& socket, const Socket& monitor);
  void RenewLive(int64_t now_ms);
  void ScheduleRenewal();
  bool renewal_scheduled() const { return renew_due_ms_ != Source::kNever; }
  bool TakeTurn();
  void LeaveTurns();
  bool has_new_turn() const { return waits_ && turns_.Has(this); }
  SourceHooks Hooks(const SubscriberSink& sink);
  void AddSnapshotHooks(const SubscriberSink& sink, SourceHooks& hooks);

  void DrainMonitor(int64_t now_ms);
  void DrainLive(int64_t now_ms);
  void DrainReplay(int64_t now_ms);
  void DrainReplayMonitor(int64_t now_ms);
  void CloseReplay();
  void Request(Frame start);

  const SourceConfig config_;
  const int recv_hwm_;
  const int64_t max_frame_bytes_;
  const std::shared_ptr<Context> context_;
  const Poller& poller_;
  Turns& turns_;
  bool in_turns_ = false;  // has a place, or waits for one
  bool waits_ = false;
  Source source_;
  bool started_ = false;
  bool muted_ = false;
  bool connected_at_once_ = false;  // inproc: no monitor events, and never a reconnect
  bool disconnected_ = false;       // the live connection has ended
  bool peer_ = false;               // bound: a publisher is connected
  bool stranger_ = false;  // bound: a connection failed its handshake, and its end comes next
  int64_t renew_due_ms_ = Source::kNever;  // when to make the next one
  int64_t renewed_ms_ = -kRenewalPauseMs;  // when the last one was made
  uint64_t requests_ = 0;                  // replay requests so far
  bool ready_ = true;                      // a socket may have something
  Multipart message_;
  Socket monitor_;  // of sub_, and closed after it
  Socket sub_;
  Socket replay_monitor_;
  Socket replay_;  // one DEALER per request, so that late replies to another one cannot mix in
  // Behind the sockets that they watch.
  std::array<Poller::Watch, 2> live_watches_;
  std::array<Poller::Watch, 2> replay_watches_;
};

}  // namespace kvcast::stream
