// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "apps/bench/growth/growth_bench.h"
#include "apps/support/bench_flags.h"

namespace kvcast::bench {

void AddGrowthBench(CLI::App& bench, Command& command) {
  AddBench<GrowthBenchOptions>(
      bench, command, "growth",
      "cost of apply and query, memory and pauses while one index grows, with the exponents of "
      "the curves",
      RunGrowthBench, [](CLI::App& sub, GrowthBenchOptions& options) {
        AddCount(sub, "--residencies", options.residencies,
                 "held (worker, block) pairs at the largest point", 1e10);
        sub.add_option("--memory-gb", options.memory_gb,
                       "maximum memory of the process, in GB (10^9 bytes); the index stops growing "
                       "before the process uses more")
            ->check(CLI::Range(0.001, 1e5))
            ->capture_default_str();
        AddNumber(sub, "--workers", options.workers, 2, 10'000, "number of workers");
        AddNumber(sub, "--queries", options.queries, 100, 10'000'000, "queries at each point");
        sub.add_option("--svg", options.svg, "write a chart of the curves to this SVG file");
        AddJson(sub, options.json);
      });
}

}  // namespace kvcast::bench
