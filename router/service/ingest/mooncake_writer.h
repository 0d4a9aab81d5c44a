// Batches of this library as Mooncake's KV-event maps: a peer for MooncakeEvents in the demo and in
// tests. Mooncake's own store sends the media "cpu" and "disk".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"

namespace kvcast::router {

struct MooncakeWriterConfig {
  std::string tenant_id = "default";
  std::string backend_id;
  std::string model_name;
};

// One publisher. Thread-compatible.
class MooncakeWriter {
 public:
  explicit MooncakeWriter(MooncakeWriterConfig config) : config_(std::move(config)) {}

  // Appends the payload of `batch`. A clear empties all tiers at the reader, whatever medium it
  // names. Not ok: the batch holds what the format cannot tell (extra keys that are no salt, a
  // store without hashes, a token offset inside a block); nothing is appended.
  Status Write(const EventBatch& batch, std::vector<uint8_t>& out);

 private:
  const MooncakeWriterConfig config_;
  uint64_t next_id_ = 0;
};

}  // namespace kvcast::router
