// SPDX-License-Identifier: Apache-2.0
#include "router/service/load/peer_link.h"

#include <string>
#include <utility>

#include "router/service/load/load_gauge.h"
#include "src/stream/follow/source_sockets.h"

namespace kvcast::router {
namespace {

// Maximum number of received messages that wait. Each message has the whole load of the peer, so a
// long queue is useless.
constexpr int kWaitingGauges = 16;
constexpr int64_t kRetryMs = 1000;
static_assert(PeerLink::kReopenMs > kMaxLoadPeriodMs);

}  // namespace

PeerLink::PeerLink(const LoadPeer& peer, const std::optional<CurveKeyPair>& keys,
                   std::shared_ptr<stream::Context> context, const stream::Poller& poller,
                   std::atomic<bool>* ready)
    : context_(std::move(context)),
      poller_(poller),
      ready_(ready),
      address_(peer.endpoint),
      endless_(stream::EndlessMessage::LimitFor(kMaxGaugeBytes)) {
  if (!peer.server_key.empty() && keys) curve_ = CurveClient{*keys, peer.server_key};
}

Status PeerLink::Open(int64_t now_ms) {
  stream::Socket monitor;  // declared first: must be closed after its socket
  auto sub = stream::MakeLiveSocket(context_, address_.text(),
                                    {.topic = "",
                                     .recv_hwm = kWaitingGauges,
                                     .max_frame_bytes = kMaxGaugeBytes,
                                     .curve = curve_});
  if (!sub.ok()) return sub.status();
  auto events = sub->Monitor(ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED);
  if (!events.ok()) return events.status();
  monitor = std::move(events).value();
  if (Status status = sub->Connect(address_.text()); !status.ok()) return status;
  auto watch = poller_.Add(*sub, ready_);
  if (!watch.ok()) return watch.status();
  monitor_ = std::move(monitor);
  sub_ = std::move(sub).value();
  watch_ = std::move(watch).value();
  heard_ms_ = now_ms;
  *ready_ = true;
  return Status();
}

void PeerLink::Close() {
  watch_ = {};
  sub_.Close();
  monitor_.Close();
  endless_.Clear();
  address_.Forget();
}

void PeerLink::CheckPeer(int64_t now_ms) {
  using Verdict = stream::EndlessMessage::Verdict;
  while (const auto event = ReceiveMonitorEvent(monitor_)) {
    const auto descriptor = static_cast<int>(event->value);
    if (event->event == ZMQ_EVENT_CONNECTED) {
      endless_.Connect(descriptor, now_ms);
    } else {
      endless_.Disconnect(descriptor);
    }
  }
  if (now_ms - checked_at_ms_ < stream::EndlessMessage::kCheckMs && now_ms >= checked_at_ms_)
    return;
  checked_at_ms_ = now_ms;
  const Verdict verdict = endless_.Check(now_ms);
  if (verdict == Verdict::kLook) *ready_ = true;
  if (verdict != Verdict::kEndless) return;
  Close();
  retry_at_ms_ = now_ms + kRetryMs;
}

void PeerLink::Advance(stream::NameResolver& resolver, int64_t now_ms) {
  if (sub_.is_open()) CheckPeer(now_ms);
  if (sub_.is_open() && now_ms - heard_ms_ >= kReopenMs) Close();
  if (sub_.is_open() || now_ms < retry_at_ms_) return;
  address_.Advance(resolver, now_ms);
  if (!address_.is_known()) return;
  if (Open(now_ms).ok()) return;
  address_.Forget();
  retry_at_ms_ = now_ms + kRetryMs;
}

std::optional<stream::Frames> PeerLink::Receive(int64_t now_ms) {
  if (!sub_.is_open()) return std::nullopt;
  if (sub_.Receive(message_) == stream::RecvResult::kNone) {
    endless_.NoteEmpty();
    return std::nullopt;
  }
  endless_.NoteMessage(message_.connection());
  heard_ms_ = now_ms;
  return message_.frames();
}

}  // namespace kvcast::router
