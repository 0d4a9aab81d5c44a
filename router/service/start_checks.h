// Checks of the options of a service before it starts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/core/status.h"
#include "router/service/router_service.h"

namespace kvcast::router {

// Error: an address of HTTP or of the relay is not loopback, and allow_remote is false. Or the
// relay is not on loopback, and curve_clients is empty.
Status CheckAddresses(const RouterOptions& options);

// Reads the keys and the list of clients into the options of the subscriber, of the relay and of
// the load endpoint. Error: a file cannot be used, or curve_clients is set without curve_key.
Status LoadKeys(RouterOptions& options);

}  // namespace kvcast::router
