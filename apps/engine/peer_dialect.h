// The format of a simulated engine's batches: a dialect of kvcast/wire.h, or the format of another
// peer. The latter are read by content, since their hashes cannot be computed.
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
#include "router/service/ingest/source.h"

namespace kvcast::tools {

struct PeerDialect {
  router::EventFormat format = router::EventFormat::kEngine;
  Dialect dialect = kDefaultDialect;  // kEngine

  bool of_engine() const { return format == router::EventFormat::kEngine; }
  std::string_view name() const;
  friend bool operator==(const PeerDialect&, const PeerDialect&) = default;
};

// Of ParseDialect, "trtllm" or "mooncake".
std::optional<PeerDialect> ParsePeerDialect(std::string_view name);
std::vector<PeerDialect> AllPeerDialects();
// Not ok: the dialect cannot tell the cache's groups apart, the tokens that a hash covers behind
// its block, or blocks in two tiers; the message says why. `cache`: of MakeCacheConfig.
Status CanTell(const PeerDialect& dialect, const CacheConfig& cache, bool host_memory);
// Sets format and members; the source's groups are known.
void RegisterPeer(const PeerDialect& dialect, const CacheConfig& cache,
                  router::RouterSource& source);

// Of a format that is not of_engine(). One publisher's batches, in order.
class PeerWriter {
 public:
  virtual ~PeerWriter() = default;
  // Not ok: the format cannot tell the batch.
  virtual Status Write(const EventBatch& batch, std::vector<uint8_t>& payload) = 0;
};
// nullptr: of_engine().
std::unique_ptr<PeerWriter> MakePeerWriter(const PeerDialect& dialect, const CacheConfig& cache);

}  // namespace kvcast::tools
