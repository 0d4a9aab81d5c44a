// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/source_pump.h"

#include <algorithm>
#include <utility>

namespace kvcast::stream {
namespace {

size_t BytesOf(const Frames& frames) {
  size_t bytes = 0;
  for (const Frame& frame : frames) bytes += frame.size();
  return bytes;
}

}  // namespace

SourcePump::SourcePump(const PumpConfig& config, SourceTransport& transport, RequestTurns& turns,
                       ReplicaSink& sink)
    : config_(config),
      transport_(transport),
      turns_(turns),
      budget_(config.turn),
      source_(config.limits, config.can_replay, sink, *this) {}

bool SourcePump::TakeTurn(AnswerLength length) {
  queue_ = &turns_.of(length);
  waits_ = !queue_->Take(this);
  if (!waits_) BeginTurn();
  return !waits_;
}

void SourcePump::BeginTurn() {
  turn_began_ms_ = now_ms_;
  turn_bytes_ = 0;
}

int64_t SourcePump::turn_end_ms() const {
  if (queue_ == nullptr || waits_ || !queue_->IsAwaited()) return kNever;
  const auto mebibytes = static_cast<int64_t>(turn_bytes_ >> 20);
  return turn_began_ms_ + std::min(kTurnMs + 1000 * mebibytes, kMaxTurnMs);
}

void SourcePump::LeaveTurns() {
  waits_ = false;
  if (FairPermits* const queue = std::exchange(queue_, nullptr)) queue->Leave(this);
}

void SourcePump::Request(Frame start) {
  ++requests_;
  request_open_ = true;
  transport_.OpenRequest(start);
}

void SourcePump::CloseRequest() {
  request_open_ = false;
  transport_.CloseRequest();
  LeaveTurns();
}

void SourcePump::ScheduleRenewal() {
  renew_due_ms_ = renewed_ms_ + kRenewalPauseMs;
  transport_.EndLive();
}

void SourcePump::OnEndlessMessage() {
  source_.OnBadMessage();
  NoteDisconnected();
  ScheduleRenewal();
}

void SourcePump::OpenLive(int64_t now_ms) {
  renewed_ms_ = now_ms;
  if (transport_.OpenLive()) {
    if (keeps_large() && !large_->request) large_.reset();  // a live message of the old connection
    renew_due_ms_ = kNever;
    disconnected_ = peer_ = stranger_ = false;
    return;
  }
  // A thread of libzmq releases a bound endpoint a short time after the close.
  const bool soon = config_.bound || config_.resolves;
  renew_due_ms_ = now_ms + (soon ? kRenewalPauseMs : kRetryMs);
}

int64_t SourcePump::deadline_ms() const {
  if (has_new_turn()) return kAtOnce;
  const int64_t due = std::min({source_.deadline_ms(), renew_due_ms_, turn_end_ms()});
  return more_ ? std::min(due, resume_ms_) : due;
}

void SourcePump::Work(int64_t now_ms, bool takes_large) {
  now_ms_ = now_ms;
  takes_large_ = takes_large;
  more_ = false;
  // The clock may have been set back since the last renewal.
  const bool renewal_due = now_ms >= renew_due_ms_ || now_ms < renewed_ms_;
  if (renewal_scheduled() && renewal_due) OpenLive(now_ms);
  if (!renewal_scheduled()) DrainEvents(now_ms);
  DrainMessages(now_ms);
  if (has_new_turn()) {
    waits_ = false;
    BeginTurn();
    source_.OnTurn(now_ms);
  }
  if (now_ms >= turn_end_ms()) source_.OnTurnOver(now_ms);
  source_.OnTimer(now_ms);
}

void SourcePump::DrainMessages(int64_t now_ms) {
  // The clock may have been set back since the pause began.
  const bool pauses = now_ms < resume_ms_ && resume_ms_ - now_ms <= TurnBudget::kMaxPauseMs;
  if (pauses || (keeps_large() && !takes_large_)) {
    more_ = true;
    return;
  }
  budget_.Begin();
  if (keeps_large()) {
    HandleLarge(now_ms);
  } else if (!renewal_scheduled()) {
    DrainLive(now_ms);
  }
  int64_t cost_us = budget_.cost_us();
  budget_.Begin();
  if (!renewal_scheduled() && !keeps_large()) DrainReplies(now_ms);
  cost_us += budget_.cost_us();
  const int64_t pause_ms = budget_.PauseMs(cost_us);
  resume_ms_ = pause_ms > 0 ? now_ms + pause_ms : kAtOnce;
  pauses_ += pause_ms > 0;
  // If the clock was set back, the source is slow for longer, which does no harm.
  slow_until_ms_ = std::max(slow_until_ms_, now_ms + budget_.SlowMs(cost_us));
  if (budget_.IsLong(cost_us)) long_until_ms_ = slow_until_ms_;
}

// Also called between the receipt of a message and its handling, so that an event is handled before
// each message that arrived after the event.
void SourcePump::DrainEvents(int64_t now_ms) {
  while (!renewal_scheduled()) {
    const std::optional<LiveEvent> event = transport_.NextLiveEvent();
    if (!event) return;
    OnLiveEvent(*event, now_ms);
  }
}

void SourcePump::OnLiveEvent(LiveEvent event, int64_t now_ms) {
  switch (event) {
    case LiveEvent::kHandshakeFailed:
      stranger_ = config_.bound;
      return;
    case LiveEvent::kDisconnected:
      if (!std::exchange(stranger_, false)) NoteDisconnected();
      return;
    case LiveEvent::kConnected:
      // A second publisher has connected to the bound endpoint.
      if (config_.bound && std::exchange(peer_, true)) NoteDisconnected();
      // The queue may hold messages of both connections.
      if (disconnected_) return ScheduleRenewal();
      source_.OnConnected(now_ms);
      return;
  }
}

void SourcePump::NoteDisconnected() {
  peer_ = false;
  disconnected_ = true;
  source_.OnDisconnected();
}

void SourcePump::DrainLive(int64_t now_ms) {
  for (bool more = true; more && !muted_;) {
    const std::optional<Frames> frames = transport_.ReceiveLive();
    if (!frames) {
      if (disconnected_) ScheduleRenewal();
      return;
    }
    const size_t bytes = BytesOf(*frames);
    if (MustKeep(bytes)) return Keep({*frames, std::nullopt});
    HandleLive(*frames, now_ms);
    if (renewal_scheduled()) return;
    more = budget_.Take(bytes);
  }
  more_ = !muted_;
}

void SourcePump::HandleLive(Frames frames, int64_t now_ms) {
  DrainEvents(now_ms);
  if (renewal_scheduled()) return;
  if (const std::optional<Batch> batch = ParseLive(frames)) {
    source_.OnLive(*batch, now_ms);
  } else {
    source_.OnBadMessage();
  }
}

void SourcePump::DrainReplies(int64_t now_ms) {
  for (bool more = true; more && !muted_ && request_open_;) {
    const uint64_t request = requests_;
    const std::optional<Frames> frames = transport_.ReceiveReply();
    if (!frames) {
      // Checked after the last reply, because each applied reply resets the source's count of cuts.
      if (transport_.TakeReplyCut()) source_.OnReplyCut(now_ms);
      return;
    }
    const size_t bytes = BytesOf(*frames);
    if (MustKeep(bytes)) return Keep({*frames, request});
    if (!HandleReply(request, *frames, now_ms)) return;
    more = budget_.Take(bytes);
  }
  if (request_open_) more_ = true;
}

bool SourcePump::HandleReply(uint64_t request, Frames frames, int64_t now_ms) {
  DrainEvents(now_ms);
  // An event may have replaced the request that this reply belongs to.
  if (!request_open_ || requests_ != request) return false;
  turn_bytes_ += BytesOf(frames);
  source_.OnReply(ParseReply(frames), now_ms);
  return true;
}

void SourcePump::Keep(LargeMessage message) {
  large_ = message;
  more_ = true;
}

void SourcePump::HandleLarge(int64_t now_ms) {
  const LargeMessage message = *std::exchange(large_, std::nullopt);
  if (muted_) return;
  more_ = true;
  if (message.request) {
    HandleReply(*message.request, message.frames, now_ms);
  } else {
    HandleLive(message.frames, now_ms);
  }
}

}  // namespace kvcast::stream
