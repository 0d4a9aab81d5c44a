// The subcommands of `kvcast-dev`: their options, filled by the command line, and their entry
// points. Each entry point returns the process's exit code: 0: success, 1: failure, 2: usage error.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/support/fail.h"
#include "kvcast/cuda/cuda_device.h"

namespace kvcast::tools {

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
  int64_t joins = 10;
  int64_t state_interval = 5;  // seconds
  int64_t seconds = 20;        // duration of the measurement of queries
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
  bool tokens = false;               // query by token ids, not by block hashes
  int64_t observers = 0;             // of each kind; see ServiceBenchConfig
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

}  // namespace kvcast::tools
