// The subcommands of `kvcast`: their options, filled by the command line, and their entry points.
// Each entry point returns the process's exit code: 0 success, 1 failure, 2 usage.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/cuda_device.h"
#include "kvcast/status.h"

namespace kvcast::tools {

// Options of the simulated model and its cache, shared by `engine` and `demo`.
struct CacheOptions {
  std::string model = "hybrid";
  std::string rules = "v0.33";      // the release of vLLM that the cache follows
  int64_t blocks = 0;               // pool of one engine; 0: the model's default
  std::string retention = "dense";  // dense, or the interval in tokens
  std::string hash_algorithm = "sha256";
  std::string hash_seed;            // empty: the engine's default seed
  std::string hash_form = "int64";  // int64, bytes
  bool announce_once = false;
  bool exact_spans = false;
  int64_t vocabulary = 128000;
  int64_t max_batched_tokens = 8192;
  int64_t draft_tokens = 0;       // of an EAGLE head, verified in each step of a decode
  double prefill_rate = 30000;    // tokens per second
  int64_t cpu_blocks = 0;         // host memory behind each pool, in blocks; 0: none
  std::string offload = "eager";  // eager, lazy, connector
  int64_t blocks_per_chunk = 1;   // connector
  std::string device = "host";    // where the pools' bytes are: host, cuda
  double load_rate = 0;           // tokens per second from host memory; 0: measured
};

struct EngineOptions {
  CacheOptions cache;
  std::string name = "engine";
  std::string endpoint = "tcp://127.0.0.1:5557";
  std::string replay_endpoint = "tcp://127.0.0.1:5657";
  std::string topic;
  int64_t rank = 0;
  std::string dialect;   // empty: the release's own
  std::string trace;     // empty: the bundled slice
  int64_t requests = 0;  // 0: all of the trace
  double speed = 1;      // trace seconds per second
  std::string control;   // endpoint to take requests from instead of a trace
  bool json = false;
};
int RunEngine(const EngineOptions& options);

struct DemoOptions {
  CacheOptions cache;
  int64_t engines = 4;
  int64_t requests = 1000;
  double speed = 0;      // 0: chosen so that one run takes about 12 s
  std::string trace;     // empty: the bundled slice
  std::string dialects;  // comma-separated; engines take them in turn; empty: the release's
  // ADDR:PORT of a router service that decides, with its dashboard; stays up until interrupted.
  // Empty: none.
  std::string serve;
  bool json = false;
};
int RunDemo(const DemoOptions& options);

struct RouterCommandOptions {
  std::string http;      // empty: the configuration's, or 127.0.0.1:8080
  std::string tls_cert;  // PEM file; empty: the configuration's, or none
  std::string tls_key;
  std::string config;                // see config_json.h; empty: none
  std::vector<std::string> sources;  // see source_json.h
  std::string relay;                 // PUB endpoint; empty: the configuration's, or none
  bool relay_redact = false;
  bool allow_remote = false;  // or the configuration's
  // Registered for every source, and verified; empty: found out.
  std::string hash_algorithm;
  std::string hash_seed;
  std::vector<std::string> candidate_seeds;
  std::vector<std::string> candidate_none_hashes;  // hex digits
};
int RunRouter(const RouterCommandOptions& options);

struct TailOptions {
  std::vector<std::string> endpoints = {"tcp://127.0.0.1:5557"};
  std::string topic;
  int64_t count = 0;  // stop after so many batches; 0: never
  bool json = false;
  // See TailFilter.
  std::string model;
  std::string worker;
  std::optional<int64_t> rank;
  std::string tier;
  std::optional<int64_t> group;
  bool stats = false;
  std::string record;   // file; empty: none
  bool redact = false;  // no token ids and extra keys, neither shown nor recorded
};
int RunTail(const TailOptions& options);

struct ReplayOptions {
  std::string file;
  std::string endpoint = "tcp://127.0.0.1:5557";
  double speed = 1;    // recorded seconds per second; 0: as fast as it goes
  double delay = 0.5;  // seconds for subscribers to come
};
int RunReplay(const ReplayOptions& options);

struct ConformanceOptions {
  std::string kind;
  bool compatible = true;  // offload: the engine's rules, else our own where they differ
  std::vector<std::string> paths;
  // Router class; see RouterConformanceOptions.
  std::string policy = "exact";
  std::string feed = "recorded";
  uint64_t seed = 1;
  bool table = false;            // the policies as a Markdown table
  std::string told = "all";      // router
  std::string scheme = "found";  // router
  uint64_t joins = 0;
  bool json = false;
};
int RunConformance(const ConformanceOptions& options);

struct CopyBenchOptions {
  bool list = false;  // name the backends, copy nothing
  int64_t mib = 512;  // payload
  int64_t spread = 1;
  int64_t threads = 0;  // 0: half of the processors, 1 to 4
  int64_t cycles = 7;
  std::string device = "auto";  // cuda, host; auto: cuda where a GPU is
  bool quick = false;           // cuda: few sizes of fragments
  bool questions = false;       // cuda: ask the machine, instead
  std::string svg;              // cuda: file for a picture of the ratios; empty: none
  bool json = false;
};
int RunCopyBenchCommand(const CopyBenchOptions& options);
// On a GPU.
int RunCudaBenchCommand(const CudaDevice& device, const CopyBenchOptions& options);

struct FreshnessBenchOptions {
  int64_t sources = 64;
  int64_t rate = 256;  // batches per second of each
  int64_t seconds = 10;
  int64_t burst = 1;  // times the rate, for a second; 1: none
  int64_t publishers_nice = 5;
  bool json = false;
};
int RunFreshnessBenchCommand(const FreshnessBenchOptions& options);

struct ServiceBenchOptions {
  int64_t rate = 2000;          // decisions per second
  int64_t block_ops = 100'000;  // per second, of all workers
  int64_t workers = 8;
  int64_t blocks = 625;  // of a prompt
  int64_t connections = 64;
  int64_t seconds = 10;
  bool tokens = false;
  int64_t observers = 0;
  bool json = false;
};
int RunServiceBenchCommand(const ServiceBenchOptions& options);

struct SimOptions {
  std::string seeds = "1..1000";  // A..B, both included
  int64_t threads = 2;
  int64_t max_failed = 1;  // seeds; then the run ends
  bool json = false;
};
int RunSim(const SimOptions& options);

// Prints "kvcast: <text>" as one line on stderr; gives back `exit_code`.
int Fail(const std::string& text, int exit_code = 1);
// Fail with a Status: invalid arguments are usage errors (2), everything else failures (1).
int Fail(const Status& status);

}  // namespace kvcast::tools
