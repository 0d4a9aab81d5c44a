// The benchmarks of the index: `kvcast bench NAME`. Options are filled by the command line; each
// entry point returns the process's exit code (see src/tools/commands.h).
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
  int64_t rounds = 8;
  int64_t every_us = 200;  // one query
  double seconds = 0.25;   // of a round with the removal, at least, and of one without
};
int RunRemoveBench(const RemoveBenchOptions& options);

}  // namespace kvcast::bench
