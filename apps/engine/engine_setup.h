// Creates the parts of an engine from command-line options.
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
#include "kvcast/engine/chain_prover.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/wire/wire.h"

namespace kvcast::tools {

// Each error names the flag, or the field of CacheConfig that the flag sets.
Result<CacheConfig> MakeCacheConfig(const CacheOptions& options);
Result<BlockHasher> MakeHasher(const std::string& algorithm, const std::string& seed);
Result<EventHashForm> MakeHashForm(const CacheOptions& options);
Result<OffloadKind> MakeOffloadKind(const CacheOptions& options);
// Returns the registration of an engine with these options. REQUIRES: MakeOffloadKind(options) is
// ok, and `cache` is the result of MakeCacheConfig.
WorkerConfig MakeWorkerConfig(const CacheOptions& options, const CacheConfig& cache,
                              const std::string& name);
Result<std::unique_ptr<CacheManager>> MakeCacheManager(const CacheOptions& options);
// Answers challenges for the engine of MakeCacheManager.
Result<std::unique_ptr<ChainProver>> MakeChainProver(const CacheOptions& options);
// nullptr: the options have no host memory. `cache` must outlive the tier.
Result<std::unique_ptr<HostTier>> MakeHostTier(const CacheOptions& options, CacheManager& cache);
// The event layout of a release.
Dialect DialectOf(EngineRules rules);
// Returns the dialects that the demo's engines take in turn. "all": every dialect that can
// represent the model's events. Empty: the dialect of the release.
Result<std::vector<PeerDialect>> DialectsOf(const CacheOptions& options,
                                            const std::string& dialects);
SimEngineConfig MakeSimConfig(const CacheOptions& options);

}  // namespace kvcast::tools
