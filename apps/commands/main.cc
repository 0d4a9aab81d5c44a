// The `kvcast` program with its subcommands.
// SPDX-License-Identifier: Apache-2.0
#include <openssl/crypto.h>

#include <CLI/CLI.hpp>

#include "apps/commands/commands.h"
#include "apps/commands/developer_program.h"
#include "apps/commands/nats_flags.h"
#include "apps/dev/developer_commands.h"
#include "apps/support/command_line.h"
#include "kvcast/router/prefix_index.h"
#include "router/service/config_json.h"

namespace kvcast::tools {
namespace {

void AddCacheFlags(CLI::App& app, CacheOptions& options) {
  app.add_option("--model", options.model, "model: hybrid, full, full-swa, gemma3 or gpt-oss")
      ->capture_default_str();
  app.add_option("--engine-rules", options.rules,
                 "release of vLLM whose cache rules and event layout the engines follow: v0.21, "
                 "2026-05, 2026-08, v0.32 or v0.33")
      ->capture_default_str();
  app.add_option("--draft-tokens", options.draft_tokens,
                 "draft tokens of an EAGLE head that the engine verifies in each decoding step")
      ->check(CLI::Range(int64_t{0}, int64_t{64}))
      ->capture_default_str();
  app.add_option("--blocks", options.blocks,
                 "blocks in each engine's pool (default: depends on --model)")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24));
  app.add_option("--retention", options.retention,
                 "which blocks of window groups stay cached: dense (all), or the blocks at each "
                 "multiple of this number of tokens (0: only the blocks that a replay needs)")
      ->capture_default_str();
  app.add_option("--hash-algo", options.hash_algorithm,
                 "hash algorithm: sha256, sha256_cbor, xxhash or xxhash_cbor")
      ->capture_default_str();
  app.add_option("--hash-seed", options.hash_seed,
                 "seed text of NONE_HASH (default: vllm-none-hash)");
  app.add_option("--hash-form", options.hash_form, "form of the hashes in events: int64 or bytes")
      ->capture_default_str();
  app.add_flag("--announce-once", options.announce_once,
               "announce a hash with its first copy and remove it with its last copy");
  app.add_flag("--exact-spans", options.exact_spans,
               "store events contain only the tokens of the blocks that they name");
  app.add_flag("--hashes-only", options.hashes_only,
               "store events contain hashes, but no token ids, keys, adapter names or sessions");
  app.add_option("--max-batched-tokens", options.max_batched_tokens, "tokens scheduled in one step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--prefill-rate", options.prefill_rate,
                 "simulated prefill speed, tokens per second")
      ->check(CLI::Range(1.0, 1e12))
      ->capture_default_str();
  app.add_option("--cpu-blocks", options.cpu_blocks,
                 "host-memory blocks of each engine, a second tier of its cache (default: none)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  app.add_option(
         "--offload", options.offload,
         "with --cpu-blocks: eager: a mirror of the pool stores blocks when they are computed; "
         "lazy: the mirror stores blocks before they are evicted; connector: vLLM's offloading "
         "connector stores the computed chunks of prompts")
      ->check(CLI::IsMember({"eager", "lazy", "connector"}))
      ->capture_default_str();
  app.add_option("--blocks-per-chunk", options.blocks_per_chunk,
                 "with --offload connector: blocks of a group that host memory holds under one key")
      ->check(CLI::Range(int64_t{1}, kMaxBlocksPerChunk))
      ->capture_default_str();
  app.add_option(
         "--device", options.device,
         "with --cpu-blocks: the memory of the engines' pools: host memory, or a GPU (cuda)")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  app.add_option("--load-rate", options.load_rate,
                 "simulated speed of loads from host memory, tokens per second (default: measured, "
                 "with copies of blocks of the model's size)")
      ->check(CLI::Range(1.0, 1e12));
}

constexpr char kServerKeyHelp[] =
    "file with the secret key (CURVE), see kvcast keygen; requires --curve-clients";
constexpr char kClientsHelp[] =
    "file with the clients that may connect, one line each: ROLE[,ROLE] PUBLIC-KEY [NAME]; a role "
    "is subscribe, replay or snapshot. The program reads a changed file within one second";
constexpr char kInsecureHelp[] = "allow endpoints beyond loopback without CURVE";

void AddLog(CLI::App& sub, LogOptions& log) {
  sub.add_option("--log-format", log.format, "format of the log on stderr: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  sub.add_option("--log-level", log.level,
                 "lowest level of events in the log: debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
}

void AddKeygen(CLI::App& app, KeygenOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("keygen", "make a CURVE key pair and print the public key");
  sub->add_option("--out", options.out,
                  "NAME: write the secret key to NAME.key and the public key to NAME.pub")
      ->required();
  sub->add_flag("--force", options.force, "replace NAME.key if it exists");
  sub->callback([&] { command = [&] { return RunKeygen(options); }; });
}

void AddEngine(CLI::App& app, EngineOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand(
      "engine", "run one simulated engine that replays a trace and publishes events");
  AddCacheFlags(*sub, options.cache);
  sub->add_option("--name", options.name, "name of the engine on the control connection")
      ->capture_default_str();
  sub->add_option("--endpoint", options.endpoint, "PUB endpoint; port 0 takes a free port")
      ->capture_default_str();
  sub->add_option("--replay-endpoint", options.replay_endpoint, "ROUTER endpoint; empty: no replay")
      ->capture_default_str();
  sub->add_option("--topic", options.topic, "topic of the messages");
  sub->add_option("--curve-key", options.curve_key, kServerKeyHelp);
  sub->add_option("--curve-clients", options.curve_clients, kClientsHelp);
  sub->add_flag("--insecure", options.insecure, kInsecureHelp);
  sub->add_option("--rank", options.rank,
                  "data-parallel rank; the ports of the endpoints increase by this number")
      ->check(CLI::Range(int64_t{0}, int64_t{1023}))
      ->capture_default_str();
  sub->add_option("--dialect", options.dialect,
                  "event dialect: map, positional, sglang, vllm-1..12, sglang-1..5, kvcast-1, "
                  "trtllm or mooncake (default: the layout of --engine-rules)");
  sub->add_option("--trace", options.trace,
                  "Mooncake trace, plain, .gz or .zst (default: bundled)");
  sub->add_option("--requests", options.requests,
                  "stop after this number of requests (default: all of the trace)");
  sub->add_option("--speed", options.speed, "seconds of the trace per second of real time")
      ->capture_default_str();
  AddLog(*sub, options.log);
  sub->add_option("--control", options.control,
                  "take requests from the demo at this endpoint, not from a trace");
  sub->add_flag("--json", options.json, "print the totals as one JSON object");
  sub->callback([&] { command = [&] { return RunEngine(options); }; });
}

void AddDemo(CLI::App& app, DemoOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand(
      "demo",
      "compare routing policies in virtual time, then run engines and a router over real sockets");
  AddCacheFlags(*sub, options.cache);
  sub->add_option("--engines", options.engines, "number of engine processes")
      ->capture_default_str();
  sub->add_option("--requests", options.requests, "number of requests from the trace")
      ->capture_default_str();
  sub->add_option(
      "--speed", options.speed,
      "seconds of the trace per second of real time (default: the live run takes 30 s; with "
      "--serve, 120 s)");
  sub->add_option("--trace", options.trace,
                  "Mooncake trace, plain, .gz or .zst (default: bundled)");
  sub->add_option("--dialect", options.dialects,
                  "event dialects, comma-separated; the engines use them in order, and the list "
                  "repeats if there are more engines; all: one engine for each dialect that can "
                  "represent the model's events (default: the layout of --engine-rules)");
  sub->add_option(
      "--serve", options.serve,
      "ADDR:PORT: run the router service and its dashboard at this loopback address until Ctrl-C");
  sub->add_flag("--curve", options.curve,
                "encrypt the streams between the engines and the router (CURVE), with new keys");
  AddLog(*sub, options.log);
  sub->add_flag("--json", options.json, "print one JSON object as the last line of stdout");
  sub->callback([&] { command = [&] { return RunDemo(options); }; });
}

void AddRouterAccess(CLI::App& sub, RouterCommandOptions& options) {
  sub.add_option("--token-file", options.token_file,
                 "file of mode 0600 with lines ROLE TOKEN; ROLE is query, route, observe or admin. "
                 "Requests then need the header Authorization: Bearer TOKEN");
  sub.add_option("--admin-listen", options.admin_listen,
                 "ADDR:PORT or unix:PATH; registrations, removals, pushed events and dumps are "
                 "answered only there");
  sub.add_option("--allowed-host", options.allowed_hosts,
                 "name that clients use for the router, without a port; may be repeated. Requests "
                 "with another name in their Host header are refused");
  sub.add_option(
      "--source-network", options.source_networks,
      "network (CIDR) in which the endpoints of client-registered sources must be; may be "
      "repeated (default: all)");
  const auto limit = CLI::Range(int64_t{1}, router::kMaxSourcesLimit);
  sub.add_option("--max-sources", options.max_sources,
                 "maximum number of workers that the router follows (default: 4096)")
      ->check(limit);
  sub.add_option("--max-http-sources", options.max_http_sources,
                 "maximum number of workers that clients may register (default: 256)")
      ->check(limit);
  sub.add_option("--max-residencies", options.max_residencies,
                 "maximum number of blocks that all workers together may hold in the index (each "
                 "worker, group and tier counts). If there are more, the router clears and "
                 "quarantines each worker that holds more than this number divided by the number "
                 "of workers (default: none)")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000'000}));
}

void AddPeer(CLI::App& sub, RouterCommandOptions& options) {
  sub.add_option("--peer", options.peer,
                 "URL of the admin listener of a running router, from which the router takes its "
                 "state when it starts: https://HOST[:PORT], or http:// on loopback");
  sub.add_option("--peer-token-file", options.peer_token_file,
                 "file of mode 0600 with a token of the peer whose role is admin");
  sub.add_option("--peer-ca-file", options.peer_ca_file,
                 "PEM file of the authorities that sign the peer's certificate (default: those of "
                 "the system)");
  sub.add_option("--peer-timeout-ms", options.peer_timeout_ms,
                 "milliseconds after which the router starts without the peer's state (default: "
                 "10000)")
      ->check(CLI::Range(router::kMinPeerTimeoutMs, router::kMaxPeerTimeoutMs));
}

void AddLoadSharing(CLI::App& sub, RouterCommandOptions& options) {
  sub.add_option("--load-endpoint", options.load_endpoint,
                 "PUB endpoint at which the router publishes the load of its requests for other "
                 "routers in front of the same workers");
  sub.add_option("--load-peer", options.load_peers,
                 "ENDPOINT[,server_key=PUBLIC-KEY]: the load endpoint of another router; may be "
                 "repeated. The decisions count the load of the other router too");
  sub.add_option("--load-period-ms", options.load_period_ms,
                 "the router publishes its load at least once in this number of milliseconds "
                 "(default: 100)")
      ->check(CLI::Range(router::kMinLoadPeriodMs, router::kMaxLoadPeriodMs));
  sub.add_option("--router-name", options.router_name,
                 "name of this router, unique among the routers that share loads (default: a "
                 "random name)");
}

void AddRouter(CLI::App& app, RouterCommandOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("router", "follow engines and answer queries over HTTP");
  sub->add_option("--http", options.http,
                  "ADDR:PORT to listen on; port 0 takes a free port (default: 127.0.0.1:8080)");
  sub->add_option(
      "--tls-cert", options.tls_cert,
      "PEM file with the certificate and its chain; the router then serves HTTPS and not HTTP");
  sub->add_option("--tls-key", options.tls_key, "PEM file with the key of --tls-cert");
  AddRouterAccess(*sub, options);
  sub->add_option("--config", options.config, "JSON file with sources, weights and addresses");
  sub->add_option(
      "--source", options.sources,
      "NAME=ENDPOINT[,REPLAY_ENDPOINT][,MEMBER=VALUE...]; may be repeated. A source has the same "
      "members as in the configuration file, for example model, groups (KIND:BLOCK_SIZE[:WINDOW], "
      "joined by +), sparse_alignment, reports_hits, format, bind (bind=true: the engine connects "
      "its publisher, as vLLM does for tcp://127.0.0.1:PORT)");
  sub->add_option("--source-file", options.source_files,
                  "JSON file with sources; may be repeated. The router reads a changed file within "
                  "about one second: it follows new sources, and drops the others");
  sub->add_option("--ingest-threads", options.ingest_threads,
                  "threads that apply events, each for its share of the sources (default: one for "
                  "each 8 cores, from 1 to 4). With more threads, queries take longer, and common "
                  "prefixes take more memory")
      ->check(CLI::Range(int64_t{1}, static_cast<int64_t>(kMaxIndexShards)));
  sub->add_option("--state", options.state,
                  "folder in which the router saves its state; it is made if it does not exist. A "
                  "restarted router then knows the blocks of the engines again");
  sub->add_option("--state-interval", options.state_interval_s,
                  "seconds between two saves of the state (default: 30)")
      ->check(CLI::Range(int64_t{1}, router::kMaxStateInterval));
  AddPeer(*sub, options);
  sub->add_option("--relay", options.relay,
                  "PUB endpoint at which the router publishes all events again, with the topic "
                  "kv.MODEL.WORKER.RANK.TIER.GROUP");
  sub->add_flag(
      "--relay-redact", options.relay_redact,
      "the relay leaves out token ids, LoRA names, salts, extra keys, metadata and session "
      "ids");
  AddLoadSharing(*sub, options);
  sub->add_flag(
      "--allow-remote", options.allow_remote,
      "--http, --admin-listen, --relay, --load-endpoint and bound sources may listen beyond "
      "loopback. Without --token-file, HTTP has no authentication. The relay and the load endpoint "
      "need --curve-clients, and a bound source needs server_key or insecure=true");
  sub->add_option(
      "--curve-key", options.curve_key,
      "file with the router's secret key (CURVE), see kvcast keygen; for sources and "
      "load peers with server_key=PUBLIC-KEY, for the relay, and for the load endpoint");
  sub->add_option("--curve-clients", options.curve_clients,
                  "file with the clients that may subscribe to the relay and to the load endpoint, "
                  "one line each: subscribe PUBLIC-KEY [NAME]. The router reads a changed file "
                  "within one second");
  sub->add_option("--hash-algo", options.hash_algorithm,
                  "hash algorithm of the engines; the router verifies it (default: detected)");
  sub->add_option(
      "--hash-seed", options.hash_seed,
      "seed text of the engines' NONE_HASH; the router verifies it (default: detected)");
  sub->add_option("--candidate-seed", options.candidate_seeds,
                  "seed text to try, in addition to vllm-none-hash, 0 and 42; may be repeated");
  sub->add_option("--candidate-none-hash", options.candidate_none_hashes,
                  "NONE_HASH to try, as hex digits; may be repeated");
  AddRouterNats(*sub, options.nats);
  AddLog(*sub, options.log);
  sub->callback([&] { command = [&] { return RunRouter(options); }; });
}

void AddTail(CLI::App& app, TailOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("tail", "follow event streams and print them");
  sub->add_option("endpoint", options.endpoints, "PUB endpoints")->capture_default_str();
  sub->add_option("--topic", options.topic, "topic prefix (default: all topics)");
  sub->add_option("--count", options.count, "stop after this number of batches (default: no limit)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  sub->add_flag("--json", options.json, "print one JSON object per batch");
  sub->add_option("--model", options.model, "only events of this model (needs a router's relay)");
  sub->add_option("--worker", options.worker,
                  "only events of this worker (needs a router's relay)");
  sub->add_option("--rank", options.rank, "only events of this data-parallel rank");
  sub->add_option("--tier", options.tier, "only events of this tier: GPU, CPU or STORAGE")
      ->check(CLI::IsMember({"GPU", "CPU", "STORAGE"}, CLI::ignore_case));
  sub->add_option("--group", options.group, "only events of this KV-cache group");
  sub->add_flag("--stats", options.stats, "print counts by topic once per second, not events");
  sub->add_option("--record", options.record,
                  "write the matching events to this file, for kvcast replay");
  sub->add_flag("--redact", options.redact,
                "leave out token ids, LoRA names, salts, extra keys, metadata and session ids");
  sub->add_option("--curve-key", options.curve.key,
                  "file with the secret key of this client (CURVE), see kvcast keygen; with "
                  "--server-key");
  sub->add_option("--server-key", options.curve.server_key, "public key of the publishers");
  sub->add_flag("--insecure", options.curve.insecure, kInsecureHelp);
  sub->callback([&] { command = [&] { return RunTail(options); }; });
}

void AddReplay(CLI::App& app, ReplayOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("replay", "publish a capture of `kvcast tail --record`");
  sub->add_option("file", options.file, "the capture")->required();
  sub->add_option("--endpoint", options.endpoint, "PUB endpoint; port 0 takes a free port")
      ->capture_default_str();
  sub->add_option("--speed", options.speed,
                  "recorded seconds per second of real time; 0: as fast as possible")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  sub->add_option("--delay", options.delay,
                  "seconds to wait for subscribers before the first batch")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  sub->add_option("--curve-key", options.curve.key, kServerKeyHelp);
  sub->add_option("--curve-clients", options.curve.clients, kClientsHelp);
  sub->add_flag("--insecure", options.curve.insecure, kInsecureHelp);
  AddLog(*sub, options.log);
  sub->callback([&] { command = [&] { return RunReplay(options); }; });
}

void AddRelayHttp(CLI::App& sub, RelayHttpFlags& http) {
  CLI::Option* const listen = sub.add_option(
      "--http", http.listen,
      "ADDR:PORT: answer GET /healthz, /readyz and /metrics there (default: no HTTP)");
  sub.add_option("--token-file", http.token_file,
                 "file of mode 0600 with lines ROLE TOKEN; /metrics then needs a token with the "
                 "role observe or admin")
      ->needs(listen);
  sub.add_option("--tls-cert", http.tls_cert,
                 "PEM file with the certificate and its chain; the relay then serves HTTPS")
      ->needs(listen);
  sub.add_option("--tls-key", http.tls_key, "PEM file with the key of --tls-cert")->needs(listen);
  sub.add_flag("--allow-remote", http.allow_remote,
               "--http may listen beyond loopback. Without --token-file, /metrics then needs no "
               "authentication")
      ->needs(listen);
}

void AddRelay(CLI::App& app, RelayOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand(
      "relay", "follow one engine and publish its events again, with epochs, digests and CURVE");
  sub->add_option("--source", options.source, "the engine's publisher: ENDPOINT[,REPLAY_ENDPOINT]")
      ->required();
  sub->add_option("--source-topic", options.source_topic,
                  "topic prefix of the followed messages (default: all topics)");
  sub->add_flag("--source-bind", options.source_bind,
                "the engine's publisher connects to ENDPOINT, and the relay binds it");
  sub->add_option("--server-key", options.server_key,
                  "public key of the engine's publisher (CURVE); requires --curve-key");
  sub->add_option("--endpoint", options.endpoint, "PUB endpoint; port 0 takes a free port")
      ->capture_default_str();
  sub->add_option("--replay-endpoint", options.replay_endpoint,
                  "ROUTER endpoint; port 0 takes a free port")
      ->capture_default_str();
  sub->add_option("--topic", options.topic, "topic of the published messages");
  sub->add_option("--ring-batches", options.ring_batches,
                  "maximum number of batches that replays can return")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  sub->add_flag("--hashes-only", options.hashes_only,
                "publish hashes, but no token ids, keys, adapter names or sessions");
  sub->add_flag("--repeats-are-refreshes", options.repeats_are_refreshes,
                "a second store of a block adds no copy; for engines whose routers need "
                "repeats_are_refreshes=true");
  sub->add_option("--curve-key", options.curve.key, kServerKeyHelp);
  sub->add_option("--curve-clients", options.curve.clients, kClientsHelp);
  sub->add_flag("--insecure", options.curve.insecure, kInsecureHelp);
  sub->add_flag("--insecure-source", options.insecure_source,
                "allow a source beyond loopback without CURVE");
  AddRelayNats(*sub, options.nats);
  AddRelayHttp(*sub, options.http);
  AddLog(*sub, options.log);
  sub->callback([&] { command = [&] { return RunRelay(options); }; });
}

void AddSimulate(CLI::App& app, simulate::SimulateOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand(
      "simulate", "compare selection rules with simulated engines, in virtual time");
  sub->add_option("--trace", options.traces,
                  "request trace, plain, .gz or .zst: Mooncake, coding agents or Azure; may be "
                  "repeated (default: the bundled workloads)");
  sub->add_option("--workload", options.workloads,
                  "bundled workload: agents, shared or chat; may be repeated (default: all three "
                  "if there is no --trace)")
      ->check(CLI::IsMember({"agents", "shared", "chat"}));
  sub->add_option("--slices", options.slices,
                  "slices of each workload; no request is in two slices")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  sub->add_option("--slice-requests", options.slice_requests,
                  "maximum number of requests of a slice (default: 3000, for chat and Azure 780)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  sub->add_option("--engines", options.engines, "number of simulated engines")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  sub->add_option("--model", options.model,
                  "model: hybrid, full, dense-32b, gpt-oss, gemma3, mamba or replay")
      ->capture_default_str();
  sub->add_option("--retention", options.retention,
                  "which blocks of window groups stay cached: dense (all), or the blocks at each "
                  "multiple of this number of tokens (0: only the blocks that a replay needs)")
      ->capture_default_str();
  sub->add_option("--cpu-blocks", options.cpu_blocks,
                  "host-memory blocks of each engine, a second tier of its cache (default: none)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  sub->add_option("--rules", options.rules,
                  "rules, comma-separated; NAME, or NAME:PARAMETER=VALUE; all: every rule with its "
                  "defaults")
      ->capture_default_str();
  sub->add_option("--index", options.index,
                  "index of the caches in the router, comma-separated: exact, full (only the "
                  "full-attention groups), any (a block of at least one group), approx (no events)")
      ->capture_default_str();
  sub->add_option("--delay-ms", options.delay_ms,
                  "milliseconds from the publication of a batch until the index has it")
      ->check(CLI::Range(0.0, 3.6e6))
      ->capture_default_str();
  sub->add_option("--loss", options.loss,
                  "probability that a batch is lost; the index gets it by a replay after the next "
                  "batch")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  sub->add_option("--seed", options.seed, "seed of slices, losses and ties")->capture_default_str();
  sub->add_option("--jobs", options.jobs, "simulations that run at the same time")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  sub->add_option("--slow-factor", options.slow_factor,
                  "factor of all times of the first engine; above 1 for a slow machine")
      ->check(CLI::Range(0.01, 1000.0))
      ->capture_default_str();
  sub->add_option("--kill-at", options.kill_at_s,
                  "second at which the first engine ends; its requests are sent again one second "
                  "later (default: never)")
      ->check(CLI::Range(0.0, 1e9));
  sub->add_option("--report", options.report, "folder for a page with pictures (report.html)");
  sub->add_flag("--list-rules", options.list_rules,
                "print the rules with their parameters, defaults and sources, and exit");
  sub->add_flag("--json", options.json, "print one JSON object as the last line of stdout");
  sub->callback([&] { command = [&] { return RunSimulate(options); }; });
}

// The commands of kvcast-dev. They are added only for the list of --help.
void AddDeveloperCommands(CLI::App& app) {
  for (const auto& [name, help] : kDeveloperCommands) app.add_subcommand(name, help);
}

int Main(int argc, char** argv) {
  if (argc > 1 && IsDeveloperCommand(argv[1])) return RunDeveloperProgram(argv);
  // A thread of libnats may use OpenSSL while the program ends, so the exit must not free OpenSSL.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  CLI::App app("kvcast: KV-cache event streams and an exact, group-aware prefix index");
  app.set_version_flag("--version", KVCAST_VERSION);
  app.require_subcommand(1);
  Command command;
  EngineOptions engine;
  DemoOptions demo;
  RouterCommandOptions router;
  TailOptions tail;
  ReplayOptions replay;
  RelayOptions relay;
  KeygenOptions keygen;
  simulate::SimulateOptions simulation;
  AddDemo(app, demo, command);
  AddEngine(app, engine, command);
  AddRouter(app, router, command);
  AddTail(app, tail, command);
  AddReplay(app, replay, command);
  AddRelay(app, relay, command);
  AddSimulate(app, simulation, command);
  AddKeygen(app, keygen, command);
  AddDeveloperCommands(app);
  return RunCommand(app, argc, argv, command);
}

}  // namespace
}  // namespace kvcast::tools

int main(int argc, char** argv) { return kvcast::tools::Main(argc, argv); }
