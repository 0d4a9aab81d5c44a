// The metrics of the exchange of loads with other routers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <optional>
#include <vector>

#include "router/service/load/load_sharing.h"
#include "router/service/route/request_router.h"

namespace kvcast::router {

struct PeerLoadMetrics {
  PeersOfDecision peers;
  LoadSharingCounters counters;
};

void AddPeerLoadFamilies(const PeerLoadMetrics& metrics,
                         std::vector<prometheus::MetricFamily>& families);

}  // namespace kvcast::router
