// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/source_link.h"

#include <atomic>
#include <random>
#include <utility>

#include "src/base/clock.h"
#include "src/stream/follow/source_sockets.h"

namespace kvcast::stream {
namespace {

constexpr int kLinkEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;
constexpr int kFailedHandshakes = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                  ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                  ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

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

}  // namespace

SourceLink::SourceLink(const SourceConfig& source, const SubscriberConfig& config,
                       std::shared_ptr<Context> context, const Poller& poller,
                       std::shared_ptr<ReplicaSink> sink, FairPermits& turns)
    : config_(source),
      recv_hwm_(config.recv_hwm),
      max_frame_bytes_(config.max_frame_bytes),
      context_(std::move(context)),
      poller_(poller),
      sink_(std::move(sink)),
      pump_({.limits = LimitsOf(config, sink_->TakesSnapshots()),
             .can_replay = !source.replay_endpoint.empty(),
             .bound = source.bind,
             .turn = {.now_us = ThreadCpuUs}},
            *this, turns, *sink_) {}

Result<std::unique_ptr<SourceLink>> SourceLink::Open(
    const SourceConfig& source, const SubscriberConfig& config, std::shared_ptr<Context> context,
    const Poller& poller, std::shared_ptr<ReplicaSink> sink, FairPermits& turns) {
  std::unique_ptr<SourceLink> link(
      new SourceLink(source, config, std::move(context), poller, std::move(sink), turns));
  if (Status status = link->CheckLiveEndpoint(); !status.ok()) return status;
  if (Status status = link->CheckReplayEndpoint(); !status.ok()) return status;
  if (Status status = link->ConnectLive(); !status.ok()) return status;
  return link;
}

// Publishers bind ipc and inproc endpoints themselves. No publisher would know a port that the
// system chooses.
Status SourceLink::CheckLiveEndpoint() const {
  if (!config_.bind) return Status();
  const std::string& endpoint = config_.endpoint;
  const auto error = [&endpoint](const char* what) {
    return Status(StatusCode::kInvalidArgument, "cannot bind " + endpoint + ": " + what);
  };
  if (!endpoint.starts_with("tcp://")) return error("bind needs a tcp endpoint");
  if (endpoint.ends_with(":*") || endpoint.ends_with(":0")) return error("bind needs a fixed port");
  return Status();
}

// Connects once at the start. A bad endpoint is then an error of Open, not a later timeout.
Status SourceLink::CheckReplayEndpoint() const {
  if (config_.replay_endpoint.empty()) return Status();
  Result<Socket> trial = MakeReplaySocket(context_, config_.replay_endpoint, max_frame_bytes_);
  if (!trial.ok()) return trial.status();
  return trial->Connect(config_.replay_endpoint);
}

// Replaces the live connection and its queued messages. On failure the old connection stays, unless
// it is closed already.
Status SourceLink::ConnectLive() {
  Result<Socket> sub = MakeLiveSocket(
      context_, config_.endpoint,
      {.topic = config_.topic, .recv_hwm = recv_hwm_, .max_frame_bytes = max_frame_bytes_});
  if (!sub.ok()) return sub.status();
  Result<Socket> monitor = sub->Monitor(kLinkEvents | (config_.bind ? kFailedHandshakes : 0));
  if (!monitor.ok()) return monitor.status();
  Status made = config_.bind ? sub->Bind(config_.endpoint) : sub->Connect(config_.endpoint);
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
  ready_ = true;
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
  if (config_.bind) sub_.Close();
}

std::optional<LiveEvent> SourceLink::NextLiveEvent() {
  if (std::exchange(connected_at_once_, false)) return LiveEvent::kConnected;
  const std::optional<int> event = ReceiveMonitorEvent(monitor_);
  if (!event) return std::nullopt;
  if (*event == ZMQ_EVENT_DISCONNECTED) return LiveEvent::kDisconnected;
  if (*event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return LiveEvent::kConnected;
  return LiveEvent::kHandshakeFailed;
}

std::optional<Frames> SourceLink::Receive(Socket& socket) {
  if (!socket.is_open() || socket.Receive(message_) == RecvResult::kNone) return std::nullopt;
  return message_.frames();
}

// If the connection ends, the open request is lost, even if the socket reconnects. A socket does
// not reconnect if a received frame ended its connection.
bool SourceLink::TakeReplyCut() {
  bool cut = false;
  while (replay_monitor_.is_open() && ReceiveMonitorEvent(replay_monitor_)) cut = true;
  return cut;
}

void SourceLink::CloseRequest() {
  replay_watches_ = {};
  replay_.Close();
  replay_monitor_.Close();
}

// If no socket can be created, the request times out and is made again.
void SourceLink::OpenRequest(Frame start) {
  CloseRequest();
  Result<Socket> dealer = MakeReplaySocket(context_, config_.replay_endpoint, max_frame_bytes_);
  if (!dealer.ok()) return;
  Result<Socket> monitor = dealer->Monitor(ZMQ_EVENT_DISCONNECTED);
  if (!monitor.ok() || !dealer->Connect(config_.replay_endpoint).ok()) return;
  auto watches = WatchBoth(*dealer, *monitor);
  if (!watches.ok()) return dealer->Close();  // must be closed before its monitor
  replay_watches_ = std::move(watches).value();
  replay_ = std::move(dealer).value();
  replay_monitor_ = std::move(monitor).value();
  replay_.Send({}, /*more=*/true);
  replay_.Send(start, /*more=*/false);
  ready_ = true;
}

}  // namespace kvcast::stream
