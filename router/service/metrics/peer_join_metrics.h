// The metrics of the state that a router takes from another router, or sends to one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/metric_family.h>

#include <optional>
#include <vector>

#include "router/service/join/peer_join.h"
#include "router/service/join/state_sender.h"
#include "router/service/state/saved_workers.h"

namespace kvcast::router {

struct PeerJoinMetrics {
  std::optional<PeerJoinReport> join;   // nullopt: there is no other router
  RestoreCounters restore;              // of the state of the other router
  std::optional<StateSendReport> sent;  // nullopt: the router sends no state
};

void AddPeerJoinFamilies(const PeerJoinMetrics& metrics,
                         std::vector<prometheus::MetricFamily>& families);

}  // namespace kvcast::router
