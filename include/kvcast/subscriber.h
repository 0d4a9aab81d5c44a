// Subscriber: follows the event streams of any number of publishers, closes gaps through replay,
// and says honestly when it could not.
//
// An epoch is one life of a publisher; its batches are numbered from 0. A source's sink sees each
// batch of an epoch at most once and in sequence order; everything else is a reset.
//
// Threads: one thread owns all sockets and calls the sinks. Add, Remove and status are thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/ids.h"
#include "kvcast/publisher_status.h"
#include "kvcast/replica_sink.h"
#include "kvcast/status.h"

namespace kvcast {

struct SourceConfig {
  WorkerId worker;
  std::string endpoint;         // where the publisher's PUB listens
  std::string replay_endpoint;  // its ROUTER; empty: gaps cannot be closed
  std::string topic;            // subscription prefix; empty: all
  // The publisher connects its PUB to `endpoint`, and the source binds it: a tcp endpoint with an
  // address of this machine and a port. Whatever connects there is taken for the publisher. The
  // replay endpoint is connected to in any case.
  bool bind = false;
};

// What is known of the source's state here. "The state" is what its sink was given: batches since
// the last reset, or the last snapshot and the batches behind it.
enum class SourceState : uint8_t {
  kConnecting,  // no live connection was made yet
  kBootstrap,   // joining: the history or a snapshot is on its way
  kSynced,      // the state is exactly what the epoch's batches up to next_seq define
  kGap,         // exact, but numbers are missing and being fetched; live batches are held back
  kSuspect,     // the state may be wrong: to be proven or replaced
  kCleared,     // was forgotten: what the sink got since is true, but not all that there is
  kStale,       // nothing was heard of the publisher: it may be another one, or gone
  // Was found wrong again and again, although it was replaced. Followed on, and believed again when
  // it has been right for a while.
  kQuarantined,
};
std::string_view SourceStateName(SourceState state);

// Why a source is in its state.
enum class SourceReason : uint8_t {
  kNone,
  kJoining,
  kUnheard,       // no live connection for kUnheardMs
  kGap,           // a number was passed over
  kReconnected,   // the live connection was made anew: the publisher may be another one
  kUnproven,      // a batch came that could be of another epoch
  kLostBatches,   // numbers that nobody can give any more
  kUndecodable,   // a batch could not be decoded: it may have held removes
  kBadEvents,     // events of a batch could not be decoded
  kDigest,        // the publisher's digest says otherwise
  kContradicted,  // a batch, or somebody who knows, says that the state is impossible
  kDisconnected,
  kSilent,
};
std::string_view SourceReasonName(SourceReason reason);

// Of waiting for the first live connection; then the reason is kUnheard.
inline constexpr int64_t kUnheardMs = 10000;

struct SourceStatus {
  SourceState state = SourceState::kConnecting;
  SourceReason reason = SourceReason::kNone;
  // How far answers from this state are to be trusted, 0 to 1. Unsure states count in full for 250
  // ms while a gap is closed, then half, a quarter after 5 s and nothing after 30 s. Quarantined
  // ones count nothing.
  double weight = 0;
  bool bound = false;            // SourceConfig::bind
  bool extended = false;         // the publisher speaks KVX1: epochs, digests, snapshots
  uint64_t first_seq = 0;        // first one applied since the last reset
  uint64_t next_seq = 0;         // first sequence number not applied yet
  uint64_t lag = 0;              // numbers that are known to exist from next_seq on
  uint64_t batches = 0;          // delivered to the sink
  uint64_t gaps = 0;             // seen in the live stream
  uint64_t replays = 0;          // requests sent, probes included
  uint64_t replay_waits = 0;     // of them, that had to wait for their turn
  uint64_t replay_timeouts = 0;  // of them, not answered in time or cut off
  uint64_t replayed = 0;         // new batches that came by replay
  uint64_t duplicates = 0;       // live batches that had been applied before
  uint64_t reconnects = 0;
  uint64_t resets = 0;
  uint64_t lost = 0;          // sequence numbers that never came, those before joining not counted
  uint64_t bad_messages = 0;  // wrong frame count or sequence frame, or not a status
  uint64_t snapshots = 0;     // taken over
  uint64_t snapshot_failures = 0;
  uint64_t repairs = 0;  // of states that differed: only the buckets that did were replaced
  uint64_t repair_failures = 0;
  uint64_t digest_checks = 0;
  uint64_t digest_mismatches = 0;  // each one a bug: sequence numbers should have shown the cause
  uint64_t quarantines = 0;
};

// For the operator, one line: what to look at while the reason is kUnheard. Else empty.
std::string_view SourceHint(const SourceStatus& status);

struct SubscriberConfig {
  // Replays and snapshots at once; other sources wait for their turn. One that is not answered
  // gives its place up after replay_timeout_ms. > 0.
  size_t max_replays = 4;
  size_t hold_back_batches = 8192;  // live batches kept while a replay runs, per source
  size_t hold_back_bytes = 64u << 20;
  int64_t replay_timeout_ms = 2000;  // without a frame; then the replay is asked for again
  // A source that has been silent this long is asked for a replay of its last batch: finds a lost
  // tail and a silent restart. 0: never.
  int64_t probe_interval_ms = 2000;
  // Of silence; then the source is stale.
  int64_t stale_ms = 3000;
  // Between comparisons with the digests of a publisher that speaks KVX1, a quarter more or less,
  // so that those of many sources do not come together. 0: never.
  int64_t audit_interval_ms = 10000;
  int recv_hwm = 100000;  // live messages a socket holds, per source
  // A longer frame ends the connection that brought it. A new one is made, and what was lost is
  // asked for; what is longer than this in a replay, too, is lost.
  // At least 8192.
  int64_t max_frame_bytes = (64 << 20) + (64 << 10);
  // Monotonic milliseconds; empty: the process's steady clock. Called on the subscriber's thread.
  std::function<int64_t()> now_ms;
};

class Subscriber {
 public:
  static Result<std::unique_ptr<Subscriber>> Create(const SubscriberConfig& config);
  ~Subscriber();

  // The source is followed from its first batch if replay can give it. The publisher need not be
  // there yet. `sink` is held as long as the source is followed; several sources may share one.
  // Errors: kInvalidArgument for a bad endpoint, kFailedPrecondition if the worker is followed
  // already, kUnavailable if the endpoint cannot be bound.
  Status Add(const SourceConfig& source, std::shared_ptr<ReplicaSink> sink);
  // When it returns, the worker's sink is not called for it any more. Waits for a sink call in
  // progress, so hold no lock that the sink takes; may be called by the sink itself.
  void Remove(WorkerId worker);
  // Finds the source's state impossible: it is replaced by a snapshot, or forgotten.
  void Contradict(WorkerId worker);
  // As of now. What it counts as applied, the sink has seen. Default values: not followed.
  SourceStatus status(WorkerId worker) const;

 private:
  class Impl;
  explicit Subscriber(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
