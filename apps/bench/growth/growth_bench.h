// `kvcast bench growth`: the cost of one index as a curve over the number of residencies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace kvcast::bench {

struct GrowthBenchOptions {
  int64_t residencies = 30'000'000;  // at the largest point
  double memory_gb = 4;              // memory limit of the process, in 10^9 bytes
  int64_t workers = 64;
  int64_t queries = 10'000;  // at each point
  std::string svg;           // path of the chart; empty: no chart
  bool json = false;
};
// Returns the process's exit code (apps/commands/commands.h).
int RunGrowthBench(const GrowthBenchOptions& options);

// Adds the subcommand to `bench`. If the subcommand is parsed, it sets `command` to its function.
// `command` must outlive `bench`.
void AddGrowthBench(CLI::App& bench, std::function<int()>& command);

}  // namespace kvcast::bench
