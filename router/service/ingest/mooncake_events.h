// Mooncake's KV-event maps (its RFC 1527): decodes them into events of this library.
//
// [timestamp_ms, [{"event_type": "stored", "seq_hashes": [...], ...}, ...], rank]
//
// The events come from an object store, not from an engine. No block is on the GPU. A repeated
// store means only that the object exists, so the source has WorkerConfig::repeats_are_refreshes.
// "cleared" empties every tier. The blocks are named by their tokens. An object without block
// hashes cannot be distinguished from other objects and is left out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"

namespace kvcast::router {

struct MooncakeConfig {
  std::string tenant_id = "default";  // events of other tenants are left out
  std::string backend_id;  // events of other backends are left out; empty: all are accepted
  size_t bytes_max = size_t{64} << 20;  // a longer batch is an error
  // Bounds of one event. An event that exceeds a bound is a bad event.
  size_t hashes_max = size_t{1} << 16;
  size_t tokens_max = size_t{1} << 20;
  // Bounds of the sums over all events of a batch. The remembered hashes of removed objects count
  // too. A batch that exceeds a bound is an error.
  size_t batch_events_max = size_t{1} << 16;
  size_t batch_hashes_max = size_t{1} << 20;
  size_t batch_tokens_max = size_t{8} << 20;
  // Maximum numbers of objects, and of hashes of all objects together, that the decoder remembers.
  // The decoder needs the hashes of an object for a remove that names only the object. A store
  // beyond these numbers is left out.
  size_t objects_max = size_t{1} << 20;
  size_t object_hashes_max = size_t{1} << 22;
};

struct MooncakeCounters {
  uint64_t events = 0;         // decoded events
  uint64_t bad_events = 0;     // events with a wrong format or an invalid group
  uint64_t unknown_types = 0;  // events of an unknown type; left out
  uint64_t others = 0;         // events of other tenants and backends; left out
  uint64_t opaque = 0;         // events without hashes or without a tier; left out
  // Stores refused because of objects_max or object_hashes_max.
  uint64_t refused = 0;
};

// Decodes one publisher's events, in order. Thread-compatible.
class MooncakeEvents {
 public:
  explicit MooncakeEvents(MooncakeConfig config);
  ~MooncakeEvents();
  MooncakeEvents(MooncakeEvents&&) noexcept;
  MooncakeEvents& operator=(MooncakeEvents&&) noexcept;

  // Not ok: the payload is not a batch, or exceeds a bound of a batch. Removes may then have been
  // lost, and the caller must call Restart. A bad event becomes a clear of all tiers, because it
  // may have been a remove.
  Result<EventBatch> Decode(std::span<const uint8_t> payload);
  // Call if the publisher restarted or batches were lost: the decoder drops its objects.
  void Restart();

  MooncakeCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
