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
#include "apps/demo/demo_options.h"
#include "apps/engine/engine_options.h"
#include "apps/simulate/simulate_options.h"
#include "apps/support/fail.h"
#include "apps/support/stderr_log.h"
#include "kvcast/cuda/cuda_device.h"

namespace kvcast::tools {

struct KeygenOptions {
  std::string out;     // NAME: the files are NAME.key and NAME.pub
  bool force = false;  // replace the files
};
int RunKeygen(const KeygenOptions& options);

int RunEngine(const EngineOptions& options);
int RunDemo(const DemoOptions& options);

struct RouterCommandOptions {
  std::string http;      // empty: from the configuration, or 127.0.0.1:8080
  std::string tls_cert;  // PEM file; empty: from the configuration, or none
  std::string tls_key;   // PEM file of the certificate's key
  std::string config;    // see config_json.h; empty: none
  // The following members replace those of the configuration if they are not empty or 0.
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
  std::string relay;  // PUB endpoint; empty: from the configuration, or no relay
  bool relay_redact = false;
  bool allow_remote = false;  // also true if the configuration sets it
  // See RouterOptions; empty: from the configuration, or none.
  std::string curve_key;
  std::string curve_clients;
  // The router uses and verifies the value for every source that does not set the property itself.
  // Empty: the router detects the property.
  std::string hash_algorithm;
  std::string hash_seed;
  // Added to the candidates of every source.
  std::vector<std::string> candidate_seeds;
  std::vector<std::string> candidate_none_hashes;  // hex digits
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
  std::string record;   // file; empty: none
  bool redact = false;  // remove the content of prompts (router::Redact) from output and recording
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
  CurveServerOptions curve;
  LogOptions log;
};
int RunRelay(const RelayOptions& options);

struct ConformanceOptions {
  std::string kind;
  // Class offload. True: the engine's rules. False: our own rules where the engine has a defect.
  bool compatible = true;
  std::vector<std::string> paths;
  // Router class; see RouterConformanceOptions.
  std::string policy = "exact";
  std::string feed = "recorded";
  uint64_t seed = 1;
  bool table = false;            // print all policies as a Markdown table
  std::string told = "all";      // router; see RouterConformanceOptions
  std::string scheme = "found";  // router; see RouterConformanceOptions
  uint64_t joins = 0;
  bool json = false;
};
int RunConformance(const ConformanceOptions& options);

struct CopyBenchOptions {
  bool list = false;    // print the backends and exit
  int64_t mib = 512;    // payload of each copy
  int64_t spread = 1;   // size of the pools as a multiple of the payload
  int64_t threads = 0;  // 0: half of the processors, at least 1 and at most 4
  int64_t cycles = 7;
  std::string device = "auto";  // cuda, host; auto: cuda if a GPU exists
  bool quick = false;           // cuda: only some fragment sizes
  bool questions = false;       // cuda: measure the machine's copy costs, not the ratios
  std::string svg;              // cuda: file for a chart of the ratios; empty: none
  bool json = false;
};
int RunCopyBenchCommand(const CopyBenchOptions& options);
// Runs the copy benchmark on a GPU.
int RunCudaBenchCommand(const CudaDevice& device, const CopyBenchOptions& options);

struct FreshnessBenchOptions {
  int64_t sources = 64;
  int64_t rate = 256;  // batches per second of each source
  int64_t seconds = 10;
  int64_t burst = 1;  // factor of the rate during one second; 1: no burst
  int64_t publishers_nice = 5;
  bool curve = false;  // measure the rate with and without CURVE, and nothing else
  bool json = false;
};
int RunFreshnessBenchCommand(const FreshnessBenchOptions& options);

struct HostileBenchOptions {
  int64_t sources = 63;  // good sources
  int64_t rate = 256;    // batches per second of each good source
  int64_t seconds = 10;  // of each attack
  int64_t ingest_threads = 1;
  std::vector<std::string> attacks;  // empty: "none" (no attack), then each attack
  bool json = false;
};
int RunHostileBenchCommand(const HostileBenchOptions& options);

struct RestartBenchOptions {
  int64_t sources = 64;
  int64_t rate = 256;        // batches per second of each source
  int64_t blocks = 100'000;  // blocks that a source holds
  int64_t kills = 50;
  int64_t state_interval = 5;  // seconds
  int64_t seconds = 20;        // to measure queries
  bool plain = false;          // the publishers have no KVX1
  bool json = false;
};
int RunRestartBenchCommand(const RestartBenchOptions& options);

struct ServiceBenchOptions {
  int64_t rate = 2000;          // decisions per second
  int64_t block_ops = 100'000;  // block operations per second, over all workers
  int64_t workers = 8;
  int64_t blocks = 625;  // blocks of a prompt
  int64_t connections = 64;
  int64_t seconds = 10;
  bool tokens = false;
  int64_t observers = 0;
  std::vector<std::string> attacks;  // "all": each attack
  bool json = false;
};
int RunServiceBenchCommand(const ServiceBenchOptions& options);

struct SimOptions {
  std::string seeds = "1..1000";  // A..B, both included
  int64_t threads = 2;
  int64_t max_failed = 1;  // failed seeds after which the run ends
  bool json = false;
};
int RunSim(const SimOptions& options);

int RunSimulate(const simulate::SimulateOptions& options);

}  // namespace kvcast::tools
