// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/stream_sim/link.h"

namespace kvcast::sim {
namespace {

// A connection ends after this time of silence.
constexpr int64_t kHeartbeatTimeoutMs = 3000;

}  // namespace

bool Link::OpenLive() {
  if (agenda_.now_ms() < connection_.endpoint_free_ms || (in_trouble() && random_.Percent(8))) {
    ++record_.reached["live connections that could not be made"];
    return false;
  }
  live_.Clear();
  connection_.watched = true;
  Connect();
  return true;
}

void Link::EndLive() {
  connection_.watched = false;
  given_.reset();
  if (!connection_.bound) return;
  ++connection_.number;
  connection_.subscribed = connection_.established = false;
  if (in_trouble()) connection_.endpoint_free_ms = agenda_.now_ms() + random_.Roll(150);
}

void Link::Connect() {
  ++connection_.number;
  connection_.subscribed = connection_.established = false;
  connection_.last_arrival_ms = 0;
  agenda_.At(agenda_.now_ms() + random_.Between(1, 20),
             [this, connection = connection_.number] { TryConnect(connection); });
}

void Link::TryConnect(uint64_t connection) {
  if (connection != connection_.number) return;
  const int64_t now = agenda_.now_ms();
  if (now < faults_.until_ms(FaultKind::kPartition) || now < publisher_up_ms_ ||
      publisher_paused()) {
    agenda_.At(now + random_.Between(20, 100), [this, connection] { TryConnect(connection); });
    return;
  }
  // The subscription may arrive a little later than the handshake.
  agenda_.At(now + random_.Between(0, 6), [this, connection] {
    if (connection == connection_.number) connection_.subscribed = true;
  });
  agenda_.At(now + 1, [this, connection] { Establish(connection); });
  if (!connection_.bound || !random_.Percent(30)) return;
  agenda_.At(now + random_.Roll(3000), [this, connection] { VisitByStranger(connection); });
}

void Link::Establish(uint64_t connection) {
  if (connection != connection_.number) return;
  connection_.established = true;
  live_.Push(stream::LiveEvent::kConnected);
  Wake();
}

// A peer that is not a publisher connects to a bound endpoint.
void Link::VisitByStranger(uint64_t connection) {
  if (connection != connection_.number) return;
  ++record_.reached["peers at a bound endpoint that are not publishers"];
  live_.Push(stream::LiveEvent::kHandshakeFailed);
  live_.Push(stream::LiveEvent::kDisconnected);
  Wake();
}

// Both ends lose the connection. Then it is established again.
void Link::Break() {
  if (connection_.bound && !connection_.watched) return;
  if (connection_.established) {
    live_.Push(stream::LiveEvent::kDisconnected);
    Wake();
  }
  Connect();
}

void Link::BreakIfSilentFor(int64_t duration_ms) {
  if (duration_ms <= kHeartbeatTimeoutMs) return;
  agenda_.At(agenda_.now_ms() + kHeartbeatTimeoutMs, [this, connection = connection_.number] {
    if (connection == connection_.number) Break();
  });
}

void Link::SendUnsent() {
  for (const RingEntry& entry : publisher_.TakeUnsent()) SendLive(entry);
}

void Link::SendLive(const RingEntry& entry) {
  if (!connection_.subscribed || Occurs(FaultKind::kDropLive)) return;
  if (oversize_.contains({publisher_.life(), entry.seq})) {
    agenda_.At(AfterPartition(agenda_.now_ms() + Latency()),
               [this, connection = connection_.number] {
                 if (connection == connection_.number) Break();
               });
    return;
  }
  RingEntry message = entry;
  // If a relay follows the publisher, no batch is truncated: a relay publishes even a batch that it
  // cannot decode, and its source would stay synced with a state that lacks the batch.
  if (!relay_ && Occurs(FaultKind::kTruncateLive) && entry.payload->size() > 2) {
    const auto cut = static_cast<std::ptrdiff_t>(
        1 + random_.Roll(static_cast<int64_t>(entry.payload->size()) - 1));
    message.payload = std::make_shared<const std::vector<uint8_t>>(entry.payload->begin(),
                                                                   entry.payload->begin() + cut);
    ++record_.reached["truncated batches"];
  }
  const int64_t delay = faults_.Amount(FaultKind::kDelayLive) > 0
                            ? random_.Roll(faults_.Amount(FaultKind::kDelayLive))
                            : 0;
  int64_t arrival = AfterPartition(agenda_.now_ms() + Latency() + delay);
  if (Occurs(FaultKind::kReorderLive)) {
    arrival += random_.Between(5, 100);
    ++record_.reached["reordered batches"];
  } else {
    arrival = connection_.last_arrival_ms = std::max(arrival, connection_.last_arrival_ms);
  }
  const auto arrive = [this, connection = connection_.number, message] {
    Arrive(connection, message);
  };
  if (Occurs(FaultKind::kDuplicateLive)) agenda_.At(arrival + random_.Roll(50), arrive);
  agenda_.At(arrival, arrive);
}

void Link::Arrive(uint64_t connection, const RingEntry& message) {
  if (connection != connection_.number) return;
  live_.Push(message);
  Wake();
}

std::optional<stream::LiveEvent> Link::NextLiveEvent() {
  follower_.Check(follower_ms());
  const std::optional<stream::LiveEvent> event = live_.NextEvent();
  if (event == stream::LiveEvent::kConnected) {
    follower_.NoteConnected();
    follower_.NoteHeard(follower_ms());
  }
  return event;
}

std::optional<stream::Frames> Link::ReceiveLive() {
  CheckPump();
  std::optional<RingEntry> message = live_.NextMessage();
  if (!message) return std::nullopt;
  ++record_.events;
  received_.entry = *std::move(message);
  received_.seq = stream::EncodeSeq(received_.entry.seq);
  received_.frames = {Frame{}, Frame(received_.seq), Frame(*received_.entry.payload), Frame{}};
  given_ = received_.entry.seq;
  follower_.NoteLive();
  follower_.NoteHeard(follower_ms());
  return stream::Frames(received_.frames).first(3);
}

}  // namespace kvcast::sim
