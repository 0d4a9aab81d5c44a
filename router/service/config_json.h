// The configuration file of `kvcast router --config FILE`: one JSON object. All members are
// optional. docs/options.md describes each member. A test compares the page with these lists.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"
#include "router/service/router_service.h"

namespace kvcast::router {

inline constexpr int kDefaultHttpPort = 8080;

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

}  // namespace kvcast::router
