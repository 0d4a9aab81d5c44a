// Publisher: sends event batches over a ZMQ PUB socket, and answers replay requests over a ROUTER
// socket. It is wire-compatible with vLLM's ZmqEventPublisher.
//
// Live message: [topic][sequence number, 8 bytes big-endian][payload]. Replay messages: see
// schemas/README.md.
//
// Threads: Publish only queues a batch, unless the queue is full (see Publish). PublishPayload and
// counters encode the queued batches on the calling thread. One thread sends the batches. The first
// thread that reads a batch from the ring encodes it; this is usually the sending thread. One
// thread answers replay requests. One thread publishes heartbeats and the events of Add that are
// due. These threads share the ring of published batches and, with KVX1, the record of the engine's
// blocks. The sending thread and ZeroMQ's I/O thread belong to the publisher, except with
// PublisherConfig::shares_threads. Inproc endpoints use the process-wide ZeroMQ context.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "kvcast/residency/publisher_status.h"
#include "kvcast/stream/curve.h"
#include "kvcast/stream/published_state.h"
#include "kvcast/wire/wire.h"

namespace kvcast {

// Frames of a replay reply. vLLM sends the topic frame from 2026-07-07 on.
enum class ReplayLayout : uint8_t { kTopicSeqPayload, kSeqPayload };

struct PublisherConfig {
  std::string endpoint = "tcp://127.0.0.1:5557";  // of the PUB socket
  std::string replay_endpoint;                    // of the ROUTER socket; empty: no replay
  std::string topic;                              // may be empty
  int64_t data_parallel_rank = 0;
  Dialect dialect = kDefaultDialect;
  ReplayLayout replay_layout = ReplayLayout::kTopicSeqPayload;
  // Limits of the ring. The ring holds the batches that replay can return and the batches that are
  // not sent yet. If a limit is exceeded, the oldest batch is dropped; the newest batch always
  // stays.
  size_t ring_batches = 10000;  // > 0
  size_t ring_bytes = 256u << 20;
  int send_hwm = 100000;  // PUB high-water mark, messages per subscriber; 0: no limit
  // True: the publisher answers KVX1 requests (see schemas/README.md). It then records the blocks
  // that the engine holds according to its batches, about 100 bytes per block. No effect without a
  // replay endpoint.
  bool extension = true;
  // True: in the digests and snapshots of KVX1, a store of a block that the group already holds in
  // the tier adds no second copy. For the events of engines that need
  // WorkerConfig::repeats_are_refreshes. All readers of the digests must have that option, too.
  bool repeats_are_refreshes = false;
  // With KVX1: the maximum number of recorded blocks. A block that several groups or tiers hold
  // counts once for each group and tier. The maximum number of copies of all recorded blocks is
  // max_blocks, or twice the number of recorded blocks if this is more. If the engine exceeds a
  // maximum, the publisher has no digests in the rest of its epoch. Both maxima also apply to the
  // state of `resume`.
  uint64_t max_blocks = 1u << 24;
  // Identifier of this run of the publisher; every run must have a new value. nullopt: random.
  std::optional<Epoch> epoch;
  // After this time without a batch, the publisher sends an empty batch (heartbeat). Subscribers
  // can then detect a lost last batch, or a silent publisher. There is no heartbeat before the
  // first batch of Publish or Add, or of PublishPayload with a time stamp. The time stamp of a
  // heartbeat is the time stamp of the latest such batch plus the time since then. Exception: with
  // `resume`, a heartbeat before the first such batch has the time of the wall clock. 0: never.
  int64_t heartbeat_ms = 1000;
  // If no batch follows Add within this time, the events of Add are published in a batch of their
  // own. 0: they wait for the next batch.
  int64_t flush_ms = 50;
  // Limits of one replay connection: requests per second, and bytes of replies per second. After a
  // pause, a burst may use the requests of four seconds and the bytes of one second. Beyond a
  // limit, replies are delayed. 0: no limit.
  double replay_requests_per_s = 64;
  double replay_bytes_per_s = 256 << 20;
  // True: all publishers of this process with this option share one sending thread and one I/O
  // thread. This costs less if a process has many publishers. While other such publishers exist,
  // the queued batches of a destroyed publisher may be sent after its destructor has returned. The
  // ports of the destroyed publisher may also stay in use after that time.
  bool shares_threads = false;
  // Address of this node. It replaces `*` in the endpoint tcp://*:0; see NodeEndpoint.
  std::string host_ip;
  // True: the PUB socket binds `endpoint`. False: it connects. nullopt: BindsEndpoint decides.
  std::optional<bool> binds;
  // Clients need the role kSubscribe for the PUB socket. For the ROUTER socket they need kReplay or
  // kSnapshot. Each request also needs its own role. If a client loses its last role for a socket,
  // all connections of this socket end within one second. The other clients connect again and fill
  // their gaps. nullopt: no encryption, and every peer is accepted. `curve` has no effect on inproc
  // endpoints.
  std::optional<CurveServer> curve;
  // True: all batches carry hashes, but no content of prompts; see kvcast/core/redact.h.
  // Subscribers then cannot verify the hash scheme of the batches, so the publisher should have
  // answer_challenge.
  bool hashes_only = false;
  // Answers a challenge, which shows the hash scheme of the engine; see
  // kvcast/engine/chain_prover.h and kvcast/router/scheme_prover.h. Empty: the publisher answers no
  // challenges. A batch without events: there is no answer yet, and the reader may ask again. No
  // effect without KVX1. Called on the thread that answers replay requests. The function must
  // return within milliseconds, and must not throw.
  std::function<EventBatch(uint64_t nonce)> answer_challenge;
  // Gets each batch in order, with the content of prompts, before it is published. nullptr: a batch
  // has an unknown content, because its payload is empty or has an event that cannot be decoded.
  // Heartbeats are left out. If `observe` is set, PublishPayload decodes each payload. Called on
  // the thread that calls the publisher, or on the thread that publishes the events of Add that are
  // due. One call runs at a time. The function must not throw, and must not call the publisher.
  std::function<void(const EventBatch* batch)> observe;
  // True: the publisher starts silent; see Publisher::SetSilent and SpeakUntil.
  bool silent = false;
  // True: while the publisher is silent, its batches stay in the ring. They are sent when the
  // silence ends. If the ring drops a batch during the silence, subscribers see a gap. The
  // destructor of a silent publisher does not send the batches.
  bool holds_while_silent = false;
  // Set: the publisher begins with this state, and its first batch has the number
  // resume->status.next_seq. The earlier batches cannot be replayed, so a subscriber needs a
  // snapshot. Without `epoch`, the epoch is a new one. Needs KVX1 and a replay endpoint.
  std::shared_ptr<const PublishedState> resume;
  // Monotonic microseconds; empty: the process's steady clock. Called on the caller's thread and on
  // the publisher's threads.
  std::function<int64_t()> now_us;
};

// Returns the endpoint of one data-parallel rank. For tcp, the rank is added to the port (port 0
// stays 0). For inproc, "_dp<rank>" is appended. The endpoint does not change if the rank is 0 or
// the endpoint is empty. Errors: kInvalidArgument for a negative rank; with rank > 0 also for other
// transports, for a tcp endpoint without a valid port, and for a port plus rank above 65535.
Result<std::string> EndpointForRank(std::string_view endpoint, int64_t rank);
// Replaces `tcp://*:0` with `tcp://HOST:0`, so that subscribers on other nodes get an address. HOST
// is `host_ip`. If `host_ip` is empty, HOST is the address of the default route. Without a default
// route, HOST is 127.0.0.1. Other endpoints do not change. Error: kInvalidArgument if `host_ip` is
// a wildcard. Source: vLLM from v0.31 on.
Result<std::string> NodeEndpoint(std::string_view endpoint, std::string_view host_ip = {});
// True: a PUB socket binds the endpoint. False: it connects to the endpoint. These endpoints are
// bound: endpoints that contain "*" or "::", ipc, inproc, port 0, and the tcp addresses 0.0.0.0 and
// 127.x. The replay ROUTER always binds.
bool BindsEndpoint(std::string_view endpoint);

struct PublisherCounters {
  uint64_t batches = 0;     // used sequence numbers
  uint64_t bytes = 0;       // payload bytes of all batches
  uint64_t heartbeats = 0;  // number of heartbeats among the batches
  // Batches that could not be encoded, empty payloads, and with hashes_only payloads that could not
  // be decoded. Their sequence numbers are gaps that replay cannot fill.
  uint64_t encode_errors = 0;
  // Batches that left the ring before they were sent live. Subscribers see the gap.
  uint64_t live_dropped = 0;
  uint64_t replay_requests = 0;
  uint64_t replay_batches = 0;  // batches in replies
  uint64_t replay_delays = 0;   // number of waits for the rate limit of a client
  uint64_t replay_rejects = 0;  // malformed requests, without a reply
  // Requests that were not served completely: the client disconnected, there were more clients or
  // requests than the server serves at a time, or the client read a snapshot too slowly while
  // another request waited for a snapshot.
  uint64_t replay_dropped = 0;
  // Requests whose client does not have the role. They get an END without a status.
  uint64_t replay_denied = 0;
  RefusedConnections refused;  // by both sockets
  // Connections of both sockets that were ended because the peer sent too many bytes: more than
  // 64 KiB of subscriptions, or 256 KiB without a whole request.
  uint64_t flooding_peers = 0;
  uint64_t access_list_failures = 0;  // see AccessList::failed_refreshes
};

// The publisher of one data-parallel rank. Publish, PublishPayload, Add and Flush must be called by
// one thread at a time. All other methods are thread-safe. The destructor passes all queued batches
// to ZeroMQ, and waits at most one second until ZeroMQ has sent them. With shares_threads or an
// inproc endpoint, it is possible that the destructor does not wait.
class Publisher {
 public:
  // Binds (or connects) the sockets, and starts the threads. Errors: kInvalidArgument for an
  // invalid endpoint or config, or if `resume` contradicts itself; kUnavailable for an address in
  // use, or if a thread cannot start; kFailedPrecondition if libzmq is older than 4.3.3. The
  // message names the endpoint or the cause.
  static Result<std::unique_ptr<Publisher>> Create(const PublisherConfig& config);
  ~Publisher();

  // Assigns the next sequence number to the batch and queues it. The batch is sent within one
  // millisecond if a core is free for the sending thread. The call never blocks on a socket or a
  // subscriber. The call encodes batches only if the queue is full: 256 batches, or more than 2^20
  // events, hashes and tokens. A batch without a rank gets the rank of the publisher.
  //
  // kInvalidArgument: the batch cannot be encoded. Its sequence number is used. The number is a gap
  // that replay cannot fill, so every subscriber detects the loss. A KVX1 snapshot still contains
  // the content of the batch. Exception: the hashes, tiers or kinds of the batch cannot be encoded.
  // The publisher then has no digests from this batch on.
  Result<Seq> Publish(EventBatch batch);
  // Queues events for the next batch, before the batch's own events. If no batch follows (for
  // example when an idle engine resets its cache), the events are published in a batch of their own
  // after `flush_ms`. On an idle machine, the additional delay is at most 20 ms. `ts`: wall-clock
  // time of that batch, seconds since the Unix epoch.
  void Add(std::vector<Event> events, double ts);
  // Publishes the events of Add that are still queued. Afterwards all events of Add are in batches
  // below next_seq(). Errors: as for Publish.
  Status Flush();
  // Publishes the bytes unchanged, after the events that Add has queued. With hashes_only, the
  // payload may have any dialect: it is decoded, and the redacted batch is published in the dialect
  // of the publisher. kInvalidArgument: `payload` is empty, because an empty payload is the end
  // marker of a replay. With hashes_only also: kInvalidArgument if the redacted batch cannot be
  // encoded, kMalformed if an event of the payload cannot be decoded, and the errors of
  // DecodeBatch. A failed call does not publish the payload, but uses a sequence number. `ts`: the
  // time stamp of the payload, for heartbeats (see heartbeat_ms). nullopt: heartbeats ignore this
  // payload. With hashes_only, `ts` has no effect: the time stamp comes from the payload. If the
  // publisher's thread is late in reading the batches for the digests, the call reads them itself.
  Result<Seq> PublishPayload(std::span<const uint8_t> payload,
                             std::optional<double> ts = std::nullopt);

  // The epoch, the digests and the blocks after all batches below status.next_seq; nullopt without
  // KVX1. `state` takes about a second for a million blocks. `Snapshot` takes about 0.1 s for a
  // million blocks, because it copies the blocks and writes no part.
  std::optional<PublisherStatus> status() const;
  std::optional<PublishedState> state() const;
  std::optional<PublishedSnapshot> Snapshot() const;
  // True: the status has no digests, because the engine has held too many blocks or copies
  // (PublisherConfig::max_blocks).
  bool too_large() const;
  // The held batches from `start` on, at most `limit`. A number may be missing between the returned
  // numbers. If the missing number is not below first_held of a later status, it belongs to a
  // refused batch (see PublisherCounters::encode_errors).
  std::vector<PublishedBatch> Read(Seq start, size_t limit) const;

  // True: the publisher sends no heartbeats and answers no requests. Its subscribers then become
  // kStale. For a publisher that does not know whether its engine still runs. Batches are still
  // published, except with PublisherConfig::holds_while_silent. Thread-safe.
  void SetSilent(bool silent);
  // The publisher is silent from this time of PublisherConfig::now_us on, and not before. The
  // latest call of SetSilent or SpeakUntil decides. Thread-safe.
  void SpeakUntil(int64_t time_us);

  // The sequence number of the next batch. It is also the number of published batches, including
  // heartbeats and batches with an encode error.
  Seq next_seq() const;
  // The bound or connected endpoints, with the actual port instead of port 0. replay_endpoint is
  // empty without replay.
  const std::string& endpoint() const;
  const std::string& replay_endpoint() const;
  // The counters. The call first encodes all queued batches, because the counters include their
  // bytes.
  PublisherCounters counters() const;

 private:
  class Impl;
  explicit Publisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
