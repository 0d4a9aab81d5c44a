// Connects LoadSharing with the selector and the fleet of a service.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kvcast/core/status.h"
#include "router/service/route/service_core.h"
#include "router/service/router_service.h"

namespace kvcast::router {

// Error: an endpoint, peer, name or period of options.load is not allowed, or the options lack keys
// that an endpoint or a peer needs.
Status CheckLoadSharing(const RouterOptions& options);

// Sets core.load_sharing if options.load has an endpoint or peers. `core` must have its fleet and
// its request router. REQUIRES: CheckLoadSharing is ok, and the keys of the options are loaded.
Status StartLoadSharing(const RouterOptions& options, ServiceCore& core);

}  // namespace kvcast::router
