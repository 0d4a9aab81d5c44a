// The router service of a demo run. It follows the simulated engines like real engines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "apps/demo/demo_fleet.h"
#include "apps/demo/demo_options.h"
#include "apps/engine/peer_dialect.h"
#include "kvcast/core/status.h"
#include "kvcast/spec/cache_spec.h"
#include "router/service/router_service.h"

namespace kvcast::tools {

// Returns the options of a service that follows the engines. engines[i] uses
// dialects[i % dialects.size()]. `cache` is the result of MakeCacheConfig(options.cache). `speed`
// is in seconds of the trace per second of real time. Not ok: options.serve is not an address, or
// the model is unknown.
Result<router::RouterOptions> MakeServiceOptions(const DemoOptions& options,
                                                 const CacheConfig& cache,
                                                 const std::vector<EngineEndpoints>& engines,
                                                 const std::vector<PeerDialect>& dialects,
                                                 double speed);

// Not ok: the worker's stream is not synced, or the service could not read an event. The message
// names the worker.
Status CheckFollowed(const router::WorkerReport& worker);

}  // namespace kvcast::tools
