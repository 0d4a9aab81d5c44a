// SPDX-License-Identifier: Apache-2.0
#include "src/bench/cli.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <string>

#include "src/bench/commands.h"

namespace kvcast::bench {
namespace {

using Command = std::function<int()>;

void AddNumber(CLI::App& sub, const std::string& flag, int64_t& value, int64_t low, int64_t high,
               const std::string& text) {
  sub.add_option(flag, value, text)->check(CLI::Range(low, high))->capture_default_str();
}

void AddFleetFlags(CLI::App& sub, FleetOptions& fleet) {
  // As a real number too: 1e7.
  sub.add_option_function<double>(
         "--residencies", [&fleet](double value) { fleet.residencies = std::llround(value); },
         "(worker, block) pairs that are held, about")
      ->check(CLI::Range(1e3, 2e8))
      ->default_str(std::to_string(fleet.residencies));
  AddNumber(sub, "--workers", fleet.workers, 1, 65535, "workers");
  AddNumber(sub, "--groups", fleet.groups, fleet.groups == 0 ? 0 : 1, 64,
            fleet.groups == 0 ? "groups of each that hold every block (0: several cases)"
                              : "groups of each that hold every block");
  AddNumber(sub, "--holders", fleet.holders, 0, 65535,
            "workers that hold a block (0: several cases)");
  AddNumber(sub, "--blocks", fleet.blocks, 1, 65536, "of a prompt");
}

// A subcommand that calls `run` with the options that `add_flags(sub, options)` lets users set.
template <typename Options, typename AddFlags>
void AddBench(CLI::App& bench, Command& command, const char* name, const char* text,
              int (*run)(const Options&), AddFlags add_flags) {
  CLI::App* sub = bench.add_subcommand(name, text);
  const auto options = std::make_shared<Options>();
  add_flags(*sub, *options);
  sub->callback([&command, options, run] { command = [options, run] { return run(*options); }; });
}

void AddJson(CLI::App& sub, bool& json) {
  sub.add_flag("--json", json, "print one JSON object as the last line of stdout");
}

}  // namespace

void AddBenches(CLI::App& bench, Command& command) {
  AddBench<ApplyBenchOptions>(
      bench, command, "apply", "stores and removes against a plain hash map", RunApplyBench,
      [](CLI::App& sub, ApplyBenchOptions& options) {
        AddFleetFlags(sub, options.fleet);
        AddNumber(sub, "--slices", options.slices, 1, 1'000'000, "measured slices of each kind");
        AddJson(sub, options.fleet.json);
      });
  AddBench<LookupBenchOptions>(
      bench, command, "lookup",
      "queries against probes of a plain hash map, idle and beside writers", RunLookupBench,
      [](CLI::App& sub, LookupBenchOptions& options) {
        AddFleetFlags(sub, options.fleet);
        AddNumber(sub, "--queries", options.queries, 100, 100'000'000, "of each case");
        sub.add_option("--depth", options.depth, "of the hit: full, half, mixed, miss or all")
            ->check(CLI::IsMember({"full", "half", "mixed", "miss", "all"}))
            ->capture_default_str();
        sub.add_option("--write-rate", options.write_rate,
                       "block operations per second of the writer (0: as fast as it can)")
            ->check(CLI::Range(0.0, 1e9))
            ->capture_default_str();
        AddJson(sub, options.fleet.json);
      });
  AddBench<MemoryBenchOptions>(bench, command, "memory",
                               "bytes that the index needs for what is held, and gives back",
                               RunMemoryBench, [](CLI::App& sub, MemoryBenchOptions& options) {
                                 AddFleetFlags(sub, options.fleet);
                                 AddJson(sub, options.fleet.json);
                               });
  AddBench<RemoveBenchOptions>(
      bench, command, "remove", "a worker leaves: the call, and the queries beside it",
      RunRemoveBench, [](CLI::App& sub, RemoveBenchOptions& options) {
        AddFleetFlags(sub, options.fleet);
        AddNumber(sub, "--victim", options.victim_blocks, 1, 200'000'000,
                  "blocks that the worker holds");
        AddNumber(sub, "--rounds", options.rounds, 1, 10'000, "removals");
        AddNumber(sub, "--every-us", options.every_us, 1, 1'000'000, "one query, microseconds");
        sub.add_option("--seconds", options.seconds, "of each round")
            ->check(CLI::Range(0.01, 600.0))
            ->capture_default_str();
        AddJson(sub, options.fleet.json);
      });
}

}  // namespace kvcast::bench
