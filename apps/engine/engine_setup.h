// From command-line options to the parts of an engine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/engine/engine_options.h"
#include "apps/engine/host_tier.h"
#include "apps/engine/peer_dialect.h"
#include "apps/engine/sim_engine.h"
#include "kvcast/core/status.h"
#include "kvcast/engine/cache_manager.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/wire/wire.h"

namespace kvcast::tools {

// Each error names the flag.
Result<CacheConfig> MakeCacheConfig(const CacheOptions& options);
Result<BlockHasher> MakeHasher(const std::string& algorithm, const std::string& seed);
Result<EventHashForm> MakeHashForm(const CacheOptions& options);
Result<OffloadKind> MakeOffloadKind(const CacheOptions& options);
// The registration of such an engine with a router. REQUIRES: MakeOffloadKind(options) is ok,
// `cache` is of MakeCacheConfig.
WorkerConfig MakeWorkerConfig(const CacheOptions& options, const CacheConfig& cache,
                              const std::string& name);
Result<std::unique_ptr<CacheManager>> MakeCacheManager(const CacheOptions& options);
// nullptr: the options ask for none. `cache` outlives it.
Result<std::unique_ptr<HostTier>> MakeHostTier(const CacheOptions& options, CacheManager& cache);
// The layout of a release's events.
Dialect DialectOf(EngineRules rules);
// The dialects that the demo's engines take in turn. "all": each that can tell the model's events.
Result<std::vector<PeerDialect>> DialectsOf(const CacheOptions& options,
                                            const std::string& dialects);
SimEngineConfig MakeSimConfig(const CacheOptions& options);

}  // namespace kvcast::tools
