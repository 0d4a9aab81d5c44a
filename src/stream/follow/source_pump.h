// SourcePump: the loop that feeds one Source from its network. It defines the order of events, live
// messages, replies and timers, and renews the live connection. The subscriber and the simulation
// use the same pump with different transports.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "src/stream/follow/request_turns.h"
#include "src/stream/follow/source.h"
#include "src/stream/follow/source_network.h"
#include "src/stream/follow/source_transport.h"
#include "src/stream/follow/turn_budget.h"

namespace kvcast::stream {

struct PumpConfig {
  SourceLimits limits;
  bool can_replay = false;
  // The publisher connects to the source. Any number of peers can connect, one after the other or
  // at the same time.
  bool bound = false;
  // The transport looks up a name before it makes a connection. OpenLive fails until the address is
  // known.
  bool resolves = false;
  // Limits for one call of Work. They apply to the live messages, and separately to the replies.
  TurnLimits turn;
};

// Thread-compatible.
class SourcePump final : private SourceNetwork {
 public:
  // Minimum time between two live connections. It bounds the work if a received frame ends each
  // connection.
  static constexpr int64_t kRenewalPauseMs = 100;
  // Pause after a failed attempt to make a live connection, for example if no socket was available.
  // If the endpoint is bound or has a host name, the pause is kRenewalPauseMs.
  static constexpr int64_t kRetryMs = 1000;

  // A turn is the permit for one request. While other sources wait for a turn, a turn lasts kTurnMs
  // plus 1 s for each MiB of replies, but at most kMaxTurnMs.
  static constexpr int64_t kTurnMs = 10'000;
  static constexpr int64_t kMaxTurnMs = 60'000;

  // All arguments must outlive the pump. Before the first Work, the live connection must be open,
  // or ScheduleRenewal must be called.
  SourcePump(const PumpConfig& config, SourceTransport& transport, RequestTurns& turns,
             ReplicaSink& sink);
  ~SourcePump() override { LeaveTurns(); }
  SourcePump(const SourcePump&) = delete;
  SourcePump& operator=(const SourcePump&) = delete;

  // See Source::Resume. REQUIRES: Work was not called.
  void Resume(const SavedPosition& position) { source_.Resume(position); }
  // Handles a bounded number of messages and all due timers. Never blocks. Without `takes_large`,
  // the pump keeps a large message (TurnLimits::large_bytes), and handles no other message, until a
  // call with `takes_large`.
  void Work(int64_t now_ms, bool takes_large = true);
  // The caller found that the worker's blocks are wrong. The source drops the blocks, or replaces
  // them with a snapshot: see Source::OnContradiction.
  void Contradict(int64_t now_ms) { source_.OnContradiction(now_ms); }
  // The live connection cannot be used: schedules a new one.
  void ScheduleRenewal();
  // A message of the live connection does not end.
  void OnEndlessMessage();
  // After this call no message is handled, and the sink is not called.
  void Mute() {
    muted_ = true;
    source_.Mute();
  }

  // The time of the next Work, unless the transport has a message or an event before.
  int64_t deadline_ms() const;
  // True: a new live connection is due, or is scheduled for later.
  bool renewal_scheduled() const { return renew_due_ms_ != kNever; }
  // True: the source waited for a turn, and has it.
  bool has_new_turn() const { return waits_ && has_turn(); }
  bool has_turn() const { return queue_ != nullptr && queue_->Has(this); }
  // Number of pauses that the TurnBudget required.
  uint64_t pauses() const { return pauses_; }
  // True: the pump keeps a large message.
  bool keeps_large() const { return large_.has_value(); }
  // The expected length of the next call of Work. In TurnLength and TurnBudget, a turn is one call
  // of Work, not a permit.
  TurnLength next_turn(int64_t now_ms) const {
    if (keeps_large() || now_ms < long_until_ms_) return TurnLength::kLong;
    return now_ms < slow_until_ms_ ? TurnLength::kSlow : TurnLength::kShort;
  }
  const Source& source() const { return source_; }

 private:
  // A received message that was not handled yet.
  struct LargeMessage {
    Frames frames;                    // valid until the pump receives the next message
    std::optional<uint64_t> request;  // a reply to this request; nullopt: a live message
  };
  bool TakeTurn(AnswerLength length) override;
  void Request(Frame start) override;
  void CloseRequest() override;
  void RenewLive() override { ScheduleRenewal(); }
  void LeaveTurns();
  void BeginTurn();
  // When the source must give its turn up. kNever: no other source waits for a turn.
  int64_t turn_end_ms() const;

  void OpenLive(int64_t now_ms);
  // Drains the live messages and the replies.
  void DrainMessages(int64_t now_ms);
  void DrainEvents(int64_t now_ms);
  void OnLiveEvent(LiveEvent event, int64_t now_ms);
  void NoteDisconnected();
  void DrainLive(int64_t now_ms);
  void DrainReplies(int64_t now_ms);
  void HandleLive(Frames frames, int64_t now_ms);
  // False: the request has ended, so its replies are dropped.
  bool HandleReply(uint64_t request, Frames frames, int64_t now_ms);
  bool MustKeep(size_t bytes) const { return !takes_large_ && bytes > config_.turn.large_bytes; }
  void Keep(LargeMessage message);
  void HandleLarge(int64_t now_ms);

  const PumpConfig config_;
  SourceTransport& transport_;
  RequestTurns& turns_;
  bool muted_ = false;
  bool more_ = false;        // the latest Work ended before the transport was empty
  bool takes_large_ = true;  // of the current Work
  std::optional<LargeMessage> large_;
  TurnBudget budget_;
  int64_t resume_ms_ = kAtOnce;  // no message is handled before this time
  uint64_t pauses_ = 0;
  int64_t slow_until_ms_ = kAtOnce;
  int64_t long_until_ms_ = kAtOnce;
  FairPermits* queue_ = nullptr;  // where the source has or awaits a turn; nullptr: none
  // The source waits for a turn, or has a turn that Work has not noticed.
  bool waits_ = false;
  int64_t turn_began_ms_ = 0;
  size_t turn_bytes_ = 0;  // of the replies in the turn
  int64_t now_ms_ = 0;     // of the latest Work

  bool peer_ = false;              // bound: a publisher is connected
  bool disconnected_ = false;      // the live connection has ended
  bool stranger_ = false;          // bound: the next kDisconnected belongs to a failed handshake
  int64_t renew_due_ms_ = kNever;  // when to make the next live connection
  int64_t renewed_ms_ = -kRenewalPauseMs;  // the latest attempt to make a live connection

  uint64_t requests_ = 0;  // number of requests since the start of the pump
  bool request_open_ = false;
  Source source_;
};

}  // namespace kvcast::stream
