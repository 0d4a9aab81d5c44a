// SPDX-License-Identifier: Apache-2.0
#include "src/stream/source_link.h"

#include <utility>

namespace kvcast::stream {
namespace {

// Messages handled before another source has its turn.
constexpr int kMessagesPerTurn = 256;
// Finds a peer that is gone without closing its connection.
constexpr int kHeartbeatMs = 1000;
constexpr int kHeartbeatTimeoutMs = 3000;

SourceLimits LimitsOf(const SubscriberConfig& config) {
  return {config.hold_back_batches, config.hold_back_bytes, config.replay_timeout_ms,
          config.probe_interval_ms};
}

void AllowIpv6(Socket& socket, const std::string& endpoint) {
  if (endpoint.find('[') != std::string::npos) socket.SetOption(ZMQ_IPV6, 1);
}

Result<Socket> OpenSub(const SourceConfig& source, const SubscriberConfig& config,
                       std::shared_ptr<Context> context) {
  Result<Socket> sub = Socket::Create(std::move(context), ZMQ_SUB);
  if (!sub.ok()) return sub;
  sub->SetOption(ZMQ_LINGER, 0);
  sub->SetOption(ZMQ_RCVHWM, config.recv_hwm);
  sub->SetOption(ZMQ_HEARTBEAT_IVL, kHeartbeatMs);
  sub->SetOption(ZMQ_HEARTBEAT_TIMEOUT, kHeartbeatTimeoutMs);
  AllowIpv6(*sub, source.endpoint);
  sub->Subscribe(source.topic);
  return sub;
}

}  // namespace

SourceLink::SourceLink(const SourceConfig& source, const SubscriberConfig& config,
                       std::shared_ptr<Context> context, const SubscriberSink& sink)
    : worker_(source.worker),
      replay_endpoint_(source.replay_endpoint),
      context_(std::move(context)),
      source_(LimitsOf(config), !source.replay_endpoint.empty(), Hooks(sink)) {}

Result<std::unique_ptr<SourceLink>> SourceLink::Open(const SourceConfig& source,
                                                     const SubscriberConfig& config,
                                                     std::shared_ptr<Context> context,
                                                     const SubscriberSink& sink) {
  std::unique_ptr<SourceLink> link(new SourceLink(source, config, std::move(context), sink));
  if (Status status = link->Connect(source, config); !status.ok()) return status;
  return link;
}

Status SourceLink::Connect(const SourceConfig& source, const SubscriberConfig& config) {
  if (!replay_endpoint_.empty()) {
    // Tried once here, so that a bad endpoint is an error now and not a timeout later.
    Result<Socket> trial = Socket::Create(context_, ZMQ_DEALER);
    if (!trial.ok()) return trial.status();
    trial->SetOption(ZMQ_LINGER, 0);
    if (Status status = trial->Connect(replay_endpoint_); !status.ok()) return status;
  }
  Result<Socket> sub = OpenSub(source, config, context_);
  if (!sub.ok()) return sub.status();
  sub_ = std::move(sub).value();
  connected_at_once_ = source.endpoint.starts_with("inproc://");
  Result<Socket> monitor = sub_.Monitor(ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED);
  if (!monitor.ok()) return monitor.status();
  monitor_ = std::move(monitor).value();
  return sub_.Connect(source.endpoint);
}

SourceHooks SourceLink::Hooks(const SubscriberSink& sink) {
  SourceHooks hooks;
  hooks.apply = [this, &sink](const Batch& batch) {
    if (!muted_ && sink.on_batch) sink.on_batch(worker_, Seq(batch.seq), batch.payload);
  };
  hooks.reset = [this, &sink](ResetReason reason) {
    if (!muted_ && sink.on_reset) sink.on_reset(worker_, reason);
  };
  hooks.request_replay = [this](uint64_t start) { RequestReplay(start); };
  hooks.close_replay = [this] { replay_.Close(); };
  return hooks;
}

void SourceLink::AddPollItems(std::vector<zmq_pollitem_t>& items) const {
  for (const Socket* socket : {&sub_, &monitor_, &replay_}) {
    if (socket->is_open()) items.push_back({socket->get(), 0, ZMQ_POLLIN, 0});
  }
}

void SourceLink::Work(int64_t now_ms) {
  if (std::exchange(connected_at_once_, false)) source_.OnConnected(now_ms);
  DrainMonitor(now_ms);
  DrainLive(now_ms);
  DrainReplay(now_ms);
  source_.OnTimer(now_ms);
}

void SourceLink::DrainMonitor(int64_t now_ms) {
  while (const std::optional<int> event = ReceiveMonitorEvent(monitor_)) {
    if (*event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) source_.OnConnected(now_ms);
    if (*event == ZMQ_EVENT_DISCONNECTED) source_.OnDisconnected();
  }
}

void SourceLink::DrainLive(int64_t now_ms) {
  for (int i = 0; i < kMessagesPerTurn && !muted_; ++i) {
    if (sub_.Receive(message_) == RecvResult::kNone) return;
    // A reconnect is reported before the first message of the new connection can be read.
    DrainMonitor(now_ms);
    if (const std::optional<Batch> batch = ParseLive(message_.frames())) {
      source_.OnLive(*batch, now_ms);
    } else {
      source_.OnBadMessage();
    }
  }
}

void SourceLink::DrainReplay(int64_t now_ms) {
  for (int i = 0; i < kMessagesPerTurn && !muted_ && replay_.is_open(); ++i) {
    if (replay_.Receive(message_) == RecvResult::kNone) return;
    source_.OnReply(ParseReply(message_.frames()), now_ms);
  }
}

// If the socket cannot be had, the request times out and is tried again.
void SourceLink::RequestReplay(uint64_t start) {
  replay_.Close();
  Result<Socket> dealer = Socket::Create(context_, ZMQ_DEALER);
  if (!dealer.ok()) return;
  dealer->SetOption(ZMQ_LINGER, 0);
  AllowIpv6(*dealer, replay_endpoint_);
  if (!dealer->Connect(replay_endpoint_).ok()) return;
  replay_ = std::move(dealer).value();
  replay_.Send({}, /*more=*/true);
  replay_.Send(EncodeSeq(start), /*more=*/false);
}

}  // namespace kvcast::stream
