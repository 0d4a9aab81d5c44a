// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/cli.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/bench/index/cells.h"
#include "apps/bench/index/commands.h"
#include "apps/support/bench_flags.h"
#include "kvcast/router/prefix_index.h"

namespace kvcast::bench {
namespace {

void AddFleetFlags(CLI::App& sub, FleetOptions& fleet) {
  AddCount(sub, "--residencies", fleet.residencies,
           "approximate number of held (worker, block) pairs");
  AddNumber(sub, "--workers", fleet.workers, 1, 65535, "number of workers");
  AddNumber(sub, "--groups", fleet.groups, fleet.groups == 0 ? 0 : 1, 64,
            fleet.groups == 0
                ? "groups of each worker; every group holds every block (0: several cases)"
                : "groups of each worker; every group holds every block");
  AddNumber(sub, "--holders", fleet.holders, 0, 65535,
            "number of workers that hold each block (0: several cases)");
  AddNumber(sub, "--blocks", fleet.blocks, 1, 65536, "blocks of a prompt");
}

void AddApply(CLI::App& bench, Command& command) {
  AddBench<ApplyBenchOptions>(
      bench, command, "apply", "cost of stores and removes, compared with a plain hash map",
      RunApplyBench, [](CLI::App& sub, ApplyBenchOptions& options) {
        AddFleetFlags(sub, options.fleet);
        AddNumber(sub, "--slices", options.slices, 1, 1'000'000,
                  "measured slices of 16 turns, for each form of removes and each hash map");
        AddJson(sub, options.fleet.json);
      });
}

void AddLookup(CLI::App& bench, Command& command) {
  AddBench<LookupBenchOptions>(
      bench, command, "lookup",
      "cost of queries, compared with probes of a plain hash map, with and without a writer",
      RunLookupBench, [](CLI::App& sub, LookupBenchOptions& options) {
        AddFleetFlags(sub, options.fleet);
        AddNumber(sub, "--queries", options.queries, 100, 100'000'000, "queries of each case");
        sub.add_option("--depth", options.depth, "depth of the hit: full, half, mixed, miss or all")
            ->check(CLI::IsMember({"full", "half", "mixed", "miss", "all"}))
            ->capture_default_str();
        sub.add_option("--write-rate", options.write_rate,
                       "block operations per second of the writer (0: as fast as possible)")
            ->check(CLI::Range(0.0, 1e9))
            ->capture_default_str();
        AddJson(sub, options.fleet.json);
      });
}

void AddMemory(CLI::App& bench, Command& command) {
  AddBench<MemoryBenchOptions>(
      bench, command, "memory",
      "memory of the index per held block, and memory returned after removes", RunMemoryBench,
      [](CLI::App& sub, MemoryBenchOptions& options) {
        AddFleetFlags(sub, options.fleet);
        AddJson(sub, options.fleet.json);
      });
}

void AddRemove(CLI::App& bench, Command& command) {
  AddBench<RemoveBenchOptions>(
      bench, command, "remove",
      "removal of a worker: time of the call, and of queries during the call", RunRemoveBench,
      [](CLI::App& sub, RemoveBenchOptions& options) {
        AddFleetFlags(sub, options.fleet);
        AddNumber(sub, "--victim", options.victim_blocks, 1, 200'000'000,
                  "blocks that the removed worker holds");
        AddNumber(sub, "--rounds", options.rounds, 1, 10'000, "number of removals");
        AddNumber(sub, "--every-us", options.every_us, 1, 1'000'000,
                  "microseconds between queries");
        sub.add_option("--seconds", options.seconds, "shortest time of a round, in seconds")
            ->check(CLI::Range(0.01, 600.0))
            ->capture_default_str();
        AddJson(sub, options.fleet.json);
      });
}

void AddWire(CLI::App& bench, Command& command) {
  AddBench<WireBenchOptions>(
      bench, command, "wire",
      "cost from the bytes of a batch to the index, compared with msgpack-cxx and a plain hash map",
      RunWireBench, [](CLI::App& sub, WireBenchOptions& options) {
        AddFleetFlags(sub, options.fleet);
        AddNumber(sub, "--slices", options.slices, 1, 1'000'000, "measured slices of each dialect");
        AddJson(sub, options.fleet.json);
      });
}

void AddPublish(CLI::App& bench, Command& command) {
  AddBench<PublishBenchOptions>(
      bench, command, "publish", "cost of publish() on the engine's thread", RunPublishBench,
      [](CLI::App& sub, PublishBenchOptions& options) {
        AddNumber(sub, "--rate", options.rate, 1, 100'000, "batches per second");
        AddNumber(sub, "--blocks", options.blocks, 1, 4096,
                  "blocks that each batch stores, and blocks that each batch removes");
        AddNumber(sub, "--seconds", options.seconds, 1, 3600, "seconds of each case");
        AddJson(sub, options.json);
      });
}

void AddHash(CLI::App& bench, Command& command) {
  AddBench<HashBenchOptions>(
      bench, command, "hash",
      "cost from a prompt's tokens to block keys, compared with the raw digests", RunHashBench,
      [](CLI::App& sub, HashBenchOptions& options) {
        AddNumber(sub, "--tokens", options.tokens, 16, 10'000'000, "tokens of the prompt");
        AddNumber(sub, "--rounds", options.rounds, 1, 100'000'000, "measured runs of each case");
        AddJson(sub, options.json);
      });
}

void AddCorpusFlags(CLI::App& sub, CorpusOptions& options) {
  auto* corpus = sub.add_option("--corpus", options.file,
                                "corpus file to replay (kvcast bench replay --export writes one)");
  sub.add_option("--trace", options.trace, "trace from which the corpus is made (default: bundled)")
      ->excludes(corpus);
  AddNumber(sub, "--requests", options.requests, 0, 1'000'000'000,
            "number of requests from the trace (0: all)");
  AddNumber(sub, "--workers", options.workers, 1, 65535,
            "number of workers over which the requests are spread");
  AddNumber(sub, "--copies", options.copies, 1, 10'000, "copies of the trace, with unique ids");
  sub.add_option("--block-size", options.block_tokens, "tokens of a block; must divide 512")
      ->check(CLI::IsMember({16, 32, 64, 128, 256, 512}))
      ->capture_default_str();
  AddNumber(sub, "--pool-blocks", options.pool_blocks, 1, 100'000'000,
            "blocks in the pool of each engine");
}

void AddTokens(CLI::App& bench, Command& command) {
  AddBench<TokensBenchOptions>(
      bench, command, "tokens",
      "cost from a prompt's tokens to an answer, for the queries of a trace", RunTokensBench,
      [](CLI::App& sub, TokensBenchOptions& options) {
        AddCorpusFlags(sub, options.corpus);
        AddNumber(sub, "--tokens", options.tokens, 0, 65536,
                  "tokens of a block (0: as in the corpus)");
        AddNumber(sub, "--points", options.points, 1, 10'000,
                  "points of the replay at which queries run");
        AddNumber(sub, "--queries", options.queries, 1, 1'000'000,
                  "maximum number of queries at each point");
        AddJson(sub, options.json);
      });
}

void AddReplay(CLI::App& bench, Command& command) {
  AddBench<ReplayBenchOptions>(
      bench, command, "replay",
      "queries and events of a trace in an open loop, with overload and at half of the overload "
      "rate",
      RunReplayBench, [](CLI::App& sub, ReplayBenchOptions& options) {
        AddCorpusFlags(sub, options.corpus);
        AddNumber(sub, "--event-threads", options.event_threads, 1, 256,
                  "threads that apply events");
        AddNumber(sub, "--query-threads", options.query_threads, 1, 256,
                  "threads that send queries");
        sub.add_option("--rate", options.rate,
                       "block operations per second of the case keep_up (0: half of the rate that "
                       "the case overload reaches)")
            ->check(CLI::Range(0.0, 1e12))
            ->capture_default_str();
        auto* to = sub.add_option("--export", options.export_to, "write the corpus to this file");
        sub.add_flag("--export-only", options.export_only, "write the corpus and exit")->needs(to);
        AddJson(sub, options.json);
      });
}

void AddCells(CLI::App& bench, Command& command) {
  AddBench<CellsBenchOptions>(
      bench, command, "cells", "one cell of the comparison with another prefix index",
      RunCellsBench, [](CLI::App& sub, CellsBenchOptions& options) {
        sub.add_option("--corpus", options.corpus,
                       "corpus file to replay (kvcast bench replay --export writes one)")
            ->required();
        sub.add_option("--cell", options.cell, "measurement to run")
            ->check(CLI::IsMember(std::vector<std::string>(kCellNames.begin(), kCellNames.end())))
            ->required();
        AddNumber(sub, "--rounds", options.rounds, 1, 1000,
                  "rounds of apply, apply2, quarter, drain and mixed; only the final round counts");
        AddNumber(sub, "--points", options.points, 1, 10'000,
                  "points of the replay at which queries run");
        AddNumber(sub, "--shards", options.shards, 1, static_cast<int64_t>(kMaxIndexShards),
                  "shards of the index");
        AddJson(sub, options.json);
      });
}

void AddSizes(CLI::App& bench, Command& command) {
  AddBench<SizesBenchOptions>(
      bench, command, "sizes",
      "cost of apply, lookup and memory by size of the fleet, compared with a plain hash map",
      RunSizesBench, [](CLI::App& sub, SizesBenchOptions& options) {
        AddCount(sub, "--max", options.max_residencies,
                 "held (worker, block) pairs at the largest point");
        AddCount(sub, "--base", options.base_residencies,
                 "held (worker, block) pairs while the other sizes vary");
        AddNumber(sub, "--samples", options.samples, 3, 1'000'000,
                  "number of turns and queries at each point");
        sub.add_option("--csv", options.csv, "write the points to this file");
        sub.add_option("--svg", options.svg, "write a chart of the curves to this SVG file");
        AddJson(sub, options.json);
      });
}

}  // namespace

void AddIndexBenches(CLI::App& bench, Command& command) {
  AddApply(bench, command);
  AddLookup(bench, command);
  AddMemory(bench, command);
  AddRemove(bench, command);
  AddWire(bench, command);
  AddPublish(bench, command);
  AddHash(bench, command);
  AddTokens(bench, command);
  AddReplay(bench, command);
  AddCells(bench, command);
  AddSizes(bench, command);
}

}  // namespace kvcast::bench
