// SPDX-License-Identifier: Apache-2.0
#include "router/service/start_checks.h"

#include <string>
#include <utility>

#include "src/http/loopback.h"

namespace kvcast::router {

Status CheckAddresses(const RouterOptions& options) {
  const auto refused = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument,
                  what + " is not loopback; set allow_remote (--allow-remote) to listen there");
  };
  if (!options.allow_remote) {
    if (!IsLoopbackAddress(options.http.address)) return refused("http: " + options.http.address);
    const auto& admin = options.admin_http;
    if (admin && admin->unix_path.empty() && !IsLoopbackAddress(admin->address)) {
      return refused("admin_listen: " + admin->address);
    }
  }
  const std::string& relay = options.relay.endpoint;
  if (relay.empty() || IsLoopbackEndpoint(relay)) return Status();
  if (!options.allow_remote) return refused("relay: " + relay);
  if (!options.curve_clients.empty()) return Status();
  return Status(StatusCode::kInvalidArgument,
                "relay: " + relay + " is not loopback; set curve_key and curve_clients (CURVE)");
}

Status LoadKeys(RouterOptions& options) {
  if (options.curve_key.empty()) {
    if (options.curve_clients.empty()) return Status();
    return Status(StatusCode::kInvalidArgument, "curve_clients: needs curve_key");
  }
  auto keys = CurveKeyPair::Load(options.curve_key);
  if (!keys.ok()) return keys.status();
  options.subscriber.curve_keys = *keys;
  if (options.curve_clients.empty()) return Status();
  auto clients = AccessList::Load(options.curve_clients);
  if (!clients.ok()) return clients.status();
  options.relay.curve = CurveServer{std::move(keys).value(), std::move(clients).value()};
  options.load.curve = options.relay.curve;
  return Status();
}

}  // namespace kvcast::router
