// SPDX-License-Identifier: Apache-2.0
#include "router/service/metrics/peer_join_metrics.h"

#include <utility>

#include "router/service/metrics/samples.h"

namespace kvcast::router {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

void AddJoinEnds(TransferEnd end, std::vector<MetricFamily>& families) {
  MetricFamily family = {"kvcast_peer_join_state",
                         "1 for the result of the join from another router (complete, or the "
                         "reason of the failure), 0 for all other results.",
                         MetricType::Gauge,
                         {}};
  AddStates(kTransferEnds, end, &TransferEndName, {}, family);
  families.push_back(std::move(family));
}

}  // namespace

void AddPeerJoinFamilies(const PeerJoinMetrics& metrics, std::vector<MetricFamily>& families) {
  if (metrics.join) {
    AddJoinEnds(metrics.join->end, families);
    AddValue("kvcast_peer_join_seconds",
             "Seconds from the start of the join until this router had received the complete state "
             "of the other router, or until the join failed.",
             MetricType::Gauge, metrics.join->seconds, families);
    AddValue("kvcast_peer_join_bytes",
             "Bytes that this router received of the state of the router that it joins from.",
             MetricType::Gauge, static_cast<double>(metrics.join->bytes), families);
    AddValue("kvcast_peer_join_workers", "Workers in the state of the other router.",
             MetricType::Gauge, static_cast<double>(metrics.join->workers), families);
    AddValue("kvcast_peer_join_workers_restored_total",
             "Workers whose blocks from the other router were restored, since the router started. "
             "Such a worker has the state bootstrap until the router has a proof "
             "that the engine did not restart.",
             MetricType::Counter, static_cast<double>(metrics.restore.workers_restored), families);
    AddValue("kvcast_peer_join_workers_refused_total",
             "Workers whose blocks from the other router were damaged or did not fit their "
             "registration, since the router started. These workers started without blocks.",
             MetricType::Counter, static_cast<double>(metrics.restore.workers_refused), families);
  }
  if (!metrics.sent) return;
  AddValue("kvcast_state_sends_total",
           "Times that this router began to send its state to another router, since this router "
           "started.",
           MetricType::Counter, static_cast<double>(metrics.sent->sends), families);
  AddValue("kvcast_state_send_errors_total",
           "Times that this router could not send its complete state to another router, since this "
           "router started.",
           MetricType::Counter, static_cast<double>(metrics.sent->errors), families);
  AddValue("kvcast_state_sent_bytes_total",
           "Bytes of state that this router sent to other routers, since this router started.",
           MetricType::Counter, static_cast<double>(metrics.sent->bytes), families);
}

}  // namespace kvcast::router
