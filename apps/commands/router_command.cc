// `kvcast router`: follows engines and answers queries over HTTP until a stop signal.
// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "apps/commands/commands.h"
#include "apps/support/file.h"
#include "apps/support/stop.h"
#include "router/service/api/source_flag.h"
#include "router/service/config_json.h"
#include "router/service/discovery/curl_client.h"
#include "router/service/json/json_fields.h"
#include "router/service/router_service.h"
#include "src/base/version.h"

namespace kvcast::tools {
namespace {

using router::RouterOptions;
using router::RouterService;
using router::SourceDefaults;
using router::WorkerRegistration;

constexpr size_t kMaxConfigBytes = 16 << 20;

Status BadFlag(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

// Reads the flags that apply to the sources of all lists.
Result<SourceDefaults> DefaultsOf(const RouterCommandOptions& options) {
  SourceDefaults defaults;
  defaults.algorithm = ParseHashAlgorithm(options.hash_algorithm);
  if (!defaults.algorithm && !options.hash_algorithm.empty()) {
    return BadFlag("--hash-algo: unknown algorithm '" + options.hash_algorithm + "'");
  }
  if (!options.hash_seed.empty()) defaults.hash_seed = options.hash_seed;
  defaults.candidate_seeds = options.candidate_seeds;
  for (const std::string& hex : options.candidate_none_hashes) {
    const auto bytes = router::BytesFromHex(hex);
    if (!bytes) return BadFlag("--candidate-none-hash: not hex digits: '" + hex + "'");
    defaults.candidate_none_hashes.push_back(*bytes);
  }
  return defaults;
}

Status SetAccess(const RouterCommandOptions& options, RouterOptions& router) {
  if (!options.token_file.empty()) router.http.token_file = options.token_file;
  Status status;
  if (!options.admin_listen.empty()) {
    status = router::ReadAdminListen(options.admin_listen, "--admin-listen", router);
  }
  if (status.ok() && !options.allowed_hosts.empty()) {
    status = router::ReadAllowedHosts(options.allowed_hosts, "--allowed-host", router);
  }
  if (status.ok() && !options.source_networks.empty()) {
    status = router::ReadSourceNetworks(options.source_networks, "--source-network", router);
  }
  const auto set = [](int64_t flag, size_t& limit) {
    if (flag > 0) limit = static_cast<size_t>(flag);
  };
  set(options.max_sources, router.source_limits.workers);
  set(options.max_http_sources, router.source_limits.client_workers);
  if (options.max_residencies > 0) {
    router.source_limits.residencies = static_cast<uint64_t>(options.max_residencies);
  }
  return status;
}

Status SetLoadSharing(const RouterCommandOptions& options, RouterOptions& router) {
  if (!options.load_endpoint.empty()) router.load.endpoint = options.load_endpoint;
  if (options.load_period_ms > 0) router.load.period_ms = options.load_period_ms;
  if (!options.router_name.empty()) router.load.name = options.router_name;
  if (options.load_peers.empty()) return Status();
  return router::ReadLoadPeers(options.load_peers, "--load-peer", router);
}

void SetPeer(const RouterCommandOptions& options, RouterOptions& router) {
  if (!options.peer.empty()) router.peer.url = options.peer;
  if (!options.peer_token_file.empty()) router.peer.token_file = options.peer_token_file;
  if (!options.peer_ca_file.empty()) router.peer.ca_file = options.peer_ca_file;
  if (options.peer_timeout_ms > 0) router.peer.timeout_ms = options.peer_timeout_ms;
  router.peer.stopping = [] { return StopSignal() != 0; };
}

// Reads the configuration file first, because the flags override its values.
Result<RouterOptions> MakeOptions(const RouterCommandOptions& options) {
  RouterOptions router;
  router.http.port = router::kDefaultHttpPort;
  router.make_client = router::MakeCurlClient;
  if (!options.config.empty()) {
    const auto text = ReadFile(options.config, kMaxConfigBytes);
    if (!text.ok()) return text.status();
    if (const Status read = router::ReadConfig(*text, router); !read.ok()) {
      return BadFlag(options.config + ": " + read.message());
    }
  }
  if (!options.http.empty()) {
    const Status parsed = router::ParseHttpAddress(options.http, router.http);
    if (!parsed.ok()) return BadFlag("--" + parsed.message());
  }
  if (!options.tls_cert.empty()) router.http.tls_certificate = options.tls_cert;
  if (!options.tls_key.empty()) router.http.tls_key = options.tls_key;
  if (const Status access = SetAccess(options, router); !access.ok()) return access;
  for (const std::string& text : options.sources) {
    auto source = router::SourceFromFlag(text);
    if (!source.ok()) return BadFlag("--source: " + source.status().message());
    router.sources.push_back(std::move(source).value());
  }
  if (options.ingest_threads > 0) {
    router.ingest_threads = static_cast<size_t>(options.ingest_threads);
  }
  if (!options.state.empty()) router.state.folder = options.state;
  if (options.state_interval_s > 0) router.state.period_s = options.state_interval_s;
  SetPeer(options, router);
  if (!options.relay.empty()) router.relay.endpoint = options.relay;
  router.relay.redact |= options.relay_redact;
  if (const Status load = SetLoadSharing(options, router); !load.ok()) return load;
  router.allow_remote |= options.allow_remote;
  if (!options.curve_key.empty()) router.curve_key = options.curve_key;
  if (!options.curve_clients.empty()) router.curve_clients = options.curve_clients;
  router.source_files.insert(router.source_files.end(), options.source_files.begin(),
                             options.source_files.end());
  auto defaults = DefaultsOf(options);
  if (!defaults.ok()) return defaults.status();
  router.source_defaults = std::move(defaults).value();
  for (WorkerRegistration& source : router.sources) router.source_defaults.ApplyTo(source);
  return router;
}

// Raises the limit of open files, which bounds the number of connections.
void RaiseOpenFiles() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Reads the configuration file again, and follows its sources. Other members of the file need a
// restart. An error changes nothing.
void Reload(const RouterCommandOptions& options, RouterService& service, Logger& log) {
  auto router = MakeOptions(options);
  const auto changes =
      router.ok() ? service.Reload(*router) : Result<router::SourceSet::Changes>(router.status());
  if (!changes.ok()) {
    log.Write(log_events::kReloadFailed, "", {{"reason", changes.status().message()}});
    return;
  }
  log.Write(log_events::kReloaded, "",
            {{"added", changes->added},
             {"removed", changes->removed},
             {"errors", changes->errors.size()}});
}

}  // namespace

int RunRouter(const RouterCommandOptions& options) {
  InstallStopSignals();
  InstallReloadSignal();
  RaiseOpenFiles();
  const auto log = MakeStderrLog(options.log);
  auto router = MakeOptions(options);
  if (!router.ok()) return Fail(router.status());
  std::unique_ptr<NatsLogs> logs;
  if (!options.nats.connection.url.empty()) {
    auto made = NatsLogs::Create(options.nats, *log);
    if (!made.ok()) return Fail(made.status());
    logs = std::move(made).value();
    router->open_log = [raw = logs.get()](const std::string& name,
                                          const OpenLogOptions& log_options) {
      return raw->Open(name, log_options);
    };
  }
  router->log = log.get();
  auto service = RouterService::Start(*router);
  if (!service.ok()) return Fail(service.status());
  log->Write(log_events::kStarted, "",
             {{"command", "router"},
              {"version", Version()},
              {"sources", router->sources.size()},
              {"ingest_threads", (*service)->ingest_threads()}});
  while (StopSignal() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (TakeReloadSignal()) Reload(options, **service, *log);
  }
  log->Write(log_events::kStopping, "", {{"signal", StopSignal()}});
  (*service)->Stop();
  return 0;
}

}  // namespace kvcast::tools
