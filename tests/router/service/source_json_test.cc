// A source has the same members in files, in requests and in flags.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/source_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "router/service/api/source_flag.h"
#include "router/service/config_json.h"
#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

constexpr char kAll[] = R"({
  "name": "w", "endpoint": "tcp://h:1", "replay_endpoint": "tcp://h:2", "topic": "kv", "bind": true,
  "model": "m", "instance_id": "i", "routing_group": "blue", "data_parallel_rank": 3,
  "format": "mooncake", "tenant_id": "t", "backend_id": "b",
  "hash_algorithm": "sha256_cbor", "hash_seed": "7", "none_hash": "00ff",
  "candidate_seeds": ["1", "2"], "candidate_none_hashes": ["ab"],
  "groups": [{"kind": "full_attention", "block_size": 16},
             {"kind": "sliding_window", "block_size": 16, "sliding_window": 1024, "eagle": true},
             {"kind": "chunked_local_attention", "block_size": 32, "chunk_size": 8192}],
  "hash_block_size": 16, "block_size": 32, "gpu_blocks": 99, "max_residencies": 1000,
  "alignment": 32, "blocks_per_chunk": 4, "offload_rule": "mirrored_pool",
  "reports_hits": true, "sparse_alignment": 64, "sparse_retention": 0, "sparse_rules": "2026-05",
  "release": "v0.33", "eagle": false, "chunk_size": 4096, "lookahead": 1, "replay_tokens": 128,
  "lora_paths": {"chat": "/adapters/chat", "sql": "/adapters/sql"},
  "zero_parent_is_root": true, "repeats_are_refreshes": true})";

TEST(SourceJson, EveryMemberIsWrittenAsItWasRead) {
  const Json json = Json::parse(kAll);
  const auto source = SourceFromJson(json);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(SourceToJson(*source), json);
  EXPECT_EQ(source->worker.groups[2].chunk_size, 8192);
  EXPECT_EQ(source->worker.hit_reports, HitReports::kExpected);
  EXPECT_EQ(source->worker.sparse_rule->retention_interval, 0);
  EXPECT_EQ(source->worker.sparse_rule->rules, EngineRules::kMain2026May);
  EXPECT_EQ(source->worker.offload_rule, OffloadRule::kMirroredPool);
  EXPECT_EQ(source->worker.rules, EngineRules::kV033);
  EXPECT_EQ(source->worker.eagle, false);
  EXPECT_EQ(source->worker.chunk_size, 4096);
  EXPECT_EQ(source->worker.hash_lookahead_tokens, 1);
  EXPECT_EQ(source->worker.replay_tokens, 128);
  EXPECT_EQ(source->lora_paths.at("sql"), "/adapters/sql");
}

TEST(SourceJson, ANatsEndpointAllowsNoMembersOfASocket) {
  const Json log = {{"name", "w"}, {"endpoint", "nats:org/model/w"}};
  EXPECT_TRUE(SourceFromJson(log).ok());
  for (const Json& more :
       {Json{{"replay_endpoint", "tcp://h:2"}}, Json{{"topic", "kv"}}, Json{{"bind", true}},
        Json{{"ranks_on", "tag"}}, Json{{"server_key", std::string(40, 'k')}}}) {
    Json source = log;
    source.update(more);
    EXPECT_EQ(
        SourceFromJson(source).status().message(),
        "endpoint: a nats: endpoint allows no replay_endpoint, topic, server_key, bind or ranks_on")
        << more;
  }
  Json source = log;
  source["format"] = "mooncake";
  EXPECT_EQ(SourceFromJson(source).status().message(),
            "endpoint: a nats: endpoint requires format \"engine\"");
}

TEST(SourceJson, AnInstanceThatIsANumberStaysANumber) {
  const Json json = {{"name", "w"}, {"endpoint", "tcp://h:1"}, {"instance_id", 7}};
  const auto source = SourceFromJson(json);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(SourceToJson(*source).at("instance_id"), Json(7));
}

TEST(SourceJson, AFlagGivesTheSameSource) {
  const auto flag = SourceFromFlag(
      "w=tcp://h:1,tcp://h:2,topic=kv,bind=true,model=m,instance_id=i,routing_group=blue,"
      "data_parallel_rank=3,format=mooncake,tenant_id=t,backend_id=b,hash_algorithm=sha256_cbor,"
      "hash_seed=7,none_hash=00ff,candidate_seeds=1+2,candidate_none_hashes=ab,"
      "groups=full_attention:16+sliding_window:16:1024:eagle+chunked_local_attention:32:8192,"
      "hash_block_size=16,block_size=32,gpu_blocks=99,max_residencies=1000,alignment=32,"
      "blocks_per_chunk=4,offload_rule=mirrored_pool,"
      "reports_hits=true,sparse_alignment=64,sparse_retention=0,sparse_rules=2026-05,"
      "release=v0.33,eagle=false,chunk_size=4096,lookahead=1,replay_tokens=128,"
      "lora_paths=chat:/adapters/chat+sql:/adapters/sql,"
      "zero_parent_is_root=true,repeats_are_refreshes=true");
  ASSERT_TRUE(flag.ok()) << flag.status().ToString();
  EXPECT_EQ(SourceToJson(*flag), Json::parse(kAll));
  const auto shortest = SourceFromFlag("w=tcp://h:1");
  ASSERT_TRUE(shortest.ok());
  EXPECT_EQ(shortest->replay_endpoint, "");
}

TEST(SourceJson, TensorRtLlmHasMembersOfItsOwn) {
  const Json json = Json::parse(R"({
    "name": "w", "endpoint": "http://h:8000/kv_cache_events", "format": "trtllm",
    "window_sizes": [4096, 32768], "tokens_per_block": 32, "largest_is_window": true,
    "partial_reuse": false, "poll_ms": 20, "data_parallel_size": 4, "ranks_on": "tag",
    "routing_group": "default", "data_parallel_rank": 0})");
  const auto source = SourceFromJson(json);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(SourceToJson(*source), json);
  const auto flag = SourceFromFlag(
      "w=http://h:8000/kv_cache_events,format=trtllm,window_sizes=4096+32768,tokens_per_block=32,"
      "largest_is_window=true,partial_reuse=false,poll_ms=20,data_parallel_size=4,ranks_on=tag");
  ASSERT_TRUE(flag.ok()) << flag.status().ToString();
  EXPECT_EQ(SourceToJson(*flag), json);
}

TEST(ExpandRanks, EachRankIsAWorkerOfOneInstance) {
  WorkerRegistration source;
  source.worker.name = "w";
  source.endpoint = "tcp://h:5557";
  source.replay_endpoint = "tcp://h:5657";
  EXPECT_EQ(ExpandRanks(source)->at(0).worker.name, "w");
  source.data_parallel_size = 2;
  const auto ports = ExpandRanks(source).value();
  ASSERT_EQ(ports.size(), 2u);
  EXPECT_EQ(ports[1].worker.name, "w-dp1");
  EXPECT_EQ(ports[1].instance, "w");
  EXPECT_EQ(ports[1].data_parallel_rank, 1);
  EXPECT_EQ(ports[0].endpoint, "tcp://h:5557");
  EXPECT_EQ(ports[1].endpoint, "tcp://h:5558");
  EXPECT_EQ(ports[1].replay_endpoint, "tcp://h:5658");
  source.rank_by_tag = true;
  EXPECT_EQ(ExpandRanks(source)->at(1).endpoint, "tcp://h:5557");
  source.rank_by_tag = false;
  source.endpoint = "http://h:1/";
  EXPECT_FALSE(ExpandRanks(source).ok());
}

// Each node of an engine has its own ranks. A port follows from the rank, not from the position in
// the list.
TEST(ExpandRanks, ASecondNodeHasTheRanksFromItsFirstRankOn) {
  WorkerRegistration source;
  source.worker.name = "w";
  source.endpoint = "tcp://node1:5557";
  source.data_parallel_rank = 2;
  source.data_parallel_size = 2;
  const auto ranks = ExpandRanks(source).value();
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0].worker.name, "w-dp2");
  EXPECT_EQ(ranks[0].data_parallel_rank, 2);
  EXPECT_EQ(ranks[0].endpoint, "tcp://node1:5559");
  EXPECT_EQ(ranks[1].worker.name, "w-dp3");
  EXPECT_EQ(ranks[1].instance, "w");
  source.rank_by_tag = true;
  source.data_parallel_rank = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(ExpandRanks(source).ok());
}

TEST(SourceJson, AnOffloadRuleNamesTheEnginesScheduler) {
  const std::pair<const char*, OffloadRule> rules[] = {
      {"connector", OffloadRule::kConnector},
      {"offload_scheduler", OffloadRule::kOffloadScheduler},
      {"mirrored_pool", OffloadRule::kMirroredPool}};
  for (const auto& [name, rule] : rules) {
    const Json json = {{"name", "w"}, {"endpoint", "tcp://h:1"}, {"offload_rule", name}};
    const auto source = SourceFromJson(json);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    EXPECT_EQ(source->worker.offload_rule, rule);
    EXPECT_EQ(SourceToJson(*source).value("offload_rule", ""), name);
  }
  const auto without_rule = SourceFromJson({{"name", "w"}, {"endpoint", "tcp://h:1"}});
  EXPECT_EQ(without_rule->worker.offload_rule, std::nullopt);
  EXPECT_FALSE(SourceToJson(*without_rule).contains("offload_rule"));
  const Json wrong = {{"name", "w"}, {"endpoint", "tcp://h:1"}, {"offload_rule", "lazy"}};
  EXPECT_NE(SourceFromJson(wrong).status().ToString().find("offload_scheduler"), std::string::npos);
}

struct Wrong {
  std::string text;
  std::string message;
};

TEST(SourceJson, ErrorsNameTheMember) {
  const Wrong wrong[] = {
      {R"({"endpoint": "e"})", "name: required"},
      {R"({"name": "w"})", "endpoint: required"},
      {R"({"name": 7, "endpoint": "e"})", "name: must be a string"},
      {R"({"name": "w", "endpoint": "e", "blocksize": 16})", "unknown member: blocksize"},
      {R"({"name": "w", "endpoint": "e", "format": "sglang"})",
       "format: must be one of \"engine\", \"mooncake\", \"trtllm\""},
      {R"({"name": "w", "endpoint": "e", "format": "trtllm"})",
       "window_sizes: must have 1 to 64 sizes"},
      {R"({"name": "w", "endpoint": "e", "format": "trtllm", "window_sizes": [8]})",
       "tokens_per_block: must be 1 to 1048576"},
      {R"({"name": "w", "endpoint": "e", "window_sizes": [8]})",
       "window_sizes, tokens_per_block: allowed only with format trtllm"},
      {R"({"name": "w", "endpoint": "http://h/"})", "endpoint: http://h/ needs format trtllm"},
      {R"({"name": "w", "endpoint": "https://h/", "format": "trtllm"})",
       "endpoint: must not be https://, because the router polls without TLS"},
      {R"({"name": "w", "endpoint": "e", "window_sizes": [0]})",
       "window_sizes[0]: must be a positive integer"},
      {R"({"name": "w", "endpoint": "e", "poll_ms": 60001})", "poll_ms: must be at most 60000"},
      {R"({"name": "w", "endpoint": "e", "data_parallel_size": 1025})",
       "data_parallel_size: must be at most 1024"},
      {R"({"name": "w", "endpoint": "e", "ranks_on": "topic"})",
       "ranks_on: must be \"ports\" or \"tag\""},
      {R"({"name": "w", "endpoint": "e", "hash_algorithm": "md5"})",
       "hash_algorithm: unknown algorithm 'md5'"},
      {R"({"name": "w", "endpoint": "e", "none_hash": "abc"})",
       "none_hash: must be the hex digits of 1 to 256 bytes"},
      {R"({"name": "w", "endpoint": "e", "groups": {}})",
       "groups: must be an array of at most 64 elements"},
      {R"({"name": "w", "endpoint": "e", "groups": [{"kind": "full_attention"}]})",
       "groups[0]: must be an object with kind and block_size"},
      {R"({"name": "w", "endpoint": "e", "groups": [{"kind": "dense", "block_size": 16}]})",
       "groups[0].kind: unknown kind 'dense'"},
      {R"({"name": "w", "endpoint": "e", "groups": [{"kind": "mamba", "block_size": 16, "x": 1}]})",
       "unknown member: groups[0].x"},
      {R"({"name": "w", "endpoint": "e", "reports_hits": 1})",
       "reports_hits: must be true or false"},
      {R"({"name": "w", "endpoint": "e", "data_parallel_rank": -1})",
       "data_parallel_rank: must be a non-negative integer"},
      {R"({"name": "w", "endpoint": "e", "sparse_retention": 4})",
       "sparse_alignment: required with sparse_retention or sparse_rules"},
      {R"({"name": "w", "endpoint": "e", "release": "0.33"})",
       "release: must be one of \"v0.21\", \"2026-05\", \"2026-08\", \"v0.32\", \"v0.33\""},
      {R"({"name": "w", "endpoint": "e", "eagle": 1})", "eagle: must be true or false"},
      {R"({"name": "w", "endpoint": "e", "chunk_size": 0})",
       "chunk_size: must be a positive integer"},
      {R"({"name": "w", "endpoint": "e", "lookahead": -1})",
       "lookahead: must be a non-negative integer"},
      {R"({"name": "w", "endpoint": "e", "replay_tokens": "8"})",
       "replay_tokens: must be a non-negative integer"},
      {R"({"name": "w", "endpoint": "e", "lora_paths": ["/a"]})",
       "lora_paths: must be an object of at most 4096 members"},
      {R"({"name": "w", "endpoint": "e", "lora_paths": {"sql": 1}})",
       "lora_paths.sql: must be a string"},
      {R"([])", "source: must be an object"}};
  for (const auto& [text, message] : wrong) {
    EXPECT_EQ(SourceFromJson(Json::parse(text)).status().message(), message) << text;
  }
}

TEST(SourceJson, WrongFlagsAreNamed) {
  const Wrong wrong[] = {
      {"nonsense", "expected NAME=ENDPOINT[,REPLAY_ENDPOINT][,MEMBER=VALUE...], got 'nonsense'"},
      {"=tcp://h:1",
       "expected NAME=ENDPOINT[,REPLAY_ENDPOINT][,MEMBER=VALUE...], got '=tcp://h:1'"},
      {"w=", "expected NAME=ENDPOINT[,REPLAY_ENDPOINT][,MEMBER=VALUE...], got 'w='"},
      {"w=e,size=3", "unknown member: size"},
      {"w=e,alignment=x", "alignment: must be a non-negative integer"},
      {"w=e,reports_hits=yes", "reports_hits: must be true or false"},
      {"w=e,groups=full_attention", "groups[0]: must be an object with kind and block_size"},
      {"w=e,groups=sliding_window:16:x", "groups[0].sliding_window: must be a positive integer"},
      {"w=e,groups=mamba:16:8:draft", "unknown member: groups[0].draft"},
      {"w=e,groups=sliding_window:16:32:eagle:junk", "unknown member: groups[0].junk"}};
  for (const auto& [text, message] : wrong) {
    EXPECT_EQ(SourceFromFlag(text).status().message(), message) << text;
  }
}

TEST(ReadConfig, ReadsSourcesWeightsAndAddress) {
  RouterOptions options;
  const Status status = ReadConfig(
      R"({"http": "[::1]:9", "sources": [{"name": "w", "endpoint": "e"}], "temperature": 0.5,
          "weights": {"load_token": 0.25, "load_storage_token": 2, "later": 0},
          "speculative_ms": 0, "tls_cert": "c.pem", "tls_key": "k.pem",
          "booking_lifetime_ms": 5, "ingest_threads": 3})",
      options);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(options.http.address, "[::1]");
  EXPECT_EQ(options.http.port, 9);
  EXPECT_EQ(options.http.tls_certificate, "c.pem");
  EXPECT_EQ(options.http.tls_key, "k.pem");
  EXPECT_EQ(options.sources.at(0).worker.name, "w");
  EXPECT_EQ(options.routing.weights.load_token, 0.25);
  EXPECT_EQ(options.routing.weights.load_storage_token, 2);
  EXPECT_EQ(options.routing.weights.later, 0);
  EXPECT_EQ(options.routing.weights.work, 1) << "weights that are absent keep their defaults";
  EXPECT_EQ(options.routing.temperature, 0.5);
  EXPECT_EQ(options.routing.speculative.lifetime_ms, 0);
  EXPECT_EQ(options.routing.booking_lifetime_ms, 5);
  EXPECT_EQ(options.ingest_threads, 3u);
}

TEST(ReadConfig, ReadsTheRulesOfAccess) {
  RouterOptions options;
  const Status status = ReadConfig(
      R"({"token_file": "/t", "admin_listen": "127.0.0.1:7", "allowed_hosts": ["router", "[::2]"],
          "source_networks": ["10.0.0.0/8"], "max_sources": 9, "max_http_sources": 8, "max_residencies": 7})",
      options);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(options.http.token_file, "/t");
  ASSERT_TRUE(options.admin_http);
  EXPECT_EQ(options.admin_http->port, 7);
  EXPECT_EQ(options.http.allowed_hosts, (std::vector<std::string>{"router", "[::2]"}));
  ASSERT_EQ(options.source_networks.size(), 1u);
  EXPECT_TRUE(options.source_networks[0].Contains(*ParseIpAddress("10.9.9.9")));
  EXPECT_EQ(options.source_limits.workers, 9u);
  EXPECT_EQ(options.source_limits.client_workers, 8u);
  EXPECT_EQ(options.source_limits.residencies, 7u);
  ASSERT_TRUE(ReadConfig(R"({"admin_listen": "unix:/run/s", "allowed_hosts": []})", options).ok());
  EXPECT_EQ(options.admin_http->unix_path, "/run/s");
  EXPECT_TRUE(options.http.allowed_hosts.empty());
}

TEST(ReadConfig, ErrorsNameTheMember) {
  const Wrong wrong[] = {
      {"{", "not JSON"},
      {"[]", "must be an object"},
      {R"({"source": []})", "unknown member: source"},
      {R"({"sources": [{"name": "w"}]})", "sources[0]: endpoint: required"},
      {R"({"http": "localhost"})", "http: expected ADDR:PORT, got 'localhost'"},
      {R"({"http": "h:65536"})", "http: expected ADDR:PORT, got 'h:65536'"},
      {R"({"admin_listen": "unix:"})",
       "admin_listen: expected ADDR:PORT or unix:PATH, got 'unix:'"},
      {R"({"admin_listen": "/run/s"})",
       "admin_listen: expected ADDR:PORT or unix:PATH, got '/run/s'"},
      {R"({"allowed_hosts": ["router:80"]})",
       "allowed_hosts: expected a host name without a port, got 'router:80'"},
      {R"({"allowed_hosts": [""]})", "allowed_hosts: expected a host name without a port, got ''"},
      {R"({"allowed_hosts": "router"})", "allowed_hosts: must be a non-empty array"},
      {R"({"source_networks": ["10.0.0.1/8"]})",
       "source_networks: expected a network like 10.0.0.0/8, got '10.0.0.1/8'"},
      {R"({"max_sources": 65536})", "max_sources: must be at most 65535"},
      {R"({"ingest_threads": -1})", "ingest_threads: must be a non-negative integer"},
      {R"({"ingest_threads": 65})", "ingest_threads: must be at most 64"},
      {R"({"weights": {"load": 1}})", "weights: unknown member: load"},
      {R"({"weights": {"load_token": -1}})",
       "weights.load_token: must be a number from 0 to 1e+09"}};
  for (const auto& [text, message] : wrong) {
    RouterOptions options;
    EXPECT_EQ(ReadConfig(text, options).message(), message) << text;
  }
}

TEST(IngestThreads, AreOneForEachEightCores) {
  EXPECT_EQ(IngestThreadsFor(0), 1u);
  EXPECT_EQ(IngestThreadsFor(2), 1u);
  EXPECT_EQ(IngestThreadsFor(15), 1u);
  EXPECT_EQ(IngestThreadsFor(16), 2u);
  EXPECT_EQ(IngestThreadsFor(192), 4u);
}

}  // namespace
}  // namespace kvcast::router
