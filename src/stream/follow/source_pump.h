// SourcePump: the loop that feeds one Source from its network. It defines the order of events, live
// messages, replies and timers, and makes the live connection again. The subscriber and the
// simulation use the same pump with different transports.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/stream/follow/fair_permits.h"
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
  // Of the live messages, and again of the replies, in one call of Work.
  TurnLimits turn;
};

// Thread-compatible.
class SourcePump final : private SourceNetwork {
 public:
  // Minimum time between two live connections. It bounds the work if received frames end each
  // connection.
  static constexpr int64_t kRenewalPauseMs = 100;
  // Pause after a failed attempt to make a live connection, for example if no socket was available.
  // For a bound endpoint, or with a name, the pause is kRenewalPauseMs.
  static constexpr int64_t kRetryMs = 1000;

  // While others wait for a turn, a turn lasts for kTurnMs, and 1 s more for each MiB of replies,
  // but at most for kMaxTurnMs.
  static constexpr int64_t kTurnMs = 10'000;
  static constexpr int64_t kMaxTurnMs = 60'000;

  // All arguments must outlive the pump. The live connection must be open.
  SourcePump(const PumpConfig& config, SourceTransport& transport, FairPermits& turns,
             ReplicaSink& sink);
  ~SourcePump() override { LeaveTurns(); }
  SourcePump(const SourcePump&) = delete;
  SourcePump& operator=(const SourcePump&) = delete;

  // Handles a bounded number of messages and all due timers. Never blocks.
  void Work(int64_t now_ms);
  void Contradict(int64_t now_ms) { source_.OnContradiction(now_ms); }
  // The live connection cannot be used: schedules a new one.
  void ScheduleRenewal();
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
  bool has_turn() const { return turns_.Has(this); }
  // Number of pauses after slow turns.
  uint64_t pauses() const { return pauses_; }
  const Source& source() const { return source_; }

 private:
  bool TakeTurn() override;
  void Request(Frame start) override;
  void CloseRequest() override;
  void RenewLive() override { ScheduleRenewal(); }
  void LeaveTurns();
  void BeginTurn();
  // True if others wait, and the turn has lasted long enough.
  bool IsTurnOver() const;

  void OpenLive(int64_t now_ms);
  // Drains the live messages and the replies.
  void DrainMessages(int64_t now_ms);
  void DrainEvents(int64_t now_ms);
  void OnLiveEvent(LiveEvent event, int64_t now_ms);
  void NoteDisconnected();
  void DrainLive(int64_t now_ms);
  void DrainReplies(int64_t now_ms);

  const PumpConfig config_;
  SourceTransport& transport_;
  FairPermits& turns_;
  bool muted_ = false;
  bool more_ = false;  // the latest Work ended before the transport was empty
  TurnBudget budget_;
  int64_t resume_ms_ = kAtOnce;  // no message is handled before this time
  uint64_t pauses_ = 0;
  bool in_turns_ = false;  // has a turn, or waits for a turn
  bool waits_ = false;
  int64_t turn_ms_ = 0;    // when the turn began
  size_t turn_bytes_ = 0;  // of the replies in the turn
  int64_t now_ms_ = 0;     // of the latest Work

  bool peer_ = false;              // bound: a publisher is connected
  bool disconnected_ = false;      // the live connection has ended
  bool stranger_ = false;          // bound: the peer of the next kDisconnected is not a publisher
  int64_t renew_due_ms_ = kNever;  // when to make the next live connection
  int64_t renewed_ms_ = -kRenewalPauseMs;  // when the latest live connection was made

  uint64_t requests_ = 0;  // number of requests since the start of the pump
  bool request_open_ = false;
  Source source_;
};

}  // namespace kvcast::stream
