// The benchmarks of the index: `kvcast bench NAME`. Options are filled by the command line; each
// entry point returns the process's exit code (see apps/commands/commands.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace kvcast::bench {

// What the workers hold; see ChurnConfig.
struct FleetOptions {
  int64_t residencies = 10'000'000;
  int64_t workers = 64;
  int64_t groups = 1;
  int64_t holders = 0;  // of a block; 0: the benchmark's own cases
  int64_t blocks = 625;
  bool json = false;
};

struct ApplyBenchOptions {
  FleetOptions fleet;
  int64_t slices = 40;  // of each kind
};
int RunApplyBench(const ApplyBenchOptions& options);

struct LookupBenchOptions {
  FleetOptions fleet;
  int64_t queries = 4000;     // of each case
  std::string depth = "all";  // full, half, mixed, miss, all
  double write_rate = 0;      // block operations per second while writers are busy; 0: full speed
};
int RunLookupBench(const LookupBenchOptions& options);

struct MemoryBenchOptions {
  // groups 0: the benchmark's own cases
  FleetOptions fleet{.residencies = 5'000'000, .groups = 0};
};
int RunMemoryBench(const MemoryBenchOptions& options);

struct RemoveBenchOptions {
  FleetOptions fleet;
  int64_t victim_blocks = 1'000'000;
  int64_t rounds = 40;
  int64_t every_us = 200;  // one query
  double seconds = 0.25;   // of a round with the removal, at least, and of one without
};
int RunRemoveBench(const RemoveBenchOptions& options);

struct WireBenchOptions {
  FleetOptions fleet;
  int64_t slices = 40;  // of each dialect
};
int RunWireBench(const WireBenchOptions& options);

struct PublishBenchOptions {
  int64_t rate = 1000;  // batches per second
  int64_t blocks = 8;   // that a batch stores, and removes
  int64_t seconds = 5;  // of each case
  bool json = false;
};
int RunPublishBench(const PublishBenchOptions& options);

struct HashBenchOptions {
  int64_t tokens = 10'000;
  int64_t rounds = 2000;
  bool json = false;
};
int RunHashBench(const HashBenchOptions& options);

// Where a corpus comes from; see bench/CORPUS.md.
struct CorpusOptions {
  std::string file;      // empty: made from a trace
  std::string trace;     // empty: the bundled one
  int64_t requests = 0;  // of the trace; 0: all
  int64_t workers = 128;
  int64_t copies = 20;
  int64_t block_tokens = 128;
  int64_t pool_blocks = 16'384;
};

struct TokensBenchOptions {
  CorpusOptions corpus;
  int64_t tokens = 0;     // of a block; 0: as the corpus says
  int64_t points = 40;    // of the replay at which queries are put
  int64_t queries = 100;  // at each, of each way to ask, at most
  bool json = false;
};
int RunTokensBench(const TokensBenchOptions& options);

struct ReplayBenchOptions {
  CorpusOptions corpus;
  int64_t event_threads = 1;
  int64_t query_threads = 1;
  double rate = 0;  // block operations per second of keep_up; 0: half of what overload reaches
  std::string export_to;
  bool export_only = false;
  bool json = false;
};
int RunReplayBench(const ReplayBenchOptions& options);

struct GrowthBenchOptions {
  int64_t max_residencies = 10'000'000;
  int64_t base_residencies = 1'000'000;
  int64_t samples = 300;  // turns and queries of each point
  std::string csv;        // file; empty: none
  std::string svg;
  bool json = false;
};
int RunGrowthBench(const GrowthBenchOptions& options);

}  // namespace kvcast::bench
