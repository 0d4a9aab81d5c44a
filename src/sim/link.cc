// SPDX-License-Identifier: Apache-2.0
#include "src/sim/link.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "src/residency/extension.h"
#include "src/residency/snapshot_reader.h"

namespace kvcast::sim {
namespace {

// ZeroMQ's heartbeat gives a silent connection up after this long.
constexpr int64_t kHeartbeatTimeoutMs = 3000;
// Replies that a server sends in one go.
constexpr size_t kTurnReplies = 16;

}  // namespace

bool Agenda::RunNext(int64_t end_ms) {
  if (events_.empty() || events_.front().ms >= end_ms) {
    now_ms_ = std::max(now_ms_, end_ms);
    return false;
  }
  std::pop_heap(events_.begin(), events_.end(), Later);
  Event event = std::move(events_.back());
  events_.pop_back();
  now_ms_ = event.ms;
  event.what();
  return true;
}

Link::Link(uint64_t seed, int number, const stream::SourceLimits& limits, bool can_replay,
           Agenda& agenda, stream::Turns& turns, PrefixIndex& index, Record& record)
    : agenda_(agenda),
      turns_(turns),
      record_(record),
      random_(seed, 0x11000 + static_cast<uint64_t>(number)),
      publisher_(seed, number),
      bound_(random_.Percent(20)),
      live_(random_),
      follower_(WorkerId(static_cast<uint32_t>(number)), limits, can_replay, publisher_, index,
                record),
      pump_({.limits = limits,
             .can_replay = can_replay,
             .bound = bound_,
             .messages_per_turn =
                 static_cast<int>(random_.Percent(50) ? random_.Between(1, 8) : 256)},
            *this, turns, follower_.Hooks()) {
  follower_.Watch(pump_.source());
}

int64_t Link::Amount(FaultKind kind) {
  const Window& active = window(kind);
  return agenda_.now_ms() < active.until_ms ? active.amount : 0;
}

// TCP holds back what a partition stops.
int64_t Link::Passable(int64_t ms) const { return std::max(ms, partitioned_until_ms_); }

bool Link::OpenLive() {
  if (agenda_.now_ms() < endpoint_free_ms_ || (connection_ > 0 && random_.Percent(3))) {
    ++record_.reached["live connections that could not be made"];
    return false;
  }
  live_.Clear();
  watched_ = true;
  Connect();
  return true;
}

void Link::EndLive() {
  watched_ = false;
  given_.reset();
  if (!bound_) return;
  ++connection_;
  subscribed_ = established_ = false;
  endpoint_free_ms_ = agenda_.now_ms() + random_.Roll(150);
}

void Link::Connect() {
  ++connection_;
  subscribed_ = established_ = false;
  last_arrival_ms_ = 0;
  agenda_.At(agenda_.now_ms() + random_.Between(1, 20),
             [this, connection = connection_] { TryConnect(connection); });
}

void Link::TryConnect(uint64_t connection) {
  if (connection != connection_) return;
  const int64_t now = agenda_.now_ms();
  if (now < partitioned_until_ms_ || now < publisher_up_ms_ || publisher_paused()) {
    agenda_.At(now + random_.Between(20, 100), [this, connection] { TryConnect(connection); });
    return;
  }
  // The subscription may take a little longer than the handshake.
  agenda_.At(now + random_.Between(0, 6), [this, connection] {
    if (connection == connection_) subscribed_ = true;
  });
  agenda_.At(now + 1, [this, connection] { Establish(connection); });
  if (!bound_ || !random_.Percent(30)) return;
  agenda_.At(now + random_.Roll(3000), [this, connection] { VisitByStranger(connection); });
}

void Link::Establish(uint64_t connection) {
  if (connection != connection_) return;
  established_ = true;
  live_.Push(stream::LiveEvent::kConnected);
  Wake();
}

// Whoever connects to a bound endpoint and is no publisher.
void Link::VisitByStranger(uint64_t connection) {
  if (connection != connection_) return;
  ++record_.reached["strangers at a bound endpoint"];
  live_.Push(stream::LiveEvent::kHandshakeFailed);
  live_.Push(stream::LiveEvent::kDisconnected);
  Wake();
}

// Both ends lose the connection, and it is made again.
void Link::Break() {
  if (bound_ && !watched_) return;
  if (established_) {
    live_.Push(stream::LiveEvent::kDisconnected);
    Wake();
  }
  Connect();
}

void Link::Send(const RingEntry& entry) {
  if (!subscribed_ || Strikes(FaultKind::kDropLive)) return;
  if (oversize_.contains({publisher_.life(), entry.seq})) {
    agenda_.At(Passable(agenda_.now_ms() + Latency()), [this, connection = connection_] {
      if (connection == connection_) Break();
    });
    return;
  }
  RingEntry message = entry;
  if (Strikes(FaultKind::kTruncateLive) && entry.payload->size() > 2) {
    const auto cut = static_cast<std::ptrdiff_t>(
        1 + random_.Roll(static_cast<int64_t>(entry.payload->size()) - 1));
    message.payload = std::make_shared<const std::vector<uint8_t>>(entry.payload->begin(),
                                                                   entry.payload->begin() + cut);
    ++record_.reached["truncated batches"];
  }
  const int64_t delay =
      Amount(FaultKind::kDelayLive) > 0 ? random_.Roll(Amount(FaultKind::kDelayLive)) : 0;
  int64_t arrival = Passable(agenda_.now_ms() + Latency() + delay);
  if (Strikes(FaultKind::kReorderLive)) {
    arrival += random_.Between(5, 100);
    ++record_.reached["reordered batches"];
  } else {
    arrival = last_arrival_ms_ = std::max(arrival, last_arrival_ms_);
  }
  const auto arrive = [this, connection = connection_, message] { Arrive(connection, message); };
  if (Strikes(FaultKind::kDuplicateLive)) agenda_.At(arrival + random_.Roll(50), arrive);
  agenda_.At(arrival, arrive);
}

void Link::Arrive(uint64_t connection, const RingEntry& message) {
  if (connection != connection_) return;
  live_.Push(message);
  Wake();
}

void Link::LookAtTurns() {
  if (pump_.has_new_turn()) Wake();
}

void Link::CloseRequest() {
  request_open_ = reply_cut_ = false;
  replies_.clear();
  if (pump_.has_turn()) agenda_.At(agenda_.now_ms(), on_turns_);
}

void Link::OpenRequest(Frame start) {
  const auto asked = residency::ParseRequest(start);
  const bool small = asked && asked->verb == residency::Verb::kStatus && asked->argument == 0;
  if (!small && !pump_.has_turn()) record_.Fail("Bounded", "a replay out of turn");
  ++request_;
  request_open_ = true;
  reply_cut_ = false;
  last_reply_ms_ = 0;
  replies_.clear();
  const int64_t arrival = Passable(agenda_.now_ms() + random_.Between(1, 4));
  agenda_.At(arrival, [this, request = request_, bytes = std::vector(start.begin(), start.end())] {
    Serve(request, bytes);
  });
}

// A request waits for a publisher to be there; it dies with the life that has it.
void Link::Serve(uint64_t request, std::vector<uint8_t> start) {
  if (!request_open_ || request != request_) return;
  const int64_t now = agenda_.now_ms();
  if (publisher_paused() || now < publisher_up_ms_) {
    agenda_.At(std::max(publisher_paused_until_ms_, publisher_up_ms_),
               [this, request, start = std::move(start)] { Serve(request, start); });
    return;
  }
  const auto life = static_cast<uint64_t>(publisher_.life());
  auto serving = std::make_shared<SimPublisher::Serving>(publisher_.Begin(start));
  Continue(request, life, std::move(serving));
}

void Link::Continue(uint64_t request, uint64_t life,
                    std::shared_ptr<SimPublisher::Serving> serving) {
  if (!request_open_ || request != request_) return;
  if (life != static_cast<uint64_t>(publisher_.life())) return;
  if (publisher_paused()) {
    agenda_.At(publisher_paused_until_ms_,
               [this, request, life, serving] { Continue(request, life, serving); });
    return;
  }
  // A legacy server sends all at once, and what its pipe does not take is gone.
  const int64_t cut = publisher_.extended() ? 0 : Amount(FaultKind::kCutReplies);
  std::vector<RingEntry> entries = publisher_.Next(*serving, cut > 0 ? SIZE_MAX : kTurnReplies);
  int64_t sent = 0;
  for (RingEntry& entry : entries) {
    const bool oversize =
        !serving->answer.snapshot && oversize_.contains({publisher_.life(), entry.seq});
    if (oversize) ++record_.reached["replies of a batch that no connection survives"];
    if (oversize || Strikes(FaultKind::kBreakReplies)) return BreakReplies();
    if (cut > 0 && ++sent > cut && random_.Percent(80)) {
      ++record_.reached["replies cut by the server"];
      continue;
    }
    SendReply({request, false, std::move(entry)});
  }
  if (entries.empty()) {
    Payload payload = publisher_.EndPayload(*serving);
    if (payload == nullptr) payload = std::make_shared<const std::vector<uint8_t>>();
    return SendReply({request, true, {stream::kEndSeq, std::move(payload)}});
  }
  agenda_.At(agenda_.now_ms() + 1 + Amount(FaultKind::kSlowReplies) / 4,
             [this, request, life, serving] { Continue(request, life, serving); });
}

void Link::SendReply(ReplyMessage reply) {
  if (Strikes(FaultKind::kDropReplies)) {
    ++record_.reached["replies dropped"];
    return;
  }
  const int64_t slow = Amount(FaultKind::kSlowReplies);
  int64_t arrival = Passable(agenda_.now_ms() + Latency() + (slow > 0 ? random_.Roll(slow) : 0));
  const bool scrambled = Strikes(FaultKind::kScrambleReplies);
  if (scrambled) {
    ++record_.reached["replies scrambled"];
    arrival += random_.Between(0, 30);
  } else {
    arrival = last_reply_ms_ = std::max(arrival, last_reply_ms_);
  }
  const auto arrive = [this, reply] {
    if (!request_open_ || reply.request != request_) {
      ++record_.reached["late replies of a closed request"];
      return;
    }
    replies_.push_back(reply);
    Wake();
  };
  if (scrambled && random_.Percent(50)) agenda_.At(arrival + random_.Roll(30), arrive);
  agenda_.At(arrival, arrive);
}

// What was sent before still arrives, nothing else does.
void Link::BreakReplies() {
  const int64_t arrival = std::max(Passable(agenda_.now_ms() + Latency()), last_reply_ms_);
  agenda_.At(arrival, [this, request = request_] {
    if (!request_open_ || request != request_) return;
    reply_cut_ = true;
    ++record_.reached["reply connections broken"];
    Wake();
  });
}

// A reader who knows the legacy request gets the state of one moment, or nothing.
void Link::AskSnapshot() {
  constexpr std::string_view kAsk = "snapshot";
  SimPublisher::Serving serving =
      publisher_.Begin({reinterpret_cast<const uint8_t*>(kAsk.data()), kAsk.size()});
  residency::SnapshotReader reader;
  EventBatch batch;
  const uint64_t next_seq = publisher_.next_seq();
  bool any = false;
  for (;;) {
    const std::vector<RingEntry> parts = publisher_.Next(serving, kTurnReplies);
    if (parts.empty()) break;
    for (const RingEntry& part : parts) {
      any = true;
      if (part.seq != next_seq || !reader.Read(*part.payload, batch).ok()) {
        return record_.Fail("Honest", "a part of a legacy snapshot is of no use");
      }
    }
  }
  if (publisher_.EndPayload(serving) != nullptr) {
    record_.Fail("Honest", "a legacy request is answered with a status");
  }
  if (any && !publisher_.extended()) record_.Fail("Honest", "a legacy publisher has snapshots");
  if (any &&
      SumOf(reader.digest().Totals()) != publisher_.oracle(publisher_.life()).sum(next_seq)) {
    record_.Fail("Honest", "a legacy snapshot is of another state");
  }
  ++record_.reached[any ? "legacy snapshots" : "legacy snapshots of nothing"];
}

// As the subscriber's thread does: the connection's events before messages, live before replies.
void Link::Wake() {
  if (std::exchange(woken_, true)) return;
  const int64_t latency = random_.Percent(75) ? 0 : random_.Between(1, 3);
  agenda_.At(std::max(agenda_.now_ms() + latency, follower_paused_until_ms_), [this] {
    woken_ = false;
    Work();
  });
}

void Link::Work() {
  if (agenda_.now_ms() < follower_paused_until_ms_) return Wake();
  pump_.Work(follower_ms());
  CheckPump();
  follower_.CheckSilence(follower_ms());
  CheckNothingIsLeft();
  ScheduleTimer();
}

// The pump has handled what it received before.
void Link::CheckPump() {
  follower_.Check(follower_ms());
  if (given_) follower_.CheckTaken(follower_ms(), *given_);
  given_.reset();
}

// A pump that leaves something without being woken for it comes back by itself.
void Link::CheckNothingIsLeft() {
  const bool comes_back = pump_.deadline_ms() <= follower_ms();
  if (watched_ && live_.announces()) return Wake();
  if (comes_back) return;
  if (watched_ && live_.has_unannounced()) record_.Fail("Prompt", "live messages are left");
  if (request_open_ && (!replies_.empty() || reply_cut_) && !pump_.renewal_scheduled()) {
    record_.Fail("Prompt", "replies are left");
  }
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
  received_ = *std::move(message);
  received_seq_ = stream::EncodeSeq(received_.seq);
  received_frames_ = {Frame{}, Frame(received_seq_), Frame(*received_.payload), Frame{}};
  given_ = received_.seq;
  follower_.NoteLive();
  follower_.NoteHeard(follower_ms());
  return stream::Frames(received_frames_).first(3);
}

std::optional<stream::Frames> Link::ReceiveReply() {
  CheckPump();
  if (replies_.empty()) return std::nullopt;
  ++record_.events;
  received_ = std::move(replies_.front().entry);
  replies_.pop_front();
  received_seq_ = stream::EncodeSeq(received_.seq);
  received_frames_ = {Frame{}, Frame{}, Frame(received_seq_), Frame(*received_.payload)};
  follower_.NoteHeard(follower_ms());
  const stream::Frames parts(received_frames_);
  return publisher_.topic_in_replies() ? parts : parts.subspan(1);
}

void Link::ScheduleTimer() {
  const int64_t deadline = pump_.deadline_ms();
  if (deadline == stream::Source::kNever) return;
  const int64_t due = std::max(deadline - clock_offset_ms_, agenda_.now_ms() + 1);
  if (timer_ms_ > agenda_.now_ms() && timer_ms_ <= due) return;
  timer_ms_ = due;
  agenda_.At(due, [this] { Work(); });
}

void Link::Restart(int64_t batches, bool large_ring) {
  Break();
  if (request_open_ && random_.Percent(50)) BreakReplies();
  publisher_.Restart(large_ring);
  for (int64_t i = 0; i < batches; ++i) publisher_.PublishStep();
  publisher_up_ms_ = agenda_.now_ms() + random_.Between(1, 200);
  ++record_.reached["restarts"];
}

// What is under way still arrives, and the follower does not see the end until later.
void Link::RestartSilently(int64_t amount) {
  // Without an epoch nobody could tell.
  if (!follower_.status(follower_ms()).extended) return Restart(amount);
  subscribed_ = false;
  publisher_.Restart(/*large_ring=*/false, /*same_kind=*/true);
  for (int64_t i = 0; i < amount; ++i) publisher_.PublishStep();
  publisher_up_ms_ = agenda_.now_ms() + random_.Between(1, 100);
  ++record_.reached["restarts that were not seen at once"];
  if (bound_ && established_) {
    // The new life connects while the connection of the old one seems to live on.
    agenda_.At(publisher_up_ms_, [this, connection = connection_] {
      if (connection == connection_) subscribed_ = true;
      Establish(connection);
    });
  }
  agenda_.At(agenda_.now_ms() + amount * 20, [this, connection = connection_] {
    if (connection == connection_) Break();
  });
}

void Link::Apply(const Fault& fault) {
  const int64_t now = agenda_.now_ms();
  const int64_t until = now + fault.duration_ms;
  ++record_.faults;
  trouble_until_ms_ = std::max(trouble_until_ms_, until);
  switch (fault.kind) {
    case FaultKind::kDisconnect:
      return Break();
    case FaultKind::kRestart:
      return Restart(fault.amount);
    case FaultKind::kSilentRestart:
      trouble_until_ms_ = std::max(trouble_until_ms_, now + fault.amount * 20);
      return RestartSilently(fault.amount);
    case FaultKind::kBurst:
      for (int64_t i = 0; i < fault.amount; ++i) Send(publisher_.PublishStep());
      return;
    case FaultKind::kBurn:
      for (int64_t i = 0; i < fault.amount; ++i) publisher_.Burn();
      record_.reached["burnt numbers"] += static_cast<uint64_t>(fault.amount);
      if (publisher_.extended() && !publisher_.tells_state()) {
        ++record_.reached["publishers that lost their own state"];
      }
      return;
    case FaultKind::kClear:
      return Send(publisher_.PublishClear());
    case FaultKind::kClockJump:
      clock_offset_ms_ += fault.amount;
      return Wake();
    case FaultKind::kDamage:
      // Only digests can find it.
      if (follower_.status(follower_ms()).extended && publisher_.tells_state())
        follower_.Damage(random_, fault.amount);
      return;
    case FaultKind::kContradict:
      pump_.Contradict(follower_ms());
      follower_.Check(follower_ms());
      ++record_.reached["contradictions"];
      return Wake();
    case FaultKind::kOversize: {
      const RingEntry entry = publisher_.PublishStep();
      oversize_.emplace(publisher_.life(), entry.seq);
      return Send(entry);
    }
    case FaultKind::kAskSnapshot:
      return AskSnapshot();
    case FaultKind::kPausePublisher:
      publisher_paused_until_ms_ = std::max(publisher_paused_until_ms_, until);
      break;
    case FaultKind::kPauseFollower:
      follower_paused_until_ms_ = std::max(follower_paused_until_ms_, until);
      return;
    case FaultKind::kPartition:
      partitioned_until_ms_ = std::max(partitioned_until_ms_, until);
      break;
    default: {
      Window& active = window(fault.kind);
      active = {std::max(active.until_ms, until), fault.amount};
      if (fault.kind == FaultKind::kDelayLive) trouble_until_ms_ += fault.amount;
      return;
    }
  }
  if (fault.duration_ms <= kHeartbeatTimeoutMs) return;
  agenda_.At(now + kHeartbeatTimeoutMs, [this, connection = connection_] {
    if (connection == connection_) Break();
  });
}

}  // namespace kvcast::sim
