// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/relay_link.h"

#include <algorithm>

namespace kvcast::sim {
namespace {

constexpr int64_t kRelayTickMs = 200;

stream::SourceLimits DrawLimits(Random& random) {
  stream::SourceLimits limits;
  limits.extension = random.Percent(85);
  limits.replay_timeout_ms = random.Between(300, 2000);
  if (random.Percent(30)) limits.audit_interval_ms = random.Between(500, 5000);
  limits.jitter_seed = random.Next();
  return limits;
}

}  // namespace

RelayLink::RelayLink(uint64_t seed, Agenda& agenda, Follower& follower,
                     const SimPublisher& publisher, ActiveFaults& faults, Record& record)
    : agenda_(agenda),
      faults_(faults),
      record_(record),
      random_(seed),
      pump_config_{.limits = DrawLimits(random_), .can_replay = true},
      relay_(
          random_.Next(), agenda, follower, *this, [this] { BeginEpoch(); }, record),
      router_(pump_config_.limits, publisher, relay_, record),
      turns_{.short_answers = stream::FairPermits(1), .long_answers = stream::FairPermits(1)},
      live_(random_) {
  OpenLive();
  MakePump();
  agenda_.At(random_.Roll(kRelayTickMs), [this] { TickRelay(); });
  Wake();
}

void RelayLink::MakePump() {
  stream::SourceTransport& transport = *this;
  pump_.emplace(pump_config_, transport, turns_, router_);
}

void RelayLink::TickRelay() {
  if (!paused()) {
    relay_.Tick();
    SendUnsent();
  }
  agenda_.At(agenda_.now_ms() + kRelayTickMs, [this] { TickRelay(); });
}

void RelayLink::NoteState(SourceState state) {
  relay_.NoteState(state);
  SendUnsent();
}

void RelayLink::Disturb() {
  const int64_t now = agenda_.now_ms();
  const int64_t roll = random_.Roll(100);
  if (roll < 25) {
    Break();
  } else if (roll < 40) {
    RestartRouter();
  } else if (roll < 60) {
    drops_until_ms_ = now + random_.Between(1, 2000);
    faults_.NoteTrouble(drops_until_ms_);
  }
}

void RelayLink::RestartRelay() {
  relay_.Restart();
  BeginEpoch();
  ++record_.reached["restarts of relays"];
}

void RelayLink::RestartRouter() {
  pump_.reset();
  EndLive();
  CloseRequest();
  router_.Restart(agenda_.now_ms());
  OpenLive();
  MakePump();
  timer_due_ms_ = stream::kNever;
  ++record_.reached["restarts behind a relay"];
  Wake();
}

// The publisher of the previous epoch has closed its endpoints.
void RelayLink::BeginEpoch() {
  relay_up_ms_ = agenda_.now_ms() + random_.Between(1, 100);
  if (request_.open && random_.Percent(50)) {
    request_.reply_cut = true;
    Wake();
  }
  Break();
}

void RelayLink::Tick() {
  const int64_t now = agenda_.now_ms();
  router_.Check(pump_->source(), now);
  const RelayRecord& published = relay_.record();
  heads_.push_back({now, published.epoch(), published.At(published.epoch(), published.next_seq())});
  if (now - heads_.front().ms < kDetectionMs) return;
  const Head then = heads_.front();
  heads_.pop_front();
  if (faults_.trouble_until_ms() > then.ms) return;
  router_.CheckDetected(pump_->source(), now, then.epoch, then.position);
}

bool RelayLink::OpenLive() {
  live_.Clear();
  connection_.watched = true;
  Connect();
  return true;
}

void RelayLink::Connect() {
  ++connection_.number;
  connection_.subscribed = connection_.established = false;
  connection_.last_arrival_ms = 0;
  agenda_.At(agenda_.now_ms() + random_.Between(1, 20),
             [this, connection = connection_.number] { TryConnect(connection); });
}

void RelayLink::TryConnect(uint64_t connection) {
  if (connection != connection_.number) return;
  const int64_t now = agenda_.now_ms();
  if (now < relay_up_ms_ || paused()) {
    agenda_.At(now + random_.Between(20, 100), [this, connection] { TryConnect(connection); });
    return;
  }
  // The subscription may arrive a little later than the handshake.
  agenda_.At(now + random_.Between(0, 6), [this, connection] {
    if (connection == connection_.number) connection_.subscribed = true;
  });
  agenda_.At(now + 1, [this, connection] {
    if (connection != connection_.number) return;
    connection_.established = true;
    live_.Push(stream::LiveEvent::kConnected);
    Wake();
  });
}

// Both ends lose the connection. Then it is established again.
void RelayLink::Break() {
  if (connection_.established) {
    live_.Push(stream::LiveEvent::kDisconnected);
    Wake();
  }
  Connect();
}

void RelayLink::SendUnsent() {
  for (const stream::RingEntry& entry : relay_.TakeUnsent()) SendLive(entry);
}

void RelayLink::SendLive(const stream::RingEntry& entry) {
  if (!connection_.subscribed) return;
  if (agenda_.now_ms() < drops_until_ms_ && random_.Percent(30)) return;
  connection_.last_arrival_ms =
      std::max(agenda_.now_ms() + random_.Between(0, 3), connection_.last_arrival_ms);
  agenda_.At(connection_.last_arrival_ms, [this, connection = connection_.number, entry] {
    if (connection != connection_.number) return;
    live_.Push(entry);
    Wake();
  });
}

std::optional<stream::LiveEvent> RelayLink::NextLiveEvent() {
  const std::optional<stream::LiveEvent> event = live_.NextEvent();
  if (event == stream::LiveEvent::kConnected) router_.NoteHeard(agenda_.now_ms());
  return event;
}

std::optional<stream::Frames> RelayLink::ReceiveLive() {
  std::optional<stream::RingEntry> message = live_.NextMessage();
  if (!message) return std::nullopt;
  ++record_.events;
  received_.entry = *std::move(message);
  received_.seq = stream::EncodeSeq(received_.entry.seq);
  received_.frames = {
      stream::Frame{}, stream::Frame(received_.seq), stream::Frame(*received_.entry.payload), {}};
  router_.NoteHeard(agenda_.now_ms());
  return stream::Frames(received_.frames).first(3);
}

void RelayLink::OpenRequest(stream::Frame start) {
  CloseRequest();
  ++request_.number;
  request_.open = true;
  request_.last_reply_ms = 0;
  agenda_.At(agenda_.now_ms() + random_.Between(1, 4),
             [this, request = request_.number, bytes = std::vector(start.begin(), start.end())] {
               Ask(request, bytes);
             });
}

void RelayLink::CloseRequest() {
  request_.open = request_.reply_cut = false;
  request_.replies.clear();
}

void RelayLink::Ask(uint64_t request, const std::vector<uint8_t>& start) {
  if (!request_.open || request != request_.number) return;
  const int64_t now = agenda_.now_ms();
  if (paused() || now < relay_up_ms_) {
    return agenda_.At(std::max(faults_.until_ms(FaultKind::kPauseFollower), relay_up_ms_),
                      [this, request, start] { Ask(request, start); });
  }
  relay_.Ask(std::to_string(request), start);
  WakeServer(0);
}

void RelayLink::WakeServer(int64_t in_ms) {
  const int64_t due =
      std::max(agenda_.now_ms() + in_ms, faults_.until_ms(FaultKind::kPauseFollower));
  if (server_due_ms_ >= agenda_.now_ms() && server_due_ms_ <= due) return;
  server_due_ms_ = due;
  agenda_.At(due, [this] { Serve(); });
}

void RelayLink::Serve() {
  server_due_ms_ = stream::kNever;
  if (paused()) return WakeServer(0);
  const int64_t wait_ms = relay_.Serve();
  if (wait_ms >= 0) {
    WakeServer(std::max<int64_t>(wait_ms, 1));
  } else if (relay_.has_credit()) {
    WakeServer(0);
  }
}

bool RelayLink::Send(const std::string& client, uint64_t seq, stream::Payload payload,
                     std::shared_ptr<void> charge) {
  if (!request_.open || client != std::to_string(request_.number)) return false;
  request_.last_reply_ms =
      std::max(agenda_.now_ms() + random_.Between(0, 3), request_.last_reply_ms);
  agenda_.At(request_.last_reply_ms,
             [this, request = request_.number,
              reply = ReplyMessage{{seq, std::move(payload)}, std::move(charge)}] {
               if (!request_.open || request != request_.number) return;
               request_.replies.push_back(reply);
               Wake();
             });
  return true;
}

std::optional<stream::Frames> RelayLink::ReceiveReply() {
  if (request_.replies.empty()) return std::nullopt;
  ++record_.events;
  received_.entry = std::move(request_.replies.front().entry);
  request_.replies.pop_front();
  received_.seq = stream::EncodeSeq(received_.entry.seq);
  received_.frames = {stream::Frame{}, stream::Frame{}, stream::Frame(received_.seq),
                      stream::Frame(*received_.entry.payload)};
  router_.NoteHeard(agenda_.now_ms());
  return stream::Frames(received_.frames);
}

void RelayLink::Wake() {
  if (std::exchange(woken_, true)) return;
  agenda_.At(agenda_.now_ms() + (random_.Percent(75) ? 0 : random_.Between(1, 3)), [this] {
    woken_ = false;
    Work();
  });
}

void RelayLink::Work() {
  const int64_t now = agenda_.now_ms();
  pump_->Work(now);
  router_.Check(pump_->source(), now);
  if (connection_.watched && live_.announces()) Wake();
  if (relay_.has_credit()) WakeServer(0);
  const int64_t deadline = pump_->deadline_ms();
  if (deadline == stream::kNever) return;
  const int64_t due = std::max(deadline, now + 1);
  if (timer_due_ms_ > now && timer_due_ms_ <= due) return;
  timer_due_ms_ = due;
  agenda_.At(due, [this] { Work(); });
}

}  // namespace kvcast::sim
