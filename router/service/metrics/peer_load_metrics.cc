// SPDX-License-Identifier: Apache-2.0
#include "router/service/metrics/peer_load_metrics.h"

#include <string>
#include <utility>

#include "router/service/metrics/samples.h"

namespace kvcast::router {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct PeerLoadMetric {
  const char* name;
  const char* help;
  MetricType type;
  double (*read)(const PeerLoadMetrics&);
};

using P = const PeerLoadMetrics&;

constexpr PeerLoadMetric kPeerLoadMetrics[] = {
    {"kvcast_peer_load_routers",
     "Current number of other routers whose load the routing decisions include.", MetricType::Gauge,
     [](P p) { return static_cast<double>(p.peers.routers); }},
    {"kvcast_peer_load_age_seconds",
     "Age in seconds of the oldest load message of another router that routing decisions use. 0: "
     "they use no such message.",
     MetricType::Gauge, [](P p) { return p.peers.age_ms.value_or(0) / 1000; }},
    {"kvcast_peer_load_sent_total",
     "Messages with this router's load that the router published, since the router started.",
     MetricType::Counter, [](P p) { return static_cast<double>(p.counters.sent); }},
    {"kvcast_peer_load_unsent_total",
     "Messages with this router's load that the router did not publish because they were too "
     "large, since the router started.",
     MetricType::Counter, [](P p) { return static_cast<double>(p.counters.unsent); }},
    {"kvcast_peer_load_received_total",
     "Received messages with the load of a router, since the router started. Refused messages and "
     "messages of this router count too.",
     MetricType::Counter, [](P p) { return static_cast<double>(p.counters.received); }},
    {"kvcast_peer_load_flooding_peers_total",
     "Connections to the load endpoint that the router closed because the peer sent more than 64 "
     "KiB of subscriptions, or more than 64 KiB of a message that did not end, since the router "
     "started.",
     MetricType::Counter, [](P p) { return static_cast<double>(p.counters.flooding_peers); }},
    {"kvcast_peer_load_access_list_failures_total",
     "Failed reloads of the file with the client list of the load endpoint (the file is missing or "
     "invalid), since the router started.",
     MetricType::Counter, [](P p) { return static_cast<double>(p.counters.access_list_failures); }},
};

ClientMetric CounterWith(const char* label, std::string value, uint64_t count) {
  return NumberSample(MetricType::Counter, {{label, std::move(value)}}, static_cast<double>(count));
}

}  // namespace

void AddPeerLoadFamilies(const PeerLoadMetrics& metrics, std::vector<MetricFamily>& families) {
  for (const PeerLoadMetric& entry : kPeerLoadMetrics) {
    AddValue(entry.name, entry.help, entry.type, entry.read(metrics), families);
  }
  MetricFamily rejected{
      "kvcast_peer_load_rejected_total",
      "Load messages of other routers that this router refused, by reason, since the router "
      "started.",
      MetricType::Counter,
      {}};
  for (size_t i = 0; i < kGaugeRejects; ++i) {
    const std::string reason(GaugeRejectName(static_cast<GaugeReject>(i)));
    rejected.metric.push_back(CounterWith("reason", reason, metrics.counters.rejected[i]));
  }
  const RefusedConnections& refused = metrics.counters.refused;
  MetricFamily connections{
      "kvcast_peer_load_refused_connections_total",
      "Connections to the load endpoint that were refused, by reason, since the router started.",
      MetricType::Counter,
      {CounterWith("reason", "no_key", refused.no_key),
       CounterWith("reason", "wrong_server_key", refused.wrong_server_key),
       CounterWith("reason", "not_allowed", refused.not_allowed),
       CounterWith("reason", "broken", refused.broken)}};
  families.push_back(std::move(rejected));
  families.push_back(std::move(connections));
}

}  // namespace kvcast::router
