// Subscriber: follows the event streams of any number of publishers, closes gaps through replay,
// and says honestly when it could not.
//
// An epoch is one life of a publisher; its batches are numbered from 0. Per source the sink sees
// each batch of an epoch at most once and in sequence order; everything else is a reset.
//
// Threads: one thread owns all sockets and calls the sink. Add, Remove and status are thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/ids.h"
#include "kvcast/status.h"

namespace kvcast {

struct SourceConfig {
  WorkerId worker;
  std::string endpoint;         // where the publisher's PUB listens
  std::string replay_endpoint;  // its ROUTER; empty: gaps cannot be closed
  std::string topic;            // subscription prefix; empty: all
};

enum class SourceState : uint8_t {
  kConnecting,  // no live connection, or without replay: nothing received yet
  kReplaying,   // joining, closing a gap or proving that the publisher is still the same one; live
                // batches are held back
  kSynced,      // every batch of the epoch up to next_seq has been applied
  kDegraded,    // batches of the epoch are missing and cannot be had; ends with the epoch
};
std::string_view SourceStateName(SourceState state);

// Why the state learned so far must be forgotten.
enum class ResetReason : uint8_t {
  kRestart,      // the publisher began again at 0
  kLostBatches,  // a gap that replay could not fill
};
std::string_view ResetReasonName(ResetReason reason);

struct SourceStatus {
  SourceState state = SourceState::kConnecting;
  uint64_t first_seq = 0;        // first one applied since the last reset
  uint64_t next_seq = 0;         // first sequence number not applied yet
  uint64_t batches = 0;          // delivered to the sink
  uint64_t gaps = 0;             // seen in the live stream
  uint64_t replays = 0;          // replay requests sent, probes included
  uint64_t replay_timeouts = 0;  // of them, not answered in time
  uint64_t replayed = 0;         // new batches that came by replay
  uint64_t duplicates = 0;       // live batches that had been applied before
  uint64_t reconnects = 0;
  uint64_t resets = 0;
  uint64_t lost = 0;          // sequence numbers that never came, those before joining not counted
  uint64_t bad_messages = 0;  // wrong frame count or sequence frame
};

// Called on the subscriber's thread; must not block for long. The payload is borrowed for the call.
// Neither may throw.
struct SubscriberSink {
  std::function<void(WorkerId, Seq, std::span<const uint8_t> payload)> on_batch;
  std::function<void(WorkerId, ResetReason)> on_reset;
};

struct SubscriberConfig {
  size_t hold_back_batches = 8192;  // live batches kept while a replay runs, per source
  size_t hold_back_bytes = 64u << 20;
  int64_t replay_timeout_ms = 2000;  // without a frame; then the replay is asked for again
  // A source that has been silent this long is asked for a replay of its last batch: finds a lost
  // tail and a silent restart. 0: never.
  int64_t probe_interval_ms = 2000;
  int recv_hwm = 100000;  // live messages a socket holds, per source
  // Monotonic milliseconds; empty: the process's steady clock. Called on the subscriber's thread.
  std::function<int64_t()> now_ms;
};

class Subscriber {
 public:
  static Result<std::unique_ptr<Subscriber>> Create(const SubscriberConfig& config,
                                                    SubscriberSink sink);
  ~Subscriber();

  // The source is followed from its first batch if replay can give it. The publisher need not be
  // there yet. Errors: kInvalidArgument for a bad endpoint, kFailedPrecondition if the worker is
  // followed already.
  Status Add(const SourceConfig& source);
  // When it returns, the sink is not called for this worker any more. Waits for a sink call in
  // progress, so hold no lock that the sink takes; may be called by the sink itself.
  void Remove(WorkerId worker);
  // Snapshot. What it counts as applied, the sink has seen. Default values: not followed.
  SourceStatus status(WorkerId worker) const;

 private:
  class Impl;
  explicit Subscriber(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
