// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/source_link.h"

#include <atomic>
#include <random>
#include <utility>

#include "kvcast/stream/endpoint.h"
#include "src/base/clock.h"

namespace kvcast::stream {
namespace {

constexpr int kConnectEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_ACCEPTED;
constexpr int kLinkEvents = kConnectEvents | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                            ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                            ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

// If a connection is not established within this time, the host name is looked up again.
constexpr int64_t kLookAgainMs = 5000;

// Sources of this process and of other processes get different seeds.
uint64_t NextJitterSeed() {
  static std::atomic<uint64_t> next{std::random_device()()};
  return (next++ + 1) * 0x9E3779B97F4A7C15;
}

SourceLimits LimitsOf(const SubscriberConfig& config, bool takes_snapshots) {
  return {config.hold_back_batches, config.hold_back_bytes, config.replay_timeout_ms,
          config.probe_interval_ms, config.stale_ms,        config.audit_interval_ms,
          takes_snapshots,          NextJitterSeed()};
}

SourceSocketOptions SocketsOf(const SourceConfig& source, const SubscriberConfig& config) {
  SourceSocketOptions options{.topic = source.topic,
                              .recv_hwm = config.recv_hwm,
                              .max_frame_bytes = config.max_frame_bytes,
                              .curve = std::nullopt};
  if (!source.server_key.empty() && config.curve_keys) {
    options.curve = CurveClient{*config.curve_keys, source.server_key};
  }
  return options;
}

}  // namespace

SourceLink::SourceLink(const SourceConfig& source, const SubscriberConfig& config,
                       SourceContexts contexts, const Poller& poller,
                       std::shared_ptr<ReplicaSink> sink, RequestTurns& turns,
                       NameResolver& resolver)
    : config_(source),
      sockets_(SocketsOf(source, config)),
      contexts_(std::move(contexts)),
      poller_(poller),
      resolver_(resolver),
      sink_(std::move(sink)),
      live_address_(source.bind ? std::string() : source.endpoint),
      replay_address_(source.replay_endpoint),
      live_message_(EndlessMessage::LimitFor(config.max_frame_bytes)),
      reply_message_(EndlessMessage::LimitFor(config.max_frame_bytes)),
      pump_({.limits = LimitsOf(config, sink_->TakesSnapshots()),
             .can_replay = !source.replay_endpoint.empty(),
             .bound = source.bind,
             .resolves = has_names(),
             .turn = {.now_us = ThreadCpuUs}},
            *this, turns, *sink_) {
  if (source.resume) pump_.Resume(*source.resume);
}

Result<std::unique_ptr<SourceLink>> SourceLink::Open(const SourceConfig& source,
                                                     const SubscriberConfig& config,
                                                     SourceContexts contexts, const Poller& poller,
                                                     std::shared_ptr<ReplicaSink> sink,
                                                     RequestTurns& turns, NameResolver& resolver) {
  std::unique_ptr<SourceLink> link(new SourceLink(source, config, std::move(contexts), poller,
                                                  std::move(sink), turns, resolver));
  if (Status status = link->CheckKeys(); !status.ok()) return status;
  if (Status status = link->CheckLiveEndpoint(); !status.ok()) return status;
  if (Status status = link->CheckReplayEndpoint(); !status.ok()) return status;
  if (!link->has_addresses()) return link;
  if (Status status = link->ConnectLive(); !status.ok()) return status;
  return link;
}

Status SourceLink::CheckKeys() const {
  if (config_.server_key.empty()) return Status();
  if (Status status = CheckCurveKey(config_.server_key); !status.ok()) {
    return {StatusCode::kInvalidArgument, "server_key: " + status.message()};
  }
  if (sockets_.curve) return CheckCurveKey(sockets_.curve->keys.secret_key);
  return {StatusCode::kInvalidArgument, "server_key is set, but the subscriber has no curve_keys"};
}

// Publishers bind ipc and inproc endpoints themselves, so only tcp endpoints can be bound here. The
// port must be fixed, because no publisher can find a port that the system chooses.
Status SourceLink::CheckLiveEndpoint() const {
  const std::string& endpoint = config_.endpoint;
  if (!config_.bind) return ParseEndpoint(endpoint).status();
  const auto error = [&endpoint](const char* what) {
    return Status(StatusCode::kInvalidArgument, "cannot bind " + endpoint + ": " + what);
  };
  if (!endpoint.starts_with("tcp://")) return error("bind needs a tcp endpoint");
  if (endpoint.ends_with(":*") || endpoint.ends_with(":0")) return error("bind needs a fixed port");
  return Status();
}

Status SourceLink::CheckReplayEndpoint() const {
  if (config_.replay_endpoint.empty()) return Status();
  return ParseEndpoint(config_.replay_endpoint).status();
}

bool SourceLink::OpenLive() {
  live_address_.Advance(resolver_, now_ms_);
  replay_address_.Advance(resolver_, now_ms_);
  if (!has_addresses() || !ConnectLive().ok()) return false;
  look_again_due_ms_ = now_ms_ + kLookAgainMs;
  return true;
}

void SourceLink::Work(int64_t now_ms, bool takes_large) {
  ready_ = false;
  now_ms_ = now_ms;
  if (looks_again() && now_ms >= look_again_due_ms_) pump_.ScheduleRenewal();
  pump_.Work(now_ms, takes_large);
}

// Replaces the live connection and its queued messages. On failure the old connection stays, unless
// it is closed already.
Status SourceLink::ConnectLive() {
  const std::string& endpoint = config_.bind ? config_.endpoint : live_address_.text();
  Result<Socket> sub = MakeLiveSocket(contexts_.live, endpoint, sockets_);
  if (!sub.ok()) return sub.status();
  Result<Socket> monitor = sub->Monitor(kLinkEvents);
  if (!monitor.ok()) return monitor.status();
  Status made = config_.bind ? sub->Bind(endpoint) : sub->Connect(endpoint);
  if (!made.ok()) {
    sub->Close();  // must be closed before its monitor
    return made;
  }
  if (started_) {
    auto watches = WatchBoth(*sub, *monitor);
    if (!watches.ok()) {
      sub->Close();  // must be closed before its monitor
      return watches.status();
    }
    live_watches_ = std::move(watches).value();
  }
  sub_ = std::move(sub).value();
  monitor_ = std::move(monitor).value();
  live_message_.Clear();
  ready_ = true;
  connected_ = false;
  connected_at_once_ = config_.endpoint.starts_with("inproc://");
  return Status();
}

void SourceLink::Start() {
  started_ = true;
  ready_ = true;
  if (!sub_.is_open()) return pump_.ScheduleRenewal();
  auto watches = WatchBoth(sub_, monitor_);
  if (watches.ok()) {
    live_watches_ = std::move(watches).value();
  } else {
    pump_.ScheduleRenewal();
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

// Messages that still arrive stay in the queue until the socket is closed. They must not wake the
// thread.
void SourceLink::EndLive() {
  live_watches_ = {};
  live_address_.Forget();
  replay_address_.Forget();
  if (config_.bind) sub_.Close();
}

std::optional<LiveEvent> SourceLink::NextLiveEvent() {
  if (std::exchange(connected_at_once_, false)) return LiveEvent::kConnected;
  std::optional<MonitorEvent> event = ReceiveMonitorEvent(monitor_);
  for (; event && (event->event & kConnectEvents) != 0; event = ReceiveMonitorEvent(monitor_)) {
    live_message_.Connect(static_cast<int>(event->value), now_ms_);
  }
  if (!event) return std::nullopt;
  connected_ = event->event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
  if (connected_) return LiveEvent::kConnected;
  if (event->event == ZMQ_EVENT_DISCONNECTED) {
    live_message_.Disconnect(static_cast<int>(event->value));
    return LiveEvent::kDisconnected;
  }
  ++failed_handshakes_;
  return LiveEvent::kHandshakeFailed;
}

std::optional<Frames> SourceLink::Receive(Socket& socket, EndlessMessage& endless) {
  if (!socket.is_open()) return std::nullopt;
  if (socket.Receive(message_) == RecvResult::kNone) {
    endless.NoteEmpty();
    return std::nullopt;
  }
  // libzmq looks the descriptor up by name, which takes time. A connected socket has only one peer.
  endless.NoteMessage(config_.bind ? message_.connection() : EndlessMessage::kUnknown);
  return message_.frames();
}

void SourceLink::CheckPeers(int64_t now_ms) {
  using Verdict = EndlessMessage::Verdict;
  const Verdict live = live_message_.Check(now_ms);
  const Verdict reply = reply_message_.Check(now_ms);
  if (live == Verdict::kLook || reply == Verdict::kLook) ready_ = true;
  if (live == Verdict::kEndless) {
    live_message_.Clear();
    pump_.OnEndlessMessage();
    sub_.Close();  // frees the message, even if no new connection can be made
  }
  if (reply == Verdict::kEndless) {
    CloseReplySocket();
    ready_ = true;  // so that the next Work calls TakeReplyCut
  }
}

// If the connection ends, the open request is lost, even if the socket reconnects. A socket does
// not reconnect if a received frame ended its connection.
bool SourceLink::TakeReplyCut() {
  if (!replay_monitor_.is_open()) return false;
  bool cut = !replay_.is_open();
  while (const auto event = ReceiveMonitorEvent(replay_monitor_)) {
    if (event->event == ZMQ_EVENT_CONNECTED) {
      reply_message_.Connect(static_cast<int>(event->value), now_ms_);
    } else {
      cut = true;
    }
  }
  if (!replay_.is_open()) replay_monitor_.Close();
  return cut;
}

void SourceLink::CloseRequest() {
  CloseReplySocket();
  replay_monitor_.Close();
}

// An open monitor without its socket shows TakeReplyCut that the request is cut.
void SourceLink::CloseReplySocket() {
  replay_watches_ = {};
  reply_message_.Clear();
  replay_.Close();
}

// If no socket can be created, the request times out and is made again.
void SourceLink::OpenRequest(Frame start) {
  CloseRequest();
  const std::string& endpoint = replay_address_.text();
  if (endpoint.empty()) return;
  const bool inproc = endpoint.starts_with("inproc://");
  Result<Socket> dealer =
      MakeReplaySocket(inproc ? contexts_.live : contexts_.requests, endpoint, sockets_);
  if (!dealer.ok()) return;
  Result<Socket> monitor = dealer->Monitor(ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED);
  if (!monitor.ok()) return;
  // The socket must be closed before its monitor.
  if (!dealer->Connect(endpoint).ok()) return dealer->Close();
  auto watches = WatchBoth(*dealer, *monitor);
  if (!watches.ok()) return dealer->Close();
  replay_watches_ = std::move(watches).value();
  replay_ = std::move(dealer).value();
  replay_monitor_ = std::move(monitor).value();
  replay_.Send({}, /*more=*/true);
  replay_.Send(start, /*more=*/false);
  ready_ = true;
}

}  // namespace kvcast::stream
