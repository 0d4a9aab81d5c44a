// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/curve_options.h"

#include <cstdio>

#include "src/base/clock.h"
#include "src/http/loopback.h"

namespace kvcast::tools {
namespace {

Status BadFlag(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

Status CheckLocal(const std::vector<std::string>& endpoints, bool insecure, const char* flags) {
  if (insecure) return Status();
  for (const std::string& endpoint : endpoints) {
    if (endpoint.find("://") == std::string::npos || IsLoopbackEndpoint(endpoint)) continue;
    return BadFlag(endpoint + " is not loopback; set " + flags +
                   ", or --insecure to do without encryption and authentication");
  }
  return Status();
}

}  // namespace

Result<std::optional<CurveServer>> LoadCurveServer(const CurveServerOptions& options,
                                                   const std::vector<std::string>& endpoints) {
  if (options.key.empty() != options.clients.empty()) {
    return BadFlag("--curve-key and --curve-clients need each other");
  }
  if (options.key.empty()) {
    const Status local =
        CheckLocal(endpoints, options.insecure, "--curve-key and --curve-clients (CURVE)");
    if (!local.ok()) return local;
    return std::optional<CurveServer>();
  }
  if (options.insecure) return BadFlag("--insecure: not with --curve-key");
  auto keys = CurveKeyPair::Load(options.key);
  if (!keys.ok()) return keys.status();
  auto clients = AccessList::Load(options.clients);
  if (!clients.ok()) return clients.status();
  return std::make_optional(CurveServer{std::move(keys).value(), std::move(clients).value()});
}

Result<std::optional<CurveClient>> LoadCurveClient(const CurveClientOptions& options,
                                                   const std::vector<std::string>& endpoints) {
  if (options.key.empty() != options.server_key.empty()) {
    return BadFlag("--curve-key and --server-key need each other");
  }
  if (options.key.empty()) {
    const Status local =
        CheckLocal(endpoints, options.insecure, "--curve-key and --server-key (CURVE)");
    if (!local.ok()) return local;
    return std::optional<CurveClient>();
  }
  if (options.insecure) return BadFlag("--insecure: not with --curve-key");
  auto keys = CurveKeyPair::Load(options.key);
  if (!keys.ok()) return keys.status();
  if (const Status key = CheckCurveKey(options.server_key); !key.ok()) {
    return BadFlag("--server-key: " + key.message());
  }
  return std::make_optional(CurveClient{std::move(keys).value(), options.server_key});
}

bool RefusalLog::Due() {
  const int64_t now_ms = SteadyMs();
  if (now_ms < next_ms_) return false;
  next_ms_ = now_ms + kPeriodMs;
  return true;
}

void RefusalLog::Note(const RefusedConnections& refused, uint64_t denied, uint64_t list_failures) {
  const uint64_t total = refused.total() + denied + list_failures;
  if (total == told_) return;
  told_ = total;
  std::fprintf(stderr,
               "%s: refused since the start: %llu connections without a key, %llu with another "
               "server key, %llu with a key that is not allowed, %llu that ended early; %llu "
               "requests; %llu lists of clients could not be read\n",
               name_.c_str(), static_cast<unsigned long long>(refused.no_key),
               static_cast<unsigned long long>(refused.wrong_server_key),
               static_cast<unsigned long long>(refused.not_allowed),
               static_cast<unsigned long long>(refused.broken),
               static_cast<unsigned long long>(denied),
               static_cast<unsigned long long>(list_failures));
}

}  // namespace kvcast::tools
