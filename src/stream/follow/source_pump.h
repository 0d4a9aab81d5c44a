// SourcePump: the loop that feeds one Source from its network: in which order events, live
// messages, replies and timers are handled, and when the live connection is made again. The
// subscriber and the simulation run the same pump; only the transport differs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/stream/follow/source.h"
#include "src/stream/follow/source_network.h"
#include "src/stream/follow/source_transport.h"
#include "src/stream/follow/turns.h"

namespace kvcast::stream {

struct PumpConfig {
  SourceLimits limits;
  bool can_replay = false;
  // The publisher connects to the source. Any number of peers can connect, one after the other or
  // at the same time.
  bool bound = false;
  // Live messages, and replies, of one turn. > 0.
  int messages_per_turn = 256;
};

// Thread-compatible.
class SourcePump final : private SourceNetwork {
 public:
  // Minimum time between two live connections. Bounds the work that frames cause which no
  // connection survives.
  static constexpr int64_t kRenewalPauseMs = 100;
  // Between attempts to make a live connection for which no socket was left.
  static constexpr int64_t kRetryMs = 1000;

  // All must outlive the pump. The live connection is open.
  SourcePump(const PumpConfig& config, SourceTransport& transport, Turns& turns, ReplicaSink& sink);
  ~SourcePump() override { LeaveTurns(); }
  SourcePump(const SourcePump&) = delete;
  SourcePump& operator=(const SourcePump&) = delete;

  // One turn: handles a bounded number of messages and all that is due. Never waits.
  void Work(int64_t now_ms);
  void Contradict(int64_t now_ms) { source_.OnContradiction(now_ms); }
  // The live connection cannot be used: a new one is made.
  void ScheduleRenewal();
  // From now on no message is handled, and the sink is not called.
  void Mute() {
    muted_ = true;
    source_.Mute();
  }

  // When to call Work, unless the transport has something before.
  int64_t deadline_ms() const;
  // A new live connection is due, or has to be made later.
  bool renewal_scheduled() const { return renew_due_ms_ != Source::kNever; }
  // The source waited for a turn that has come.
  bool has_new_turn() const { return waits_ && has_turn(); }
  bool has_turn() const { return turns_.Has(this); }
  const Source& source() const { return source_; }

 private:
  bool TakeTurn() override;
  void Request(Frame start) override;
  void CloseRequest() override;
  void RenewLive() override { ScheduleRenewal(); }
  void LeaveTurns();

  void OpenLive(int64_t now_ms);
  void DrainEvents(int64_t now_ms);
  void OnLiveEvent(LiveEvent event, int64_t now_ms);
  void NoteDisconnected();
  void DrainLive(int64_t now_ms);
  void DrainReplies(int64_t now_ms);

  const PumpConfig config_;
  SourceTransport& transport_;
  Turns& turns_;
  bool muted_ = false;
  bool more_ = false;      // the last turn ended before the transport was empty
  bool in_turns_ = false;  // has a turn, or waits for one
  bool waits_ = false;

  bool peer_ = false;                      // bound: a publisher is connected
  bool disconnected_ = false;              // the live connection has ended
  bool stranger_ = false;                  // bound: the next end of a connection is a stranger's
  int64_t renew_due_ms_ = Source::kNever;  // when to make the next live connection
  int64_t renewed_ms_ = -kRenewalPauseMs;  // when the latest one was made

  uint64_t requests_ = 0;  // so far
  bool request_open_ = false;
  Source source_;
};

}  // namespace kvcast::stream
