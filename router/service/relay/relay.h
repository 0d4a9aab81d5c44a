// Relay: publishes the batches of all workers again, at one address and by topic; see
// relay_topic.h. Message: [topic][sequence number, 8 bytes big-endian][payload].
//
// The relay splits a batch by the tier and group of its events. Each part becomes one message. The
// payload is a batch of these events in the dialect kvcast-1. Each topic has its own sequence
// numbers from 0 on. A missing number means that a message of the topic was lost, or that a batch
// or event was lost that may belong to the topic. After a reset of the worker, its numbers begin at
// 0 again. The batches of one worker are sent in order. The relay has no replay. A subscriber that
// needs every batch must follow the worker directly, or the StreamRelay of the worker.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/stream/curve.h"

namespace kvcast::router {

struct RelayConfig {
  std::string endpoint;  // endpoint to bind; empty: no relay
  bool redact = false;   // see Redact
  // Maximum sizes of the queue of the relay's thread. A batch counts as at least queue_bytes_max /
  // queue_batches_max bytes. If the queue is full, the worker with the most bytes in the queue
  // loses its oldest batch, and subscribers see a gap. A batch that is larger than half of
  // queue_bytes_max is lost.
  size_t queue_batches_max = 8192;  // not 0
  size_t queue_bytes_max = 64u << 20;
  // Maximum number of queued messages per subscriber. Further messages to this subscriber are
  // dropped.
  int send_hwm = 10000;
  // Maximum bytes of messages that still wait to be sent to at least one subscriber. Messages
  // beyond this limit are dropped for all subscribers.
  size_t unsent_bytes_max = 256u << 20;
  // A subscriber that takes no byte for this time is disconnected, and its queue is freed.
  int stall_timeout_ms = 10000;
  // Subscribers need the role kSubscribe. A subscriber that loses the role is disconnected within
  // one second. nullopt: no encryption, and every peer is accepted.
  std::optional<CurveServer> curve;
};

struct RelayCounters {
  uint64_t batches = 0;   // batches relayed
  uint64_t messages = 0;  // messages sent
  // Batches that the queue dropped, batches that could not be decoded, and batches with an event
  // that could not be decoded or a message that was not sent.
  uint64_t dropped = 0;
  uint64_t unsent_bytes = 0;    // current number; see RelayConfig::unsent_bytes_max
  uint64_t flooding_peers = 0;  // connections that were ended because the peer sent too many bytes
  RefusedConnections refused;
  uint64_t access_list_failures = 0;  // see AccessList::failed_refreshes
};

// The relay's own thread decodes and sends the batches. Post, Restart and Forget are thread-safe
// and do not wait for subscribers.
class Relay {
 public:
  static Result<std::unique_ptr<Relay>> Create(const RelayConfig& config);
  ~Relay();

  // `worker`: unique among the workers of all ranks. A payload that cannot be decoded, for example
  // an empty payload, is a lost batch.
  void Post(const std::string& model, const std::string& worker, int64_t rank,
            std::span<const uint8_t> payload);
  // Call after the worker's state was reset or replaced. The numbers of its topics begin at 0
  // again.
  void Restart(const std::string& worker);
  // The worker is removed.
  void Forget(const std::string& worker);
  const std::string& endpoint() const;  // with the port that was bound
  RelayCounters counters() const;

 private:
  class Impl;
  explicit Relay(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
