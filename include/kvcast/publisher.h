// Publisher: streams event batches over ZMQ PUB and answers replay requests over ROUTER,
// wire-compatible with vLLM's ZmqEventPublisher.
//
// Live message: [topic][sequence number, 8 bytes big-endian][payload]. Replay: see
// schemas/README.md.
//
// Threads: the caller only queues; one thread encodes and sends, one answers replay requests. The
// ring of published batches is all they share. The sending thread and ZeroMQ's I/O thread are the
// publisher's own, or see PublisherConfig::shares_threads; inproc endpoints need the process-wide
// ZeroMQ context.
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

#include "kvcast/event.h"
#include "kvcast/ids.h"
#include "kvcast/publisher_status.h"
#include "kvcast/status.h"
#include "kvcast/wire.h"

namespace kvcast {

// Shape of replay replies: vLLM sends the topic frame in them since 2026-07-07.
enum class ReplayLayout : uint8_t { kTopicSeqPayload, kSeqPayload };

struct PublisherConfig {
  std::string endpoint = "tcp://127.0.0.1:5557";  // PUB
  std::string replay_endpoint;                    // ROUTER; empty: no replay
  std::string topic;                              // may be empty
  int64_t data_parallel_rank = 0;
  Dialect dialect = kDefaultDialect;
  ReplayLayout replay_layout = ReplayLayout::kTopicSeqPayload;
  // The ring holds what replay can give and what is not sent yet. The oldest batch goes when either
  // bound is passed; the newest always stays.
  size_t ring_batches = 10000;  // > 0
  size_t ring_bytes = 256u << 20;
  int send_hwm = 100000;  // PUB high-water mark, messages per subscriber
  // Answer KVX1 requests (see schemas/README.md): the publisher then knows what its batches say
  // that the engine holds, at about 100 bytes a block. Needs a replay endpoint.
  bool extension = true;
  // A new one for each life of the publisher; nullopt: random.
  std::optional<Epoch> epoch;
  // After this long without a batch an empty one is published, so that a lost tail and silence are
  // seen. Not before the first batch, whose time stamp it continues. 0: never.
  int64_t heartbeat_ms = 1000;
  // Events of Add are published after this long if no batch takes them along. 0: only with one.
  int64_t flush_ms = 50;
  // What one replay connection may ask for and be sent, per second: four seconds' worth of requests
  // and one of bytes at once, then its answers wait. 0: no limit.
  double replay_requests_per_s = 64;
  double replay_bytes_per_s = 256 << 20;
  // One sending thread and one I/O thread for all publishers of this process that say so: less work
  // for a process with many. But one that is destroyed before the last of them sends what is
  // queued, and frees its ports, only some time after that.
  bool shares_threads = false;
  // This node's address, for endpoints that name none: see NodeEndpoint.
  std::string host_ip;
  // Monotonic microseconds; empty: the process's steady clock. Called on the caller's thread and on
  // the publisher's threads.
  std::function<int64_t()> now_us;
};

// The endpoint of one data-parallel rank: tcp adds the rank to the port (port 0 stays 0), inproc
// appends "_dp<rank>", rank 0 and empty are unchanged, anything else is an error for rank > 0.
Result<std::string> EndpointForRank(std::string_view endpoint, int64_t rank);
// `tcp://*:0` names no address and no port, and a reader on another node needs both: it becomes
// `tcp://HOST:0`, where HOST is `host_ip`, or if that is empty the address of the default route, or
// loopback. Every other endpoint is unchanged. Error: `host_ip` is a wildcard. Source: vLLM from
// v0.31 on.
Result<std::string> NodeEndpoint(std::string_view endpoint, std::string_view host_ip = {});
// Whether a PUB socket binds the endpoint (wildcard "*", "::" or 0.0.0.0, ipc, inproc, port 0,
// numeric loopback 127.x) or connects. The replay ROUTER always binds.
bool BindsEndpoint(std::string_view endpoint);

struct PublisherCounters {
  uint64_t batches = 0;        // sequence numbers spent
  uint64_t bytes = 0;          // payload bytes of them
  uint64_t heartbeats = 0;     // of the batches
  uint64_t encode_errors = 0;  // batches refused: their numbers are gaps that replay cannot fill
  uint64_t live_dropped = 0;   // left the ring before they were sent live (the gap is visible)
  uint64_t replay_requests = 0;
  uint64_t replay_batches = 0;  // sent in replies
  uint64_t replay_delays = 0;   // times that a client had to wait because of its rate
  uint64_t replay_rejects = 0;  // malformed requests, not answered
  uint64_t replay_dropped = 0;  // requests not served to the end: the client went away, or more
                                // clients or requests waited than the server serves at once
};

// One publisher per data-parallel rank. Publish, PublishPayload, Add and Flush may be called from
// one thread at a time, everything else from any. Destruction sends queued batches for up to one
// second.
class Publisher {
 public:
  // Binds (or connects) and starts the sending and the replay thread. Errors: kInvalidArgument for
  // a bad endpoint or config, kUnavailable for an address in use; the message names the endpoint.
  static Result<std::unique_ptr<Publisher>> Create(const PublisherConfig& config);
  ~Publisher();

  // Gives the batch the next sequence number and queues it; it is sent within a millisecond, where
  // there is a core for the sending thread. Never blocks on a socket or a subscriber, and encodes
  // only when 256 batches are queued. A batch without a rank gets the publisher's. Error: the batch
  // cannot be encoded. It uses up its number, so that every follower sees that it lost
  // something: a gap that replay cannot fill. A KVX1 snapshot has what the batch said, unless the
  // hashes, the tiers or the kinds themselves cannot be encoded; then there are no digests any
  // more.
  Result<Seq> Publish(EventBatch batch);
  // Queues events for the next batch, in front of its own events. Where no batch follows, as when
  // an engine that is idle resets its cache, they are published as one of their own `flush_ms`
  // later (20 ms more at the most, on an idle machine). `ts`: of that batch.
  void Add(std::vector<Event> events, double ts);
  // Publishes what Add has queued, if anything is left of it. Afterwards all of it is in batches
  // below next_seq(). Error: as Publish.
  Status Flush();
  // Publishes bytes as they are, behind what Add has queued. Error: they are empty, which in a
  // replay would read as its end; the number is used up.
  Result<Seq> PublishPayload(std::span<const uint8_t> payload);

  // Sequence number that the next batch will get: also the count of batches published so far,
  // heartbeats and refused ones included.
  Seq next_seq() const;
  // As bound, port 0 resolved. replay_endpoint is empty if there is no replay.
  const std::string& endpoint() const;
  const std::string& replay_endpoint() const;
  // Encodes first what is queued, as its bytes count.
  PublisherCounters counters() const;

 private:
  class Impl;
  explicit Publisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast
