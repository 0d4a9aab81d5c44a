// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/link.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/residency/extension.h"

namespace kvcast::sim {
namespace {

// A connection ends after this time of silence.
constexpr int64_t kHeartbeatTimeoutMs = 3000;

}  // namespace

Link::Link(uint64_t seed, int number, const stream::SourceLimits& limits, bool can_replay,
           Agenda& agenda, stream::Turns& turns, PrefixIndex& index, Record& record)
    : agenda_(agenda),
      record_(record),
      random_(seed, 0x11000 + static_cast<uint64_t>(number)),
      publisher_(seed, number, agenda, *this, record),
      reader_(publisher_, record),
      bound_(random_.Percent(20)),
      live_(random_),
      follower_(WorkerId(static_cast<uint32_t>(number)), limits, can_replay, publisher_, index,
                record),
      pump_({.limits = limits,
             .can_replay = can_replay,
             .bound = bound_,
             .messages_per_turn =
                 static_cast<int>(random_.Percent(50) ? random_.Between(1, 8) : 256)},
            *this, turns, follower_) {
  follower_.Watch(pump_.source());
}

int64_t Link::Amount(FaultKind kind) {
  const Window& active = window(kind);
  return agenda_.now_ms() < active.until_ms ? active.amount : 0;
}

// TCP holds messages back until the partition ends.
int64_t Link::Passable(int64_t ms) const { return std::max(ms, partitioned_until_ms_); }

bool Link::OpenLive() {
  if (agenda_.now_ms() < endpoint_free_ms_ || (in_trouble() && random_.Percent(8))) {
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
  if (in_trouble()) endpoint_free_ms_ = agenda_.now_ms() + random_.Roll(150);
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
  // The subscription may arrive a little later than the handshake.
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

// A peer that is not a publisher connects to a bound endpoint.
void Link::VisitByStranger(uint64_t connection) {
  if (connection != connection_) return;
  ++record_.reached["strangers at a bound endpoint"];
  live_.Push(stream::LiveEvent::kHandshakeFailed);
  live_.Push(stream::LiveEvent::kDisconnected);
  Wake();
}

// Both ends lose the connection. Then it is established again.
void Link::Break() {
  if (bound_ && !watched_) return;
  if (established_) {
    live_.Push(stream::LiveEvent::kDisconnected);
    Wake();
  }
  Connect();
}

void Link::PublishStep() {
  publisher_.PublishStep();
  SendUnsent();
}

void Link::TickPublisher() {
  publisher_.Tick();
  SendUnsent();
}

void Link::SendUnsent() {
  for (const RingEntry& entry : publisher_.TakeUnsent()) SendLive(entry);
}

void Link::SendLive(const RingEntry& entry) {
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
  asks_snapshot_ = asked && asked->verb == residency::Verb::kSnapshot;
  reply_cut_ = false;
  replies_sent_ = 0;
  last_reply_ms_ = 0;
  replies_.clear();
  const int64_t arrival = Passable(agenda_.now_ms() + random_.Between(1, 4));
  agenda_.At(arrival, [this, request = request_, bytes = std::vector(start.begin(), start.end())] {
    Ask(request, bytes);
  });
}

// A request waits until the publisher is up. It is lost if the life that received it ends.
void Link::Ask(uint64_t request, const std::vector<uint8_t>& start) {
  if (!request_open_ || request != request_) return;
  const int64_t now = agenda_.now_ms();
  if (publisher_paused() || now < publisher_up_ms_) {
    return agenda_.At(std::max(publisher_paused_until_ms_, publisher_up_ms_),
                      [this, request, start] { Ask(request, start); });
  }
  publisher_.Ask(std::to_string(request), start);
  WakeServer(0);
}

void Link::WakeServer(int64_t in_ms) {
  const int64_t due = std::max(agenda_.now_ms() + in_ms, publisher_paused_until_ms_);
  if (server_due_ms_ >= agenda_.now_ms() && server_due_ms_ <= due) return;
  server_due_ms_ = due;
  agenda_.At(due, [this] { Serve(); });
}

// Replies that were read or dropped have refunded their charges, so a paused client may have
// credit.
void Link::WakeServerForCredit() {
  if (publisher_.has_credit()) WakeServer(0);
}

void Link::Serve() {
  server_due_ms_ = stream::kNever;
  if (publisher_paused()) return WakeServer(0);
  const int64_t wait_ms = publisher_.Serve();
  if (wait_ms < 0) return WakeServerForCredit();
  WakeServer(std::max(wait_ms, 1 + Amount(FaultKind::kSlowReplies) / 4));
}

bool Link::Send(const std::string& client, uint64_t seq, Payload payload,
                std::shared_ptr<void> charge) {
  if (client == LegacyReader::kName) {
    reader_.OnReply(seq, payload);
    return true;
  }
  if (!request_open_ || client != std::to_string(request_)) return false;
  if (seq != stream::kEndSeq && !SurvivesReply(seq)) {
    BreakReplies();
    return false;
  }
  // A legacy server drops the replies that do not fit into its pipe.
  const int64_t cut = publisher_.extended() ? 0 : Amount(FaultKind::kCutReplies);
  if (seq != stream::kEndSeq && cut > 0 && ++replies_sent_ > cut && random_.Percent(80)) {
    ++record_.reached["replies cut by the server"];
    return true;
  }
  SendReply({request_, {seq, std::move(payload)}, std::move(charge)});
  return true;
}

// True: the connection stays open after this reply.
bool Link::SurvivesReply(uint64_t seq) {
  const bool oversize = !asks_snapshot_ && oversize_.contains({publisher_.life(), seq});
  if (oversize) ++record_.reached["replies of a batch that no connection survives"];
  return !oversize && !Strikes(FaultKind::kBreakReplies);
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
      return WakeServerForCredit();
    }
    replies_.push_back(reply);
    Wake();
  };
  if (scrambled && random_.Percent(50)) agenda_.At(arrival + random_.Roll(30), arrive);
  agenda_.At(arrival, arrive);
}

// Replies that were sent before still arrive; later replies do not.
void Link::BreakReplies() {
  const int64_t arrival = std::max(Passable(agenda_.now_ms() + Latency()), last_reply_ms_);
  agenda_.At(arrival, [this, request = request_] {
    if (!request_open_ || request != request_) return;
    reply_cut_ = true;
    ++record_.reached["reply connections broken"];
    Wake();
  });
}

void Link::AskSnapshot() {
  constexpr std::string_view kAsk = "snapshot";
  if (reader_.waits() || agenda_.now_ms() < publisher_up_ms_) return;
  reader_.Ask();
  publisher_.Ask(LegacyReader::kName, {reinterpret_cast<const uint8_t*>(kAsk.data()), kAsk.size()});
  WakeServer(0);
}

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
  WakeServerForCredit();
  ScheduleTimer();
}

// The pump has handled all messages that it received before.
void Link::CheckPump() {
  follower_.Check(follower_ms());
  if (given_) follower_.CheckTaken(follower_ms(), *given_);
  given_.reset();
}

// If the pump leaves messages without a pending wake-up, it must have scheduled its next turn
// itself.
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
  if (deadline == stream::kNever) return;
  const int64_t due = std::max(deadline - clock_offset_ms_, agenda_.now_ms() + 1);
  if (timer_ms_ > agenda_.now_ms() && timer_ms_ <= due) return;
  timer_ms_ = due;
  agenda_.At(due, [this] { Work(); });
}

void Link::Restart(int64_t batches, bool large_ring) {
  Break();
  if (request_open_ && random_.Percent(50)) BreakReplies();
  publisher_.Restart(large_ring);
  reader_.Reset();
  if (batches > 0) publisher_.PublishBatch();
  for (int64_t i = 1; i < batches; ++i) publisher_.PublishStep();
  SendUnsent();
  publisher_up_ms_ = agenda_.now_ms() + random_.Between(1, 200);
  ++record_.reached["restarts"];
}

// Messages under way still arrive. The follower sees the end of the connection later.
void Link::RestartSilently(int64_t amount) {
  // Without an epoch no follower can detect this restart.
  if (!follower_.status(follower_ms()).extended) return Restart(amount);
  subscribed_ = false;
  publisher_.Restart(/*large_ring=*/false, /*same_kind=*/true);
  reader_.Reset();
  for (int64_t i = 0; i < amount; ++i) PublishStep();
  publisher_up_ms_ = agenda_.now_ms() + random_.Between(1, 100);
  ++record_.reached["restarts that were not seen at once"];
  if (bound_ && established_) {
    // The new life connects while the connection of the old life still seems to be open.
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
      for (int64_t i = 0; i < fault.amount; ++i) publisher_.PublishStep();
      return SendUnsent();
    case FaultKind::kBurn:
      for (int64_t i = 0; i < fault.amount; ++i) publisher_.Burn();
      SendUnsent();
      record_.reached["burnt numbers"] += static_cast<uint64_t>(fault.amount);
      if (publisher_.extended() && !publisher_.tells_state()) {
        ++record_.reached["publishers that lost their own state"];
      }
      return;
    case FaultKind::kClear:
      publisher_.PublishClear();
      return SendUnsent();
    case FaultKind::kClockJump:
      clock_offset_ms_ += fault.amount;
      return Wake();
    case FaultKind::kDamage:
      // Only digests can detect the damage.
      if (follower_.status(follower_ms()).extended && publisher_.tells_state())
        follower_.Damage(random_, fault.amount);
      return;
    case FaultKind::kContradict:
      pump_.Contradict(follower_ms());
      follower_.Check(follower_ms());
      ++record_.reached["contradictions"];
      return Wake();
    case FaultKind::kOversize:
      oversize_.emplace(publisher_.life(), publisher_.PublishBatch());
      return SendUnsent();
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
