// The subcommands of `kvcast`: their options, filled by the command line, and their entry points.
// Each entry point returns the process's exit code: 0: success, 1: failure, 2: usage error. After a
// stop signal, engine, demo, tail, replay and relay return 128 + the signal. The router and a demo
// with `serve` return 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands/curve_options.h"
#include "apps/commands/nats_options.h"
#include "apps/commands/relay_http.h"
#include "apps/demo/demo_options.h"
#include "apps/engine/engine_options.h"
#include "apps/simulate/simulate_options.h"
#include "apps/support/fail.h"
#include "apps/support/stderr_log.h"

namespace kvcast::tools {

struct KeygenOptions {
  std::string out;     // NAME: the files are NAME.key and NAME.pub
  bool force = false;  // replace NAME.key; NAME.pub is always replaced
};
int RunKeygen(const KeygenOptions& options);

int RunEngine(const EngineOptions& options);
int RunDemo(const DemoOptions& options);

struct RouterCommandOptions {
  std::string http;      // empty: from the configuration, or 127.0.0.1:8080
  std::string tls_cert;  // PEM file; empty: from the configuration, or none
  std::string tls_key;   // PEM file of the certificate's key
  std::string config;    // path, see config_json.h; empty: no configuration
  // Each member from here to max_http_sources replaces the value in the configuration. Empty or 0:
  // the value in the configuration applies. `sources` and `source_files` are added to the lists in
  // the configuration.
  std::string token_file;                    // see AccessTokens
  std::string admin_listen;                  // ADDR:PORT or unix:PATH
  std::vector<std::string> allowed_hosts;    // names without a port
  std::vector<std::string> source_networks;  // CIDR
  int64_t max_sources = 0;
  int64_t max_residencies = 0;
  int64_t max_http_sources = 0;
  std::vector<std::string> sources;       // see source_flag.h
  std::vector<std::string> source_files;  // see SourceFiles
  int64_t ingest_threads = 0;             // 0: from the configuration, or by cores
  std::string state;                      // folder; empty: from the configuration, or none
  int64_t state_interval_s = 0;           // 0: from the configuration, or 30
  // See PeerOptions; empty or 0: from the configuration, or the default.
  std::string peer;
  std::string peer_token_file;
  std::string peer_ca_file;
  int64_t peer_timeout_ms = 0;
  std::string relay;  // PUB endpoint; empty: from the configuration, or no relay
  bool relay_redact = false;
  // See LoadSharingConfig; empty or 0: from the configuration, or the default.
  std::string load_endpoint;
  std::vector<std::string> load_peers;  // see ParseLoadPeer
  int64_t load_period_ms = 0;
  std::string router_name;
  bool allow_remote = false;  // permit listeners beyond loopback; the configuration may do so too
  // See RouterOptions; empty: from the configuration, or no CURVE.
  std::string curve_key;
  std::string curve_clients;
  // The router uses and verifies the value for every source that does not set the property itself.
  // Empty: the router detects the property.
  std::string hash_algorithm;
  std::string hash_seed;
  // Added to the candidates of every source.
  std::vector<std::string> candidate_seeds;
  std::vector<std::string> candidate_none_hashes;  // hex digits
  NatsFlags nats;  // for sources with the endpoint nats:MODEL/WORKER; without a URL: no NATS
  LogOptions log;
};
int RunRouter(const RouterCommandOptions& options);

struct TailOptions {
  std::vector<std::string> endpoints = {"tcp://127.0.0.1:5557"};
  std::string topic;
  int64_t count = 0;  // stop after this number of batches; 0: no limit
  bool json = false;
  // See TailFilter.
  std::string model;
  std::string worker;
  std::optional<int64_t> rank;
  std::string tier;
  std::optional<int64_t> group;
  bool stats = false;
  std::string record;   // path of the recording; empty: no recording
  bool redact = false;  // remove the content of prompts (see Redact) from output and recording
  CurveClientOptions curve;
};
int RunTail(const TailOptions& options);

struct ReplayOptions {
  std::string file;
  std::string endpoint = "tcp://127.0.0.1:5557";
  double speed = 1;    // recorded seconds per second of real time; 0: as fast as possible
  double delay = 0.5;  // seconds to wait for subscribers
  CurveServerOptions curve;
  LogOptions log;
};
int RunReplay(const ReplayOptions& options);

struct RelayOptions {
  std::string source;  // ENDPOINT[,REPLAY_ENDPOINT]
  std::string source_topic;
  std::string server_key;        // public key of the source; empty: the source has no CURVE
  bool source_bind = false;      // see SourceConfig::bind
  bool insecure_source = false;  // without server_key, the source may be beyond loopback
  std::string endpoint = "tcp://127.0.0.1:5567";
  std::string replay_endpoint = "tcp://127.0.0.1:5667";
  std::string topic;
  int64_t ring_batches = 10'000;
  bool hashes_only = false;
  bool repeats_are_refreshes = false;  // see PublisherConfig
  CurveServerOptions curve;
  NatsFlags nats;       // without a URL, the relay writes no log
  RelayHttpFlags http;  // without `listen`, the relay has no HTTP server
  LogOptions log;
};
int RunRelay(const RelayOptions& options);

int RunSimulate(const simulate::SimulateOptions& options);

}  // namespace kvcast::tools
