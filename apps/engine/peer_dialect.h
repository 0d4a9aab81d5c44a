// The format of a simulated engine's batches: a dialect of kvcast/wire/wire.h, or the format of
// TensorRT-LLM or Mooncake. A router matches the blocks of TensorRT-LLM and Mooncake by content,
// because it cannot compute their hashes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"
#include "kvcast/wire/wire.h"
#include "router/service/ingest/worker_ingest.h"

namespace kvcast::tools {

struct PeerDialect {
  router::EventFormat format = router::EventFormat::kEngine;
  Dialect dialect = kDefaultDialect;  // for kEngine

  // True: a dialect of kvcast/wire/wire.h. False: the format of TensorRT-LLM or Mooncake.
  bool of_engine() const { return format == router::EventFormat::kEngine; }
  std::string_view name() const;
  friend bool operator==(const PeerDialect&, const PeerDialect&) = default;
};

// Accepts the names of ParseDialect, "trtllm" and "mooncake".
std::optional<PeerDialect> ParsePeerDialect(std::string_view name);
std::vector<PeerDialect> AllPeerDialects();
// Not ok: the dialect cannot represent the cache's groups, the lookahead tokens of a hash, or
// blocks in two tiers; the message names the reason. `cache` must be the result of MakeCacheConfig.
Status CheckRepresentable(const PeerDialect& dialect, const CacheConfig& cache, bool host_memory);
// Sets the format of `source`, and the members of the source that belong to the format.
void RegisterPeer(const PeerDialect& dialect, const CacheConfig& cache,
                  router::WorkerRegistration& source);

// Encodes one publisher's batches, in order, in a format that is not of_engine().
class PeerWriter {
 public:
  virtual ~PeerWriter() = default;
  // Not ok: the format cannot represent the batch.
  virtual Status Write(const EventBatch& batch, std::vector<uint8_t>& payload) = 0;
};
// nullptr: the dialect is of_engine().
std::unique_ptr<PeerWriter> MakePeerWriter(const PeerDialect& dialect, const CacheConfig& cache);

}  // namespace kvcast::tools
