// The JSON of EndpointSlices, as an API server sends it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvcast::router {

inline nlohmann::json Slice(const std::string& name, const std::vector<std::string>& hosts,
                            const std::string& type = "IPv4", const std::string& version = "5") {
  nlohmann::json endpoints = nlohmann::json::array();
  for (const std::string& host : hosts) {
    endpoints.push_back(
        {{"addresses", nlohmann::json::array({host})}, {"conditions", {{"ready", true}}}});
  }
  const nlohmann::json port = {{"name", "kv-events"}, {"port", 5557}, {"protocol", "TCP"}};
  return {{"metadata", {{"name", name}, {"resourceVersion", version}}},
          {"addressType", type},
          {"endpoints", endpoints},
          {"ports", nlohmann::json::array({port})}};
}

// `next`: the token of the next page; empty: this is the last page.
inline std::string SliceList(const std::string& version, const std::vector<nlohmann::json>& items,
                             const std::string& next = "") {
  nlohmann::json list = {{"kind", "EndpointSliceList"},
                         {"metadata", {{"resourceVersion", version}}},
                         {"items", items}};
  if (!next.empty()) list["metadata"]["continue"] = next;
  return list.dump();
}

}  // namespace kvcast::router
