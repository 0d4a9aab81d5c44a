// Mooncake's KV-event maps (its RFC 1527), as events of this library.
//
// [timestamp_ms, [{"event_type": "stored", "seq_hashes": [...], ...}, ...], rank]
//
// They come from an object store, not from an engine: no block is on the GPU, a repeated store says
// only that the object is there, and "cleared" empties every tier. The events are named by their
// tokens with repeats_are_refreshes. An object that comes without block hashes cannot be told apart
// from others and is left out.
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
  std::string backend_id;             // of other backends too; empty: all are taken
  // Bounds of one batch; what passes them is an error of the batch.
  size_t bytes_max = size_t{64} << 20;
  size_t hashes_max = size_t{1} << 16;
  size_t tokens_max = size_t{1} << 20;
  // Objects remembered, to know a remove that names the object alone. No room: the store is
  // left out.
  size_t objects_max = size_t{1} << 20;
};

struct MooncakeCounters {
  uint64_t events = 0;         // decoded
  uint64_t bad_events = 0;     // not of the format, or of a group that is no number
  uint64_t unknown_types = 0;  // left out
  uint64_t others = 0;         // of other tenants and backends; left out
  uint64_t opaque = 0;         // without hashes, of an object that is not known; left out
  uint64_t refused = 0;        // no room for the object
};

// One publisher's events, in order. Thread-compatible.
class MooncakeEvents {
 public:
  explicit MooncakeEvents(MooncakeConfig config);
  ~MooncakeEvents();
  MooncakeEvents(MooncakeEvents&&) noexcept;
  MooncakeEvents& operator=(MooncakeEvents&&) noexcept;

  // Not ok: no batch, or one beyond the bounds; nothing changed, but removes may have been lost. A
  // bad event becomes a clear of all tiers, because it may have been a remove.
  Result<EventBatch> Decode(std::span<const uint8_t> payload);
  // The publisher began anew, or batches were lost: forgets the objects.
  void Restart();

  MooncakeCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::router
