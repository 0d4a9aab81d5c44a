// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/curve_options.h"

#include "src/http/loopback.h"

namespace kvcast::tools {
namespace {

Status BadCurveFlag(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

// `flags`: the flags of CURVE. `insecure`: the flag that allows the endpoints without CURVE.
Status CheckLocal(const std::vector<std::string>& endpoints, const char* flags,
                  const char* insecure) {
  for (const std::string& endpoint : endpoints) {
    if (endpoint.find("://") == std::string::npos || IsLoopbackEndpoint(endpoint)) continue;
    return BadCurveFlag(endpoint + " is not loopback; set " + flags + ", or set " + insecure +
                        ": no encryption and no authentication");
  }
  return Status();
}

}  // namespace

Result<std::optional<CurveServer>> LoadCurveServer(const CurveServerOptions& options,
                                                   const std::vector<std::string>& endpoints) {
  if (options.key.empty() != options.clients.empty()) {
    return BadCurveFlag("set both --curve-key and --curve-clients");
  }
  if (options.key.empty()) {
    if (options.insecure) return std::optional<CurveServer>();
    const Status local =
        CheckLocal(endpoints, "--curve-key and --curve-clients (CURVE)", "--insecure");
    if (!local.ok()) return local;
    return std::optional<CurveServer>();
  }
  if (options.insecure) return BadCurveFlag("--insecure: not with --curve-key");
  auto keys = CurveKeyPair::Load(options.key);
  if (!keys.ok()) return keys.status();
  auto clients = AccessList::Load(options.clients);
  if (!clients.ok()) return clients.status();
  return std::make_optional(CurveServer{std::move(keys).value(), std::move(clients).value()});
}

Result<std::optional<CurveClient>> LoadCurveClient(const CurveClientOptions& options,
                                                   const std::vector<std::string>& endpoints) {
  if (options.key.empty() != options.server_key.empty()) {
    return BadCurveFlag("set both --curve-key and --server-key");
  }
  if (options.key.empty()) {
    if (options.insecure) return std::optional<CurveClient>();
    const Status local =
        CheckLocal(endpoints, "--curve-key and --server-key (CURVE)", options.insecure_flag);
    if (!local.ok()) return local;
    return std::optional<CurveClient>();
  }
  if (options.insecure) {
    return BadCurveFlag(std::string(options.insecure_flag) + ": not with --server-key");
  }
  auto keys = CurveKeyPair::Load(options.key);
  if (!keys.ok()) return keys.status();
  if (const Status key = CheckCurveKey(options.server_key); !key.ok()) {
    return BadCurveFlag("--server-key: " + key.message());
  }
  return std::make_optional(CurveClient{std::move(keys).value(), options.server_key});
}

}  // namespace kvcast::tools
