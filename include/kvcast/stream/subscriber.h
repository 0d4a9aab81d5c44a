// Subscriber: receives the event streams of any number of publishers, fills gaps with replay, and
// reports the gaps that it could not fill.
//
// An epoch is one run of a publisher; its batches are numbered from 0. For each source, the sink
// gets each batch of an epoch at most once, in the order of sequence numbers. Only batches,
// resets and snapshots change the state of the sink. A sink gets snapshots only if TakesSnapshots
// returns true.
//
// Threads: one thread owns all sockets and calls the sinks. With SubscriberConfig::slow_threads,
// two more threads share this work. The methods of Subscriber are thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/residency/publisher_status.h"
#include "kvcast/stream/curve.h"
#include "kvcast/stream/replica_sink.h"
#include "kvcast/stream/saved_position.h"

namespace kvcast {

// One publisher to follow.
struct SourceConfig {
  WorkerId worker;
  // Endpoint of the publisher's PUB socket; see ParseEndpoint. A host name is looked up again
  // before each new connection, and every five seconds while there is no connection.
  std::string endpoint;
  // Endpoint of the publisher's ROUTER socket. Empty: gaps cannot be filled.
  std::string replay_endpoint;
  std::string topic;  // subscription prefix; empty: all
  // True: the publisher connects its PUB socket to `endpoint`, and the subscriber binds it.
  // `endpoint` must then be a tcp endpoint with an address of this machine and a port. Without
  // server_key, every peer that connects counts as the publisher. The subscriber always connects to
  // the replay endpoint.
  bool bind = false;
  // The publisher's public key (CURVE), for both endpoints. Empty: no encryption, and every program
  // that answers at the endpoints counts as the publisher.
  std::string server_key;
  // Set: the sink holds a state that was saved at this position. The subscriber applies no batch,
  // and the source is kBootstrap, until the publisher has proven to be the same run: by its epoch,
  // or by a replayed batch. If it is another run, or if there is no proof, the subscriber resets
  // the sink. Without a replay endpoint there is no proof.
  std::optional<SavedPosition> resume = std::nullopt;
};

// Knowledge about the state of a source. "The state" means the data that the sink received: all
// batches since the last reset, or the last snapshot and all batches after it.
enum class SourceState : uint8_t {
  // There is no live connection, and the subscriber has not joined the source yet.
  kConnecting,
  // The subscriber is joining the source: it waits for the history or for a snapshot of the source,
  // or for the proof of a saved state.
  kBootstrap,
  // The state is exact: it is the result of all batches of the epoch with numbers below next_seq.
  kSynced,
  // The state is exact up to next_seq, but later batches are missing. The subscriber has requested
  // these batches, and holds back live batches.
  kGap,
  // The state may be wrong. With KVX1, the subscriber will verify or replace it. Without KVX1, a
  // state that lacks events (kBadEvents) stays kSuspect until a reset, or until a batch empties it
  // (BatchResult::kEmptied).
  kSuspect,
  // Earlier data is missing, for example after a reset or a late join. The data since then is
  // correct.
  kCleared,
  // The publisher is silent or disconnected. It may have ended, or another publisher may have
  // replaced it.
  kStale,
  // The subscriber found several times that the state was wrong, or could not receive a snapshot
  // several times; or the state was larger than the sink allows. The subscriber continues to follow
  // the source. The quarantine ends after the state was correct for some time. Without digests, it
  // ends after this time.
  kQuarantined,
};
std::string_view SourceStateName(SourceState state);

// The reason for the state of a source.
enum class SourceReason : uint8_t {
  kNone,
  kJoining,
  kUnheard,  // no first live connection within kUnheardMs
  // The address of a host name is not known yet, or the name has no address.
  kUnresolved,
  kGap,  // a sequence number was skipped
  // The live connection was re-established. A new publisher may have replaced the old one.
  kReconnected,
  // A batch arrived that may belong to another epoch, or the state is a saved state.
  kUnproven,
  // Batches are missing that no replay can return, or a batch shows that earlier events are missing
  // (BatchResult::kIncomplete).
  kLostBatches,
  // A batch could not be decoded. It may have contained removes.
  kUndecodable,
  kBadEvents,  // some events of a batch could not be decoded
  // The publisher's digest differs from the digest of the state.
  kDigest,
  // A batch does not fit the state (BatchResult::kImpossible or kRefuted), or Contradict was
  // called.
  kContradicted,
  kDisconnected,
  kSilent,
  // The state was larger than the sink allows (BatchResult::kTooLarge), and was reset.
  kTooLarge,
};
std::string_view SourceReasonName(SourceReason reason);

// If a source has no first live connection for this time in milliseconds, the reason is kUnheard.
inline constexpr int64_t kUnheardMs = 10000;

// Status of one source. Counters count since Add.
struct SourceStatus {
  SourceState state = SourceState::kConnecting;
  SourceReason reason = SourceReason::kNone;
  // Confidence in answers from this state, in 0..1. 1 for kSynced and kCleared. 0 for kConnecting,
  // kBootstrap and kQuarantined. In the other states, the time since the source was last kSynced or
  // kCleared decides: 0.5 below 5 s, 0.25 below 30 s, then 0. Exception: kGap has 1 in the first
  // 250 ms of this time.
  double weight = 0;
  bool bound = false;  // SourceConfig::bind
  // The publisher supports KVX1: epochs, digests, snapshots.
  bool extended = false;
  // The first sequence number after the last reset or snapshot.
  uint64_t first_seq = 0;
  uint64_t next_seq = 0;  // the first sequence number that is not applied yet
  // Number of batches from next_seq on that are known to exist.
  uint64_t lag = 0;
  uint64_t batches = 0;  // delivered to the sink
  uint64_t gaps = 0;     // gaps in the live stream
  // Requests to the replay endpoint: replays, snapshots, repairs, status requests and challenges.
  uint64_t replays = 0;
  // Requests to the replay endpoint that had to wait for the requests of other sources
  // (SubscriberConfig::max_replays, max_status_requests).
  uint64_t replay_waits = 0;
  // Requests to the replay endpoint without a complete reply in time.
  uint64_t replay_timeouts = 0;
  uint64_t replayed = 0;  // new batches from replays
  // Live batches that were already applied.
  uint64_t duplicates = 0;
  uint64_t reconnects = 0;
  // Live connections that ended before they were established: the peer has another key or no key,
  // does not accept the key of the subscriber, or is not a publisher.
  uint64_t failed_handshakes = 0;
  uint64_t resets = 0;
  // Sequence numbers that never arrived. Numbers from before the subscriber joined the source do
  // not count.
  uint64_t lost = 0;
  // Messages with a wrong frame count or sequence frame, and invalid status messages.
  uint64_t bad_messages = 0;
  uint64_t snapshots = 0;  // applied snapshots
  uint64_t snapshot_failures = 0;
  // Repairs of a state whose digest differed from the publisher's: the subscriber replaced only the
  // digest buckets that differed.
  uint64_t repairs = 0;
  uint64_t repair_failures = 0;
  uint64_t digest_checks = 0;
  // Each mismatch shows a bug, because sequence numbers already show all lost batches.
  uint64_t digest_mismatches = 0;
  uint64_t quarantines = 0;
  // ReplicaSink::replacements when the subscriber made this status. If the sink has a greater
  // number now, this status does not describe the current state of the sink.
  uint64_t replacements = 0;
};

// A hint in one line for the operator, if the reason is kUnheard or kUnresolved. Otherwise empty.
std::string_view SourceHint(const SourceStatus& status);

struct SubscriberConfig {
  // Maximum number of concurrent replays, snapshots and repairs; > 0. Other sources wait. A request
  // without a usable reply releases its slot at its timeout. While other sources wait, a request
  // releases its slot after 10 s plus 1 s for each MiB of replies, at the latest after 60 s.
  size_t max_replays = 4;
  // Maximum number of concurrent status requests and challenges; > 0. Other sources wait. Each
  // request uses up to four file descriptors while it is open.
  size_t max_status_requests = 256;
  // Maximum number of batches per source that wait for a replay, a snapshot or a repair.
  size_t hold_back_batches = 8192;
  size_t hold_back_bytes = 64u << 20;
  // If no frame of the reply arrives for this time, the subscriber requests the replay again. For a
  // snapshot, the time is longer by 5 s for each million copies of blocks that the publisher holds,
  // but by at most 60 s.
  int64_t replay_timeout_ms = 2000;
  // If a source is silent for this time, the subscriber requests the last batch again (with KVX1:
  // the status). The reply shows whether the latest batches were lost, and whether the publisher
  // has restarted and sent no message since then. 0: never.
  int64_t probe_interval_ms = 2000;
  // Silence in milliseconds after which a source is kStale. 0: every silence makes the source
  // kStale, however short. No effect without a replay endpoint. Also no effect if
  // probe_interval_ms is 0 and the publisher does not support KVX1.
  int64_t stale_ms = 3000;
  // Interval between two comparisons of the state with the digests of a publisher with KVX1. The
  // interval varies by up to a quarter, so that the comparisons of many sources are spread over
  // time. 0: never.
  int64_t audit_interval_ms = 10000;
  // Maximum number of live messages in the socket of a source; 0: no limit. The bound is small,
  // because a message may have max_frame_bytes. Further messages wait at the publisher.
  int recv_hwm = 32;
  // Maximum size of a frame in bytes, at least 8192. A longer frame ends its connection. The
  // subscriber then reconnects and requests the missing batches. If a batch exceeds the limit in
  // the replay too, the batch is lost.
  int64_t max_frame_bytes = (64 << 20) + (64 << 10);
  // The subscriber's own keys. A source with a server_key needs them.
  std::optional<CurveKeyPair> curve_keys;
  // True: other threads handle the messages that take long, so that the other sources do not wait
  // for these messages. One thread handles the messages of the sources whose messages took more
  // than 2 ms of CPU time. Another thread handles the messages of the sources whose messages took
  // more than 20 ms, and all messages of more than 64 KiB. The sinks of two sources may then be
  // called at the same time. The calls for one source never overlap.
  bool slow_threads = false;
  // Returns a numeric address of a host name, or an empty text. Called on any thread; it may block,
  // and may still run after the subscriber is destroyed. Empty: the system's resolver.
  std::function<std::string(const std::string& name)> resolve;
  // Returns monotonic milliseconds. Called on the subscriber's threads. Empty: the steady clock of
  // the process.
  std::function<int64_t()> now_ms;
  // The subscriber's thread calls this function after the state of a source, or the reason for the
  // state, has changed. Several changes in one pass of the thread cause at most one call. The
  // function must not block. It may call `status`, but no other method of the subscriber. Empty: no
  // function is called.
  std::function<void(WorkerId, const SourceStatus&)> on_state;
};

// Follows the sources that are added.
class Subscriber {
 public:
  // Starts the subscriber's thread. Errors: kInvalidArgument for an invalid config; kUnavailable if
  // a thread, a socket or a file descriptor is not available; kFailedPrecondition if libzmq is
  // older than 4.3.3.
  static Result<std::unique_ptr<Subscriber>> Create(const SubscriberConfig& config);
  // Waits for the calls of sinks that are in progress. Afterwards no sink is called. A sink,
  // on_state and a thread that holds a lock of a sink must not destroy the subscriber.
  ~Subscriber();

  // Starts to follow a source, from its first batch if replay can return it. The publisher need not
  // run yet. Errors: kInvalidArgument for an invalid endpoint or server_key; kFailedPrecondition if
  // the worker is followed already, or if another thread removes it before this call returns;
  // kUnavailable if the endpoint cannot be bound. The subscriber holds `sink` as long as it follows
  // the source. Several sources may share a sink.
  Status Add(const SourceConfig& source, std::shared_ptr<ReplicaSink> sink);
  // Stops following a source. After the call returns, its sink is not called for this worker. The
  // call waits for a sink call in progress; the caller must therefore hold no lock that the sink
  // takes. A sink may call Remove. Such a call does not wait: if the removed worker is not the
  // worker of the calling sink, the sink of the removed worker may still be called for a short
  // time.
  void Remove(WorkerId worker);
  // Reports that the state of the source is impossible. The subscriber replaces it with a snapshot,
  // or resets it.
  void Contradict(WorkerId worker);
  // Calls `use` once, on the calling thread. `positions` has the followed sources whose state can
  // be saved; see SavedPosition. No sink is called meanwhile, so the states of the sinks belong to
  // these positions. The sources wait until `use` returns. `use` must not call this object. The
  // call waits for the sink calls in progress. Only one call may run at a time. A sink must not
  // call BetweenTurns.
  void BetweenTurns(const std::function<void(const std::vector<FollowedPosition>& positions)>& use);
  // The current status. The sink has received every batch that the status counts as applied. If the
  // worker is not followed, all fields have their default values.
  SourceStatus status(WorkerId worker) const;

 private:
  class Impl;
  explicit Subscriber(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
