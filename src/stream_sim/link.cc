// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/link.h"

#include <algorithm>
#include <utility>

namespace kvcast::sim {

Link::Link(uint64_t seed, int number, const stream::SourceLimits& limits, bool can_replay,
           bool relayed, Agenda& agenda, stream::RequestTurns& turns, PrefixIndex& index,
           Record& record)
    : agenda_(agenda),
      record_(record),
      random_(seed, 0x11000 + static_cast<uint64_t>(number)),
      publisher_(seed, number, agenda, *this, record),
      reader_(publisher_, record),
      faults_(agenda),
      has_lanes_(random_.Percent(50)),
      connection_{.bound = random_.Percent(20)},
      live_(random_),
      follower_(WorkerId(static_cast<uint32_t>(number)), limits, can_replay, publisher_, index,
                record),
      pump_config_{
          .limits = limits,
          .can_replay = can_replay,
          .bound = connection_.bound,
          .turn = {.messages = static_cast<int>(random_.Percent(50) ? random_.Between(1, 8) : 256),
                   .large_bytes = static_cast<size_t>(random_.Between(20, 400))}},
      turns_(turns) {
  if (relayed) {
    relay_.emplace(Mix(seed) + static_cast<uint64_t>(number), agenda, follower_, publisher_,
                   faults_, record);
  }
  MakePump();
}

void Link::MakePump() {
  stream::SourceTransport& transport = *this;
  ReplicaSink& sink = relay_ ? relay_->sink() : static_cast<ReplicaSink&>(follower_);
  pump_.emplace(pump_config_, transport, turns_, sink);
  follower_.Watch(pump_->source());
}

// `ms`: the arrival time of a message if there is no partition. Returns the arrival time with the
// partition: TCP holds messages back until the partition ends.
int64_t Link::AfterPartition(int64_t ms) const {
  return std::max(ms, faults_.until_ms(FaultKind::kPartition));
}

void Link::PublishStep() {
  publisher_.PublishStep();
  SendUnsent();
}

void Link::TickPublisher() {
  publisher_.Tick();
  SendUnsent();
}

void Link::LookAtTurns() {
  if (pump_->has_new_turn()) Wake();
}

void Link::Wake() {
  if (std::exchange(woken_, true)) return;
  const int64_t latency = random_.Percent(75) ? 0 : random_.Between(1, 3);
  agenda_.At(std::max(agenda_.now_ms() + latency, faults_.until_ms(FaultKind::kPauseFollower)),
             [this] {
               woken_ = false;
               Work();
             });
}

void Link::Work() {
  if (agenda_.now_ms() < faults_.until_ms(FaultKind::kPauseFollower)) return Wake();
  // A lane of the subscriber takes the large messages. If the lane is busy, the pump keeps them.
  const bool kept = pump_->keeps_large();
  pump_->Work(follower_ms(), /*takes_large=*/!has_lanes_ || random_.Percent(40));
  if (pump_->keeps_large()) {
    ++record_.reached["turns that left a large message to a lane"];
  } else {
    if (kept) follower_.NoteHeard(follower_ms());
    CheckPump();
  }
  follower_.CheckSilence(follower_ms());
  NoteStateForRelay();
  CheckNothingIsLeft();
  WakeServerForCredit();
  ScheduleTimer();
}

// Must be called when the pump has handled all messages that it has received.
void Link::CheckPump() {
  follower_.Check(follower_ms());
  if (given_) follower_.CheckTaken(follower_ms(), *given_);
  given_.reset();
}

void Link::NoteStateForRelay() {
  if (relay_) relay_->NoteState(pump_->source().status(follower_ms()).state);
}

// If messages are unread and no wake-up is pending, the pump must have scheduled its next call of
// Work itself.
void Link::CheckNothingIsLeft() {
  const bool work_is_due = pump_->deadline_ms() <= follower_ms();
  if (connection_.watched && live_.announces()) return Wake();
  if (work_is_due) return;
  if (connection_.watched && live_.has_unannounced()) {
    record_.Fail("Prompt", "live messages stay unread, and no turn of the pump is due");
  }
  const bool unread = !request_.replies.empty() || request_.reply_cut;
  if (request_.open && unread && !pump_->renewal_scheduled()) {
    record_.Fail("Prompt", "replies stay unread, and no turn of the pump is due");
  }
}

void Link::ScheduleTimer() {
  const int64_t deadline = pump_->deadline_ms();
  if (deadline == stream::kNever) return;
  const int64_t due = std::max(deadline - clock_offset_ms_, agenda_.now_ms() + 1);
  if (timer_due_ms_ > agenda_.now_ms() && timer_due_ms_ <= due) return;
  timer_due_ms_ = due;
  agenda_.At(due, [this] { Work(); });
}

void Link::Restart(int64_t batches, bool large_ring) {
  Break();
  if (request_.open && random_.Percent(50)) BreakReplies();
  publisher_.Restart(large_ring);
  reader_.Reset();
  if (batches > 0) publisher_.PublishBatch();
  for (int64_t i = 1; i < batches; ++i) publisher_.PublishStep();
  SendUnsent();
  publisher_up_ms_ = agenda_.now_ms() + random_.Between(1, 200);
  ++record_.reached["restarts"];
}

// A relay saves no state.
void Link::SaveFollower() {
  if (!relay_) saved_ = follower_.Save();
}

// Messages in flight are lost.
void Link::RestartFollower() {
  pump_.reset();
  agenda_.At(agenda_.now_ms(), on_turns_);
  EndLive();
  live_.Clear();
  request_.open = request_.reply_cut = false;
  request_.replies.clear();
  follower_.Restart(follower_ms(), saved_ ? &*saved_ : nullptr);
  if (relay_) relay_->RestartRelay();
  MakePump();
  if (saved_) pump_->Resume(saved_->position);
  if (!OpenLive()) pump_->ScheduleRenewal();
  timer_due_ms_ = stream::kNever;
  ++record_.reached[saved_ ? "followers that restarted with a saved state"
                           : "followers that restarted without a state"];
  Wake();
}

// Messages in flight still arrive. The follower is notified of the end of the connection later.
void Link::RestartSilently(int64_t amount) {
  // Without an epoch no follower can detect this restart.
  if (!follower_.status(follower_ms()).extended) return Restart(amount);
  connection_.subscribed = false;
  publisher_.Restart(/*large_ring=*/false, /*same_kind=*/true);
  reader_.Reset();
  for (int64_t i = 0; i < amount; ++i) PublishStep();
  publisher_up_ms_ = agenda_.now_ms() + random_.Between(1, 100);
  ++record_.reached["silent restarts"];
  if (connection_.bound && connection_.established) {
    // The new life connects while the connection of the old life still seems to be open.
    agenda_.At(publisher_up_ms_, [this, connection = connection_.number] {
      if (connection == connection_.number) connection_.subscribed = true;
      Establish(connection);
    });
  }
  agenda_.At(agenda_.now_ms() + amount * 20, [this, connection = connection_.number] {
    if (connection == connection_.number) Break();
  });
}

void Link::Apply(const Fault& fault) {
  const int64_t now = agenda_.now_ms();
  ++record_.faults;
  faults_.NoteTrouble(now + fault.duration_ms);
  if (relay_) relay_->Disturb();
  switch (fault.kind) {
    case FaultKind::kDisconnect:
      return Break();
    case FaultKind::kRestart:
      return Restart(fault.amount);
    case FaultKind::kSilentRestart:
      faults_.NoteTrouble(now + fault.amount * 20);
      return RestartSilently(fault.amount);
    case FaultKind::kBurst:
    case FaultKind::kBurn:
    case FaultKind::kClear:
    case FaultKind::kOversize:
      ApplyToPublisher(fault);
      return SendUnsent();
    case FaultKind::kClockJump:
    case FaultKind::kDamage:
    case FaultKind::kContradict:
      return ApplyToFollower(fault);
    case FaultKind::kAskSnapshot:
      return AskSnapshot();
    case FaultKind::kRestartFollower:
      return RestartFollower();
    case FaultKind::kPausePublisher:
    case FaultKind::kPartition:
      faults_.Begin(fault);
      return BreakIfSilentFor(fault.duration_ms);
    default:
      return faults_.Begin(fault);
  }
}

void Link::ApplyToPublisher(const Fault& fault) {
  if (fault.kind == FaultKind::kBurst) {
    for (int64_t i = 0; i < fault.amount; ++i) publisher_.PublishStep();
  } else if (fault.kind == FaultKind::kClear) {
    publisher_.PublishClear();
  } else if (fault.kind == FaultKind::kOversize) {
    oversize_.emplace(publisher_.life(), publisher_.PublishBatch());
  } else {
    for (int64_t i = 0; i < fault.amount; ++i) publisher_.Burn();
    record_.reached["sequence numbers of refused batches"] += static_cast<uint64_t>(fault.amount);
    if (publisher_.extended() && !publisher_.tells_state()) {
      ++record_.reached["publishers that lost their own state"];
    }
  }
}

void Link::ApplyToFollower(const Fault& fault) {
  if (fault.kind == FaultKind::kClockJump) {
    clock_offset_ms_ += fault.amount;
    return Wake();
  }
  if (fault.kind == FaultKind::kDamage) {
    // Only digests can detect the damage.
    const bool detectable = follower_.status(follower_ms()).extended && publisher_.tells_state();
    if (detectable) follower_.Damage(random_, fault.amount);
    return;
  }
  pump_->Contradict(follower_ms());
  follower_.Check(follower_ms());
  NoteStateForRelay();
  ++record_.reached["contradictions"];
  Wake();
}

}  // namespace kvcast::sim
