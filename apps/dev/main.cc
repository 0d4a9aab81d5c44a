// The program `kvcast-dev`: the subcommands that check and measure kvcast itself.
// `kvcast bench`, `kvcast conformance` and `kvcast sim` run this program.
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "apps/bench/growth/growth_bench.h"
#include "apps/bench/index/cli.h"
#include "apps/dev/dev_commands.h"
#include "apps/dev/developer_commands.h"
#include "apps/support/command_line.h"

namespace kvcast::tools {
namespace {

void AddConformance(CLI::App& app, ConformanceOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand(kConformanceCommand.name, kConformanceCommand.help);
  sub->add_option("class", options.kind,
                  "class of recorded data: wire, frames, hash, engine, router or offload")
      ->required()
      ->check(CLI::IsMember({"wire", "frames", "hash", "engine", "router", "offload"}));
  sub->add_option("path", options.paths, "files or folders with recorded data")->required();
  sub->add_option("--policy", options.policy,
                  "router: rule of the index: exact, full-only, any-group, group-blind, "
                  "min-of-maxima or all")
      ->capture_default_str();
  sub->add_option("--feed", options.feed,
                  "router: input of the index: recorded, decoded or wire events, or interleaved "
                  "steps of all files")
      ->capture_default_str();
  sub->add_option("--seed", options.seed,
                  "router: seed of the random order for --feed interleaved, and of the random "
                  "steps for --joins")
      ->capture_default_str();
  sub->add_option(
         "--told", options.told,
         "router: the properties of the engine that are configured in the service: all, or "
         "nothing (only the endpoint); with nothing, the run fails only if an exact answer is "
         "wrong")
      ->check(CLI::IsMember({"all", "nothing"}))
      ->capture_default_str();
  sub->add_option(
         "--scheme", options.scheme,
         "router: found: the engine's hash seed is one of the candidates; unknown: it is not")
      ->check(CLI::IsMember({"found", "unknown"}))
      ->capture_default_str();
  sub->add_option(
         "--joins", options.joins,
         "router: number of random steps of each file at which a late router joins, once without "
         "and once with a snapshot. The run fails if an exact answer is wrong. With --told all and "
         "a proven scheme, it also fails if an answer after a snapshot differs")
      ->capture_default_str();
  sub->add_flag("--table", options.table, "router: print a Markdown table of all policies");
  sub->add_flag(
      "--compatible,!--no-compatible", options.compatible,
      "offload: use the engine's rules; with --no-compatible, use our own rules where the "
      "engine has a defect (default: --compatible)");
  sub->add_flag("--json", options.json, "print one JSON object as the last line of stdout");
  sub->callback([&] { command = [&] { return RunConformance(options); }; });
}

void AddHostileBench(CLI::App& bench, HostileBenchOptions& options, Command& command) {
  CLI::App* sub = bench.add_subcommand(
      "hostile", "time until the batches of good sources are visible, while a source attacks");
  sub->add_option(
         "--attacks", options.attacks,
         "names of attacks, comma-separated; none: a run without an attack (default: none, then "
         "each attack)")
      ->delimiter(',');
  sub->add_option("--sources", options.sources, "number of good sources")
      ->check(CLI::Range(int64_t{1}, int64_t{256}))
      ->capture_default_str();
  sub->add_option("--rate", options.rate, "batches per second of each good source")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000}))
      ->capture_default_str();
  sub->add_option("--seconds", options.seconds, "seconds of each attack")
      ->check(CLI::Range(int64_t{1}, int64_t{3600}))
      ->capture_default_str();
  sub->add_option("--ingest-threads", options.ingest_threads, "ingestion threads of the router")
      ->check(CLI::Range(int64_t{1}, int64_t{64}))
      ->capture_default_str();
  sub->add_flag("--json", options.json, "print one JSON object as the last line of stdout");
  sub->callback([&] { command = [&] { return RunHostileBenchCommand(options); }; });
}

void AddFreshnessBench(CLI::App& bench, FreshnessBenchOptions& options, Command& command) {
  CLI::App* sub = bench.add_subcommand(
      "freshness", "time from publish() until a query sees the block, over TCP");
  sub->add_option("--sources", options.sources,
                  "number of publishers; they run in one separate process")
      ->check(CLI::Range(int64_t{1}, int64_t{256}))
      ->capture_default_str();
  sub->add_option("--rate", options.rate, "batches per second of each publisher")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000}))
      ->capture_default_str();
  sub->add_option("--seconds", options.seconds, "seconds to measure")
      ->check(CLI::Range(int64_t{1}, int64_t{3600}))
      ->capture_default_str();
  sub->add_option(
         "--burst", options.burst,
         "factor by which the rate increases for one second in the middle of the run; 1: no burst")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  sub->add_option("--publishers-nice", options.publishers_nice,
                  "nice value of the publishers, which would run on other machines in production")
      ->check(CLI::Range(int64_t{0}, int64_t{19}))
      ->capture_default_str();
  sub->add_flag("--curve", options.curve,
                "measure only the rate of one publisher with batches of 2 kB and 16 kB, with and "
                "without CURVE");
  sub->add_flag("--json", options.json, "print one JSON object as the last line of stdout");
  sub->callback([&] { command = [&] { return RunFreshnessBenchCommand(options); }; });
}

void AddRestartBench(CLI::App& bench, RestartBenchOptions& options, Command& command) {
  CLI::App* sub = bench.add_subcommand(
      "restart",
      "time until a killed router with saved state, or a router that joins, answers exactly");
  const auto number = [sub](const char* flag, int64_t& value, const char* help, int64_t most,
                            int64_t least = 1) {
    sub->add_option(flag, value, help)->check(CLI::Range(least, most))->capture_default_str();
  };
  number("--sources", options.sources, "number of publishers; they run in one separate process",
         256);
  number("--rate", options.rate, "batches per second of each publisher", 100'000);
  number("--blocks", options.blocks, "number of blocks that each publisher holds", 10'000'000,
         16'384);
  number("--kills", options.kills, "number of kills, each at a random time", 10'000, 0);
  number("--joins", options.joins, "number of other routers that join the running router", 10'000,
         0);
  number("--state-interval", options.state_interval, "seconds between two saves", 3600);
  number("--seconds", options.seconds, "seconds to measure queries with and without a save", 3600);
  sub->add_flag("--plain", options.plain,
                "the publishers send no epochs, digests and snapshots, like vLLM's publishers");
  sub->add_flag("--json", options.json, "print one JSON object as the last line of stdout");
  sub->callback([&] { command = [&] { return RunRestartBenchCommand(options); }; });
}

void AddServiceBench(CLI::App& bench, ServiceBenchOptions& options, Command& command) {
  CLI::App* sub =
      bench.add_subcommand("service", "routing decisions over HTTP while events arrive");
  const auto number = [sub](const char* flag, int64_t& value, const char* help, int64_t most) {
    sub->add_option(flag, value, help)->check(CLI::Range(int64_t{1}, most))->capture_default_str();
  };
  number("--rate", options.rate, "POST /v1/route requests per second, on a fixed schedule",
         1'000'000);
  number("--block-ops", options.block_ops, "stores and removes per second, over all workers",
         10'000'000);
  number("--workers", options.workers,
         "number of workers that publish; they run in one separate process", 256);
  number("--blocks", options.blocks, "blocks of a prompt, 16 tokens each", 100'000);
  number("--connections", options.connections, "number of connections that are kept alive", 10'000);
  number("--seconds", options.seconds, "seconds of each phase", 3600);
  sub->add_flag("--tokens", options.tokens, "query by token ids instead of block hashes");
  sub->add_option(
         "--observers", options.observers,
         "run a second phase with clients that never read: this number for each of dump, events, "
         "state and relay")
      ->check(CLI::Range(int64_t{0}, int64_t{1000}))
      ->capture_default_str();
  sub->add_option(
         "--attacks", options.attacks,
         "run one more phase for each of these attacks of HTTP clients, comma-separated; all: "
         "each attack")
      ->delimiter(',');
  sub->add_flag("--json", options.json, "print one JSON object as the last line of stdout");
  sub->callback([&] { command = [&] { return RunServiceBenchCommand(options); }; });
}

void AddCopyBench(CLI::App& bench, CopyBenchOptions& copy, Command& command) {
  CLI::App* sub =
      bench.add_subcommand("copy", "speed of block copies, compared with the speed of the memory");
  sub->add_flag("--list", copy.list, "list the copy backends that can run here, and exit");
  sub->add_option("--mib", copy.mib, "payload of every measured copy, in MiB")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 16))
      ->capture_default_str();
  sub->add_option("--spread", copy.spread, "the pools' size as a multiple of the payload")
      ->check(CLI::Range(int64_t{1}, int64_t{64}))
      ->capture_default_str();
  sub->add_option("--threads", copy.threads,
                  "copying threads (default: half of the processors, at most 4)")
      ->check(CLI::Range(int64_t{0}, int64_t{256}));
  sub->add_option("--device", copy.device, "auto, cuda or host; auto: cuda if there is a GPU")
      ->check(CLI::IsMember({"auto", "cuda", "host"}))
      ->capture_default_str();
  sub->add_flag("--quick", copy.quick, "cuda: only the main fragment sizes");
  sub->add_flag("--questions", copy.questions,
                "cuda: measure the cost of all kinds of copies on this machine, not the ratios");
  sub->add_option("--svg", copy.svg, "cuda: write a chart of the ratios to this SVG file");
  sub->add_option("--cycles", copy.cycles, "number of measured copies of each kind")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  sub->add_flag("--json", copy.json, "print one JSON object as the last line of stdout");
  sub->callback([&] { command = [&] { return RunCopyBenchCommand(copy); }; });
}

void AddSim(CLI::App& app, SimOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand(kSimCommand.name, kSimCommand.help);
  sub->add_option("--seeds", options.seeds, "A..B: one run for each seed from A to B")
      ->capture_default_str();
  sub->add_option("--threads", options.threads, "runs at the same time")
      ->check(CLI::Range(int64_t{1}, int64_t{256}))
      ->capture_default_str();
  sub->add_option("--max-failed", options.max_failed, "stop after this number of failed runs")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  sub->add_flag("--json", options.json, "print one JSON object as the last line of stdout");
  sub->callback([&] { command = [&] { return RunSim(options); }; });
}

int Main(int argc, char** argv) {
  CLI::App app("kvcast-dev: checks and measurements of kvcast itself", "kvcast");
  app.set_version_flag("--version", KVCAST_VERSION);
  app.require_subcommand(1);
  Command command;
  ConformanceOptions conformance;
  AddConformance(app, conformance, command);
  SimOptions sim;
  AddSim(app, sim, command);
  CopyBenchOptions copy;
  FreshnessBenchOptions freshness;
  HostileBenchOptions hostile;
  RestartBenchOptions restart;
  ServiceBenchOptions service;
  CLI::App* bench = app.add_subcommand(kBenchCommand.name, kBenchCommand.help);
  bench->require_subcommand(1);
  AddCopyBench(*bench, copy, command);
  AddFreshnessBench(*bench, freshness, command);
  AddHostileBench(*bench, hostile, command);
  AddRestartBench(*bench, restart, command);
  AddServiceBench(*bench, service, command);
  bench::AddIndexBenches(*bench, command);
  bench::AddGrowthBench(*bench, command);
  return RunCommand(app, argc, argv, command);
}

}  // namespace
}  // namespace kvcast::tools

int main(int argc, char** argv) { return kvcast::tools::Main(argc, argv); }
