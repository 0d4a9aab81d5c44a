// Options of a simulated engine, filled by the command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "apps/support/stderr_log.h"

namespace kvcast::tools {

// Options of the simulated model and its cache, shared by `engine` and `demo`.
struct CacheOptions {
  std::string model = "hybrid";
  std::string rules = "v0.33";      // the release of vLLM that the cache follows
  int64_t blocks = 0;               // blocks in one engine's pool; 0: the model's default
  std::string retention = "dense";  // dense, or the interval in tokens
  std::string hash_algorithm = "sha256";
  std::string hash_seed;            // empty: the engine's default seed
  std::string hash_form = "int64";  // int64, bytes
  bool announce_once = false;       // see EventOptions
  bool exact_spans = false;         // see EventOptions
  bool hashes_only = false;         // the events carry no content of prompts
  int64_t vocabulary = 128000;
  int64_t max_batched_tokens = 8192;
  int64_t draft_tokens = 0;       // draft tokens of an EAGLE head, verified in each decoding step
  double prefill_rate = 30000;    // tokens per second
  int64_t cpu_blocks = 0;         // blocks of host memory behind each pool; 0: none
  std::string offload = "eager";  // eager, lazy, connector
  int64_t blocks_per_chunk = 1;   // only for the connector
  std::string device = "host";    // where the bytes of the pools are: host, cuda
  double load_rate = 0;           // tokens per second from host memory; 0: measured
};

struct EngineOptions {
  CacheOptions cache;
  std::string name = "engine";
  std::string endpoint = "tcp://127.0.0.1:5557";
  std::string replay_endpoint = "tcp://127.0.0.1:5657";
  std::string topic;
  int64_t rank = 0;
  std::string dialect;   // empty: the default of the release
  std::string trace;     // empty: the bundled slice
  int64_t requests = 0;  // 0: all requests of the trace
  double speed = 1;      // seconds of the trace per second of real time
  // See CurveServerOptions.
  std::string curve_key;
  std::string curve_clients;
  bool insecure = false;
  LogOptions log;
  std::string control;  // endpoint that sends the requests, in place of a trace; empty: none
  bool json = false;
};

}  // namespace kvcast::tools
