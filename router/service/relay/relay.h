// Relay: what the fleet's workers publish, again, behind one address and by topic; see
// relay_topic.h. Message: [topic][the worker's sequence number, 8 bytes big-endian][payload].
//
// A batch becomes one message for each tier and group that it has events of, all with its sequence
// number. The payload is a batch of those events, in the dialect kvcast-1. There is no replay:
// whoever needs every batch follows the worker itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"

namespace kvcast::router {

struct RelayConfig {
  std::string endpoint;  // bound; empty: no relay
  bool redact = false;   // see Redact
  // Batches that wait for the relay's thread; the oldest leave first, which subscribers see as a
  // gap.
  size_t queue_batches_max = 8192;
  size_t queue_bytes_max = 64u << 20;
  int send_hwm = 10000;  // messages of one subscriber; later ones are dropped for it
  // Of messages that some subscriber has not been sent; more are dropped for all.
  size_t unsent_bytes_max = 256u << 20;
  // A subscriber that takes no byte for so long is disconnected, and what waits for it is freed.
  int stall_timeout_ms = 10000;
};

struct RelayCounters {
  uint64_t batches = 0;   // relayed
  uint64_t messages = 0;  // sent
  uint64_t dropped = 0;   // batches that left the queue unsent, or of which something was not sent
  uint64_t unsent_bytes = 0;  // now
};

// Takes token ids and extra keys (LoRA names, salts, multimodal hashes) out of all stores.
void Redact(EventBatch& batch);

// Own thread, which decodes and sends. Post is thread-safe and waits for no subscriber.
class Relay {
 public:
  static Result<std::unique_ptr<Relay>> Create(const RelayConfig& config);
  ~Relay();

  void Post(const std::string& model, const std::string& worker, int64_t rank, Seq seq,
            std::span<const uint8_t> payload);
  const std::string& endpoint() const;  // as bound
  RelayCounters counters() const;

 private:
  class Impl;
  explicit Relay(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
