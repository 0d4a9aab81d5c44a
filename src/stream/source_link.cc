// SPDX-License-Identifier: Apache-2.0
#include "src/stream/source_link.h"

#include <atomic>
#include <random>
#include <utility>

#include "src/stream/source_sockets.h"

namespace kvcast::stream {
namespace {

// Messages handled before another source has its turn.
constexpr int kMessagesPerTurn = 256;
// Between attempts to make a live connection for which no socket was left.
constexpr int64_t kRetryMs = 1000;

constexpr int kLinkEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;
constexpr int kFailedHandshakes = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                  ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                  ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

// Other sources of this process, and other processes, have others.
uint64_t NextJitterSeed() {
  static std::atomic<uint64_t> next{std::random_device()()};
  return (next++ + 1) * 0x9E3779B97F4A7C15;
}

SourceLimits LimitsOf(const SubscriberConfig& config, bool takes_snapshots) {
  return {config.hold_back_batches, config.hold_back_bytes, config.replay_timeout_ms,
          config.probe_interval_ms, config.stale_ms,        config.audit_interval_ms,
          takes_snapshots,          NextJitterSeed()};
}

}  // namespace

SourceLink::SourceLink(const SourceConfig& source, const SubscriberConfig& config,
                       std::shared_ptr<Context> context, const Poller& poller,
                       const SubscriberSink& sink, Turns& turns)
    : config_(source),
      recv_hwm_(config.recv_hwm),
      max_frame_bytes_(config.max_frame_bytes),
      context_(std::move(context)),
      poller_(poller),
      turns_(turns),
      source_(LimitsOf(config, sink.takes_snapshots()), !source.replay_endpoint.empty(),
              Hooks(sink)) {}

Result<std::unique_ptr<SourceLink>> SourceLink::Open(const SourceConfig& source,
                                                     const SubscriberConfig& config,
                                                     std::shared_ptr<Context> context,
                                                     const Poller& poller,
                                                     const SubscriberSink& sink, Turns& turns) {
  std::unique_ptr<SourceLink> link(
      new SourceLink(source, config, std::move(context), poller, sink, turns));
  if (Status status = link->CheckLiveEndpoint(); !status.ok()) return status;
  if (Status status = link->CheckReplayEndpoint(); !status.ok()) return status;
  if (Status status = link->ConnectLive(); !status.ok()) return status;
  return link;
}

// Publishers bind ipc and inproc endpoints themselves, and a port that the system chooses would be
// known to none of them.
Status SourceLink::CheckLiveEndpoint() const {
  if (!config_.bind) return Status();
  const std::string& endpoint = config_.endpoint;
  const auto error = [&endpoint](const char* what) {
    return Status(StatusCode::kInvalidArgument, "cannot bind " + endpoint + ": " + what);
  };
  if (!endpoint.starts_with("tcp://")) return error("bind is for tcp endpoints");
  if (endpoint.ends_with(":*") || endpoint.ends_with(":0")) return error("a port is needed");
  return Status();
}

// Tried once at the start, so that a bad endpoint is an error then and not a timeout later.
Status SourceLink::CheckReplayEndpoint() const {
  if (config_.replay_endpoint.empty()) return Status();
  Result<Socket> trial = MakeReplaySocket(context_, config_.replay_endpoint, max_frame_bytes_);
  if (!trial.ok()) return trial.status();
  return trial->Connect(config_.replay_endpoint);
}

// Replaces the live connection, and what it still holds. On failure the old one stays, if it is
// not closed already.
Status SourceLink::ConnectLive() {
  Result<Socket> sub = MakeLiveSocket(
      context_, config_.endpoint,
      {.topic = config_.topic, .recv_hwm = recv_hwm_, .max_frame_bytes = max_frame_bytes_});
  if (!sub.ok()) return sub.status();
  Result<Socket> monitor = sub->Monitor(kLinkEvents | (config_.bind ? kFailedHandshakes : 0));
  if (!monitor.ok()) return monitor.status();
  Status made = config_.bind ? sub->Bind(config_.endpoint) : sub->Connect(config_.endpoint);
  if (!made.ok()) {
    sub->Close();  // before its monitor
    return made;
  }
  if (started_) {
    auto watches = WatchBoth(*sub, *monitor);
    if (!watches.ok()) {
      sub->Close();  // before its monitor
      return watches.status();
    }
    live_watches_ = std::move(watches).value();
  }
  sub_ = std::move(sub).value();
  monitor_ = std::move(monitor).value();
  ready_ = true;
  disconnected_ = peer_ = stranger_ = false;
  connected_at_once_ = config_.endpoint.starts_with("inproc://");
  return Status();
}

void SourceLink::Start() {
  started_ = true;
  ready_ = true;
  auto watches = WatchBoth(sub_, monitor_);
  if (watches.ok()) {
    live_watches_ = std::move(watches).value();
  } else {
    ScheduleRenewal();
  }
}

Result<std::array<Poller::Watch, 2>> SourceLink::WatchBoth(const Socket& socket,
                                                           const Socket& monitor) {
  Result<Poller::Watch> first = poller_.Add(socket, &ready_);
  if (!first.ok()) return first.status();
  Result<Poller::Watch> second = poller_.Add(monitor, &ready_);
  if (!second.ok()) return second.status();
  return std::array{std::move(first).value(), std::move(second).value()};
}

// The connection is over. What it still brings waits for its end, and must not wake us. A bound
// endpoint must be free before it can be bound again.
void SourceLink::ScheduleRenewal() {
  renew_due_ms_ = renewed_ms_ + kRenewalPauseMs;
  live_watches_ = {};
  if (config_.bind) sub_.Close();
}

void SourceLink::RenewLive(int64_t now_ms) {
  renewed_ms_ = now_ms;
  // A bound endpoint is released by a thread of libzmq, soon.
  const int64_t retry_ms = config_.bind ? kRenewalPauseMs : kRetryMs;
  renew_due_ms_ = ConnectLive().ok() ? Source::kNever : now_ms + retry_ms;
}

bool SourceLink::TakeTurn() {
  in_turns_ = true;
  waits_ = !turns_.Take(this);
  return !waits_;
}

void SourceLink::LeaveTurns() {
  waits_ = false;
  if (std::exchange(in_turns_, false)) turns_.Leave(this);
}

SourceHooks SourceLink::Hooks(const SubscriberSink& sink) {
  SourceHooks hooks;
  hooks.apply = [this, &sink](const Batch& batch) {
    if (muted_) return BatchResult::kApplied;
    if (sink.apply) return sink.apply(config_.worker, Seq(batch.seq), batch.payload);
    if (!sink.on_batch) return BatchResult::kApplied;
    sink.on_batch(config_.worker, Seq(batch.seq), batch.payload);
    return BatchResult::kApplied;
  };
  hooks.reset = [this, &sink](ResetReason reason) {
    if (!muted_ && sink.on_reset) sink.on_reset(config_.worker, reason);
  };
  hooks.request_replay = [this](uint64_t start) { Request(EncodeSeq(start)); };
  hooks.request_extended = [this](const residency::ExtensionRequest& request) {
    Request(residency::EncodeRequest(request));
  };
  hooks.take_turn = [this] { return TakeTurn(); };
  hooks.close_replay = [this] {
    CloseReplay();
    LeaveTurns();
  };
  hooks.renew_live = [this] { ScheduleRenewal(); };
  if (sink.takes_snapshots()) AddSnapshotHooks(sink, hooks);
  return hooks;
}

void SourceLink::AddSnapshotHooks(const SubscriberSink& sink, SourceHooks& hooks) {
  hooks.begin_snapshot = [this, &sink] {
    if (!muted_) sink.begin_snapshot(config_.worker);
  };
  hooks.add_to_snapshot = [this, &sink](Frame part) {
    return !muted_ && sink.add_to_snapshot(config_.worker, part);
  };
  hooks.commit_snapshot = [this, &sink](const PublisherStatus& status) {
    return !muted_ && sink.commit_snapshot(config_.worker, status);
  };
  hooks.drop_snapshot = [this, &sink] {
    if (!muted_) sink.drop_snapshot(config_.worker);
  };
  hooks.compare = [this, &sink](const PublisherStatus& status) {
    return muted_ ? DigestVerdict::kUnknown : sink.compare(config_.worker, status);
  };
  if (!sink.differing_buckets || !sink.begin_repair) return;
  hooks.differing_buckets = [this, &sink](const PublisherStatus& status) {
    return muted_ ? 0 : sink.differing_buckets(config_.worker, status);
  };
  hooks.begin_repair = [this, &sink](uint64_t buckets) {
    if (!muted_) sink.begin_repair(config_.worker, buckets);
  };
}

void SourceLink::Work(int64_t now_ms) {
  ready_ = false;
  // A clock that was set back is no reason to wait.
  const bool renewal_due = now_ms >= renew_due_ms_ || now_ms < renewed_ms_;
  if (renewal_scheduled() && renewal_due) RenewLive(now_ms);
  if (std::exchange(connected_at_once_, false)) source_.OnConnected(now_ms);
  if (!renewal_scheduled()) DrainMonitor(now_ms);
  if (!renewal_scheduled()) DrainLive(now_ms);
  if (!renewal_scheduled()) DrainReplay(now_ms);
  if (has_new_turn()) {
    waits_ = false;
    source_.OnTurn(now_ms);
  }
  source_.OnTimer(now_ms);
}

// Called between receiving a message and handling it, so that an event is known before any message
// that came after it.
void SourceLink::DrainMonitor(int64_t now_ms) {
  while (const std::optional<int> event = ReceiveMonitorEvent(monitor_)) {
    if ((*event & kFailedHandshakes) != 0) stranger_ = config_.bind;
    if (*event == ZMQ_EVENT_DISCONNECTED && !std::exchange(stranger_, false)) {
      peer_ = false;
      disconnected_ = true;
      source_.OnDisconnected();
    }
    if (*event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      // The socket has reconnected by itself, or a second publisher has come: the queue may hold
      // messages of both connections.
      if (config_.bind && std::exchange(peer_, true)) {
        disconnected_ = true;
        source_.OnDisconnected();
      }
      if (disconnected_) return ScheduleRenewal();
      source_.OnConnected(now_ms);
    }
  }
}

void SourceLink::DrainLive(int64_t now_ms) {
  for (int i = 0; i < kMessagesPerTurn && !muted_; ++i) {
    if (config_.bind && renewal_scheduled()) return;
    if (sub_.Receive(message_) == RecvResult::kNone) {
      if (disconnected_) ScheduleRenewal();
      return;
    }
    DrainMonitor(now_ms);
    if (renewal_scheduled()) return;
    if (const std::optional<Batch> batch = ParseLive(message_.frames())) {
      source_.OnLive(*batch, now_ms);
    } else {
      source_.OnBadMessage();
    }
  }
  ready_ = true;
}

void SourceLink::DrainReplay(int64_t now_ms) {
  for (int i = 0; i < kMessagesPerTurn && !muted_ && replay_.is_open(); ++i) {
    const uint64_t request = requests_;
    if (replay_.Receive(message_) == RecvResult::kNone) return DrainReplayMonitor(now_ms);
    DrainMonitor(now_ms);
    if (requests_ != request) return;  // the reply is to a request that was replaced
    source_.OnReply(ParseReply(message_.frames()), now_ms);
  }
  if (replay_.is_open()) ready_ = true;
}

// A socket whose connection ended because of what it brought does not connect again; and a request
// that was on its way is lost in any case.
void SourceLink::DrainReplayMonitor(int64_t now_ms) {
  while (ReceiveMonitorEvent(replay_monitor_)) source_.OnReplyCut(now_ms);
}

void SourceLink::CloseReplay() {
  replay_watches_ = {};
  replay_.Close();
  replay_monitor_.Close();
}

// If the socket cannot be had, the request times out and is tried again.
void SourceLink::Request(Frame start) {
  ++requests_;
  CloseReplay();
  Result<Socket> dealer = MakeReplaySocket(context_, config_.replay_endpoint, max_frame_bytes_);
  if (!dealer.ok()) return;
  Result<Socket> monitor = dealer->Monitor(ZMQ_EVENT_DISCONNECTED);
  if (!monitor.ok() || !dealer->Connect(config_.replay_endpoint).ok()) return;
  auto watches = WatchBoth(*dealer, *monitor);
  if (!watches.ok()) return dealer->Close();  // before its monitor
  replay_watches_ = std::move(watches).value();
  replay_ = std::move(dealer).value();
  replay_monitor_ = std::move(monitor).value();
  replay_.Send({}, /*more=*/true);
  replay_.Send(start, /*more=*/false);
  ready_ = true;
}

}  // namespace kvcast::stream
