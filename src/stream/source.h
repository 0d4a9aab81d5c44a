// Source: what one publisher's stream means. Decides which batches to apply, when to ask for a
// replay and when what was learned must be forgotten. No sockets, no clock: plain calls in, plain
// calls out.
//
// Terms. An epoch is one life of the publisher. A hole is a number that was not applied below one
// that was seen. The source is suspect after a reconnect: the publisher may be another
// one, so nothing is applied until a replayed batch equals one that was applied before.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "kvcast/subscriber.h"
#include "src/stream/fingerprint.h"
#include "src/stream/frames.h"
#include "src/stream/hold_back.h"

namespace kvcast::stream {

struct SourceLimits {
  size_t hold_back_batches = 8192;
  size_t hold_back_bytes = 64u << 20;
  int64_t replay_timeout_ms = 2000;
  int64_t probe_interval_ms = 2000;  // 0: never
};

// What a source wants done. Called from inside its On... functions; must not call back.
struct SourceHooks {
  std::function<void(const Batch&)> apply;
  std::function<void(ResetReason)> reset;
  // Ask for all batches from `start` on. Replies to an earlier request must not be fed any more.
  std::function<void(uint64_t start)> request_replay;
  // No replies are wanted any more.
  std::function<void()> close_replay;
  // Drop the live connection and make a new one: what it still holds may be of an epoch that is
  // over, and must not be fed any more.
  std::function<void()> renew_live;
};

// Thread-compatible. `now_ms` is any monotonic time.
class Source {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // Replays without progress after which a hole is given up.
  static constexpr int kMaxTries = 3;
  // A batch that was published while the subscription was on its way is in neither the first replay
  // nor the live stream: a second look this much later finds it.
  static constexpr int64_t kSettleMs = 100;

  Source(const SourceLimits& limits, bool can_replay, SourceHooks hooks);

  // A live connection is up: the first one, or a new one. Messages of the one before are over.
  void OnConnected(int64_t now_ms);
  // It is down. What it brought before may still be fed; replies are ignored until OnConnected,
  // they could be those of another publisher.
  void OnDisconnected();
  // Messages in the order in which they were received.
  void OnLive(const Batch& batch, int64_t now_ms);
  void OnReply(const Reply& reply, int64_t now_ms);
  void OnBadMessage() { ++status_.bad_messages; }
  // To be called at deadline_ms(), or any time.
  void OnTimer(int64_t now_ms);

  int64_t deadline_ms() const;
  SourceStatus status() const;

 private:
  struct Request {
    bool open = false;
    bool answered = false;       // a batch came
    bool wants_overlap = false;  // starts at a batch that was applied before
    int64_t deadline_ms = 0;
  };

  void OnLiveStepBack(const Batch& batch, int64_t now_ms);
  void OnLiveOverlap(const Batch& batch, int64_t now_ms);
  void OnReplyBatch(const Batch& batch);
  void OnReplyOverlap(const Batch& batch);
  void OnReplayEnd(int64_t now_ms);

  void Apply(const Batch& batch);
  void ApplyHeld();
  void SkipTo(uint64_t seq);
  void TrySkippingHole();
  void BeginEpoch();
  void BeginEpochAnew();
  void Settle(int64_t now_ms);
  void OpenRequest(int64_t now_ms);
  void CloseRequest();

  bool has_hole() const { return next_ < seen_next_; }
  bool IsDuplicate(const Batch& batch) const;
  SourceState state() const;

  const SourceLimits limits_;
  const bool can_replay_;
  const SourceHooks hooks_;

  uint64_t next_ = 0;       // first number not applied
  uint64_t live_next_ = 0;  // above the highest number seen live
  uint64_t seen_next_ = 0;  // above the highest number seen at all
  bool joined_ = false;     // this epoch's first batch is known
  bool applied_ = false;    // a batch was applied since the last reset
  bool degraded_ = false;   // this epoch has batches that were never had
  bool suspect_ = false;
  bool recheck_ = false;     // becomes suspect when the open replay has ended
  bool ring_seen_ = false;   // the publisher has answered with a batch: its ring holds some
  bool unanswered_ = false;  // the last replay timed out
  bool connected_ = false;
  bool was_connected_ = false;
  bool settled_ = false;  // the second look after joining was scheduled
  int tries_ = 0;
  int64_t probe_due_ms_ = 0;
  Request request_;
  HoldBack hold_back_;
  FingerprintWindow applied_payloads_;
  SourceStatus status_;
};

}  // namespace kvcast::stream
