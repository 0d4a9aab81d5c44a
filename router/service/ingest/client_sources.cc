// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/client_sources.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "router/service/ingest/event_feeds.h"
#include "router/service/ingest/http_fetch.h"
#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr size_t kMaxHostBytes = 255;

bool IsOfHost(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view(".-_:[]*").find(c) != std::string_view::npos;
}

// The host of an endpoint.
std::string HostOf(const std::string& endpoint) {
  if (!endpoint.starts_with(kTcp)) {
    const auto url = ParseHttpUrl(endpoint);
    return url.ok() ? url->host : "";
  }
  const std::string_view address = std::string_view(endpoint).substr(kTcp.size());
  return std::string(address.substr(0, address.rfind(':')));
}

// libzmq accepts more in an endpoint than a host and a port, for example a source address before a
// semicolon.
Status CheckTcp(const char* member, const std::string& endpoint) {
  const std::string host = HostOf(endpoint);
  if (endpoint.starts_with(kTcp) && !host.empty() && host.size() <= kMaxHostBytes &&
      std::ranges::all_of(host, IsOfHost)) {
    return Status();
  }
  return BadField(std::string(member) + ": must be tcp://HOST:PORT");
}

Status CheckNetwork(const char* member, const std::string& endpoint,
                    const std::vector<IpNetwork>& networks) {
  if (networks.empty()) return Status();
  const auto address = ParseIpAddress(HostOf(endpoint));
  if (!address) {
    return BadField(std::string(member) +
                    ": must have an IP address, because source networks are "
                    "configured");
  }
  const bool inside = std::ranges::any_of(
      networks, [&](const IpNetwork& network) { return network.Contains(*address); });
  return inside ? Status()
                : BadField(std::string(member) +
                           ": the address is in none of the networks of source_networks");
}

}  // namespace

Status CheckClientSource(const WorkerRegistration& source, const std::vector<IpNetwork>& networks) {
  const std::string& replay = source.replay_endpoint;
  Status status;
  if (!IsFeedEndpoint(source.endpoint)) status = CheckTcp("endpoint", source.endpoint);
  if (status.ok() && !replay.empty()) status = CheckTcp("replay_endpoint", replay);
  if (!status.ok()) return status;
  const bool polls = IsFeedEndpoint(source.endpoint) && source.endpoint != kPushEndpoint;
  const bool connects = !IsFeedEndpoint(source.endpoint) && !source.bind;
  if (polls || connects) {
    status = CheckNetwork("endpoint", source.endpoint, networks);
    if (!status.ok()) return status;
  }
  return replay.empty() ? Status() : CheckNetwork("replay_endpoint", replay, networks);
}

}  // namespace kvcast::router
