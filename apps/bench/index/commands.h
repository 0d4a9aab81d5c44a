// The benchmarks of the index: `kvcast bench NAME`. The command line fills the options. Each entry
// point returns the process's exit code (apps/commands/commands.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace kvcast::bench {

// The fleet's content; see ChurnConfig.
struct FleetOptions {
  int64_t residencies = 10'000'000;
  int64_t workers = 64;
  int64_t groups = 1;
  int64_t holders = 0;  // workers that hold a block; 0: the benchmark's own cases
  int64_t blocks = 625;
  bool json = false;
};

struct ApplyBenchOptions {
  FleetOptions fleet;
  int64_t slices = 40;  // for each form of removes and each hash map; a slice has 16 turns
};
int RunApplyBench(const ApplyBenchOptions& options);

struct LookupBenchOptions {
  FleetOptions fleet;
  int64_t queries = 4000;     // queries of each case
  std::string depth = "all";  // full, half, mixed, miss, all
  double write_rate = 0;      // block operations per second of a busy writer; 0: full speed
};
int RunLookupBench(const LookupBenchOptions& options);

struct MemoryBenchOptions {
  // groups 0: the benchmark's own cases.
  FleetOptions fleet{.residencies = 5'000'000, .groups = 0};
};
int RunMemoryBench(const MemoryBenchOptions& options);

struct RemoveBenchOptions {
  FleetOptions fleet;
  int64_t victim_blocks = 1'000'000;
  int64_t rounds = 40;
  int64_t every_us = 200;  // interval between queries
  double seconds = 0.25;   // shortest time of a round, with and without a removal
};
int RunRemoveBench(const RemoveBenchOptions& options);

struct WireBenchOptions {
  FleetOptions fleet;
  int64_t slices = 40;  // slices of each dialect
};
int RunWireBench(const WireBenchOptions& options);

struct PublishBenchOptions {
  int64_t rate = 1000;  // batches per second
  int64_t blocks = 8;   // blocks that a batch stores, and blocks that it removes
  int64_t seconds = 5;  // seconds of each case
  bool json = false;
};
int RunPublishBench(const PublishBenchOptions& options);

struct HashBenchOptions {
  int64_t tokens = 10'000;
  int64_t rounds = 2000;
  bool json = false;
};
int RunHashBench(const HashBenchOptions& options);

// The source of a corpus; see bench/CORPUS.md.
struct CorpusOptions {
  std::string file;      // empty: make a corpus from a trace
  std::string trace;     // empty: the bundled trace
  int64_t requests = 0;  // requests of the trace; 0: all
  int64_t workers = 128;
  int64_t copies = 20;
  int64_t block_tokens = 128;
  int64_t pool_blocks = 16'384;
};

struct TokensBenchOptions {
  CorpusOptions corpus;
  int64_t tokens = 0;     // tokens of a block; 0: as in the corpus
  int64_t points = 40;    // points of the replay at which queries run
  int64_t queries = 100;  // queries per point and method, at most
  bool json = false;
};
int RunTokensBench(const TokensBenchOptions& options);

struct ReplayBenchOptions {
  CorpusOptions corpus;
  int64_t event_threads = 1;
  int64_t query_threads = 1;
  // Block operations per second of keep_up; 0: half of the rate that overload reaches.
  double rate = 0;
  std::string export_to;     // path of the exported corpus; empty: no export
  bool export_only = false;  // export the corpus, and measure nothing
  bool json = false;
};
int RunReplayBench(const ReplayBenchOptions& options);

struct CellsBenchOptions {
  std::string corpus;   // path
  std::string cell;     // see cells.h
  int64_t rounds = 3;   // rounds of the cells that apply events or remove blocks
  int64_t points = 40;  // points of the replay at which queries run
  int64_t shards = 1;   // of the index
  bool json = false;
};
int RunCellsBench(const CellsBenchOptions& options);

struct SizesBenchOptions {
  int64_t max_residencies = 10'000'000;
  int64_t base_residencies = 1'000'000;
  int64_t samples = 300;  // turns and queries of each point
  std::string csv;        // path of the table; empty: no file
  std::string svg;        // path of the chart; empty: no file
  bool json = false;
};
int RunSizesBench(const SizesBenchOptions& options);

}  // namespace kvcast::bench
