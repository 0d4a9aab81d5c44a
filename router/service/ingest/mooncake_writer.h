// Writes batches of this library as Mooncake's KV-event maps: the counterpart of MooncakeEvents,
// for the demo and for tests. Mooncake's own store sends the media "cpu" and "disk".
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

// The events of one publisher. Thread-compatible.
class MooncakeWriter {
 public:
  explicit MooncakeWriter(MooncakeWriterConfig config) : config_(std::move(config)) {}

  // Appends the payload of `batch`. The reader clears all tiers after a clear, even if the clear
  // names a medium. Not ok: the format cannot represent the batch (extra keys, a LoRA id, token
  // pairs, a store without hashes, a token offset inside a block). Nothing is then appended.
  Status Write(const EventBatch& batch, std::vector<uint8_t>& out);

 private:
  const MooncakeWriterConfig config_;
  uint64_t next_id_ = 0;
};

}  // namespace kvcast::router
