// SPDX-License-Identifier: Apache-2.0
#include "router/service/load_setup.h"

#include <algorithm>
#include <string>
#include <utility>

#include "router/service/route/request_ids.h"
#include "src/base/clock.h"
#include "src/http/loopback.h"
#include "src/stream/net/notice_log.h"

namespace kvcast::router {
namespace {

double NowMs() { return static_cast<double>(SteadyNs()) * 1e-6; }

Status BadLoad(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

Status CheckPeer(const LoadPeer& peer, const RouterOptions& options) {
  if (!peer.server_key.empty() && options.curve_key.empty()) {
    return BadLoad("load_peers: " + peer.endpoint +
                   " has a server_key, but the router has no keys; set curve_key (--curve-key)");
  }
  if (!peer.server_key.empty() || IsLoopbackEndpoint(peer.endpoint)) return Status();
  return BadLoad("load_peers: " + peer.endpoint + " is not loopback; set server_key (CURVE)");
}

OriginLoad LoadByName(const ServiceCore& core) {
  const FleetInFlight own = core.request_router->OwnLoad(NowMs());
  OriginLoad load{
      .workers = {}, .arrivals_per_s = own.arrivals_per_s, .work_s_per_s = own.work_s_per_s};
  for (const FleetView view = core.fleet->view(); const auto& worker : view->workers) {
    const auto it = own.workers.find(worker->id);
    if (it == own.workers.end()) continue;
    load.workers.push_back({worker->config.worker.name, it->second});
  }
  std::ranges::sort(load.workers, {}, &WorkerGauge::worker);
  return load;
}

// Workers that this router does not know do not count.
FleetInFlight LoadById(const ServiceCore& core, const OriginLoad& sum) {
  FleetInFlight load{
      .workers = {}, .arrivals_per_s = sum.arrivals_per_s, .work_s_per_s = sum.work_s_per_s};
  for (const FleetView view = core.fleet->view(); const auto& worker : view->workers) {
    const std::string& name = worker->config.worker.name;
    const auto it = std::ranges::lower_bound(sum.workers, name, {}, &WorkerGauge::worker);
    if (it != sum.workers.end() && it->worker == name) load.workers.emplace(worker->id, it->load);
  }
  return load;
}

}  // namespace

Status CheckLoadSharing(const RouterOptions& options) {
  const LoadSharingConfig& load = options.load;
  if (load.peers.size() > LoadSharingConfig::kMaxPeers) {
    return BadLoad("load_peers: at most " + std::to_string(LoadSharingConfig::kMaxPeers));
  }
  if (load.name.size() > kMaxOriginBytes) {
    return BadLoad("router_name: at most " + std::to_string(kMaxOriginBytes) + " bytes");
  }
  if (load.period_ms < kMinLoadPeriodMs || load.period_ms > kMaxLoadPeriodMs) {
    return BadLoad("load_period_ms: must be from " + std::to_string(kMinLoadPeriodMs) + " to " +
                   std::to_string(kMaxLoadPeriodMs));
  }
  for (const LoadPeer& peer : load.peers) {
    if (Status status = CheckPeer(peer, options); !status.ok()) return status;
  }
  if (load.endpoint.empty() || IsLoopbackEndpoint(load.endpoint)) return Status();
  const std::string remote = "load_endpoint: " + load.endpoint + " is not loopback; set ";
  if (!options.allow_remote) {
    return BadLoad(remote + "allow_remote (--allow-remote) to listen there");
  }
  if (!options.curve_clients.empty()) return Status();
  return BadLoad(remote + "curve_key and curve_clients (CURVE)");
}

Status StartLoadSharing(const RouterOptions& options, ServiceCore& core) {
  LoadSharingConfig config = options.load;
  if (config.endpoint.empty() && config.peers.empty()) return Status();
  if (config.name.empty()) config.name = RandomRequestId();
  config.epoch = static_cast<uint64_t>(WallSeconds() * 1e6);
  config.now_us = SteadyUs;
  config.curve_keys = options.subscriber.curve_keys;
  if (config.curve && core.log != nullptr) {
    config.curve->on_notice = stream::LogNotices(*core.log, "load");
  }
  LoadExchange exchange = {
      .own = [&core] { return LoadByName(core); },
      .set_others =
          [&core](const OriginLoad& sum) {
            core.request_router->SetPeerLoads(LoadById(core, sum), NowMs());
          },
      .set_view = [&core](const PeerView& view) { core.request_router->SetPeerView(view); }};
  auto sharing = LoadSharing::Create(std::move(config), std::move(exchange));
  if (!sharing.ok()) return sharing.status();
  core.load_sharing = std::move(sharing).value();
  core.request_router->ShareLoad([&core] { core.load_sharing->NoteChange(); });
  return Status();
}

}  // namespace kvcast::router
