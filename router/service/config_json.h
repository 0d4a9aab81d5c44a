// The configuration file of `kvcast router --config FILE`: one JSON object. All members are
// optional. docs/options.md describes each member. A test compares the page with ConfigMembers()
// and WeightMembers().
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/router_service.h"

namespace kvcast::router {

inline constexpr int kDefaultHttpPort = 8080;
inline constexpr int64_t kMaxStateInterval = 86400;   // greatest state_interval_s
inline constexpr int64_t kMinPeerTimeoutMs = 100;     // least peer_timeout_ms
inline constexpr int64_t kMaxPeerTimeoutMs = 600000;  // greatest peer_timeout_ms
inline constexpr int64_t kMaxSourcesLimit = 65535;    // greatest max_sources and max_http_sources

struct ConfigMember {
  const char* name;
  // Writes the value to the options. Not ok: one line that names the member.
  Status (*read)(const nlohmann::json&, const std::string& name, RouterOptions&);
};

// A member of `weights`.
struct WeightMember {
  const char* name;
  double& (*of)(RoutingConfig&);
};

std::span<const ConfigMember> ConfigMembers();
std::span<const WeightMember> WeightMembers();

// Adds the members of `text` to `options`. Unknown members are refused. Not ok: one line that names
// the wrong member, or states that `text` is not a JSON object.
Status ReadConfig(std::string_view text, RouterOptions& options);

// "ADDR:PORT". An IPv6 ADDR is in brackets.
Status ParseHttpAddress(const std::string& text, HttpOptions& http);

// The members that a flag and the configuration file share. `name` begins the error texts. Each
// Read function replaces the value of the options.
// `text`: "ADDR:PORT" or "unix:PATH"; empty: there is no admin listener.
Status ReadAdminListen(const std::string& text, const std::string& name, RouterOptions& options);
// `hosts`: host names without a port.
Status ReadAllowedHosts(const std::vector<std::string>& hosts, const std::string& name,
                        RouterOptions& options);
// `networks`: in CIDR notation.
Status ReadSourceNetworks(const std::vector<std::string>& networks, const std::string& name,
                          RouterOptions& options);

// See ParseLoadPeer.
Status ReadLoadPeers(const std::vector<std::string>& peers, const std::string& name,
                     RouterOptions& options);

}  // namespace kvcast::router
