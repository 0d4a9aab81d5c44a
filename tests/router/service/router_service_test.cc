// Tests the service end to end. Publishers send batches over sockets, and the tests query the
// service over HTTP.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/router_service.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kvcast/stream/publisher.h"
#include "router/service/api/indexer_api.h"
#include "router/service/api/own_api.h"
#include "router/service/api/static_files.h"
#include "router/service/json/json_fields.h"
#include "tests/http/patient_options.h"
#include "tests/router/names/scheme_streams.h"
#include "tests/support/index_events.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::DenseStore;
using kvcast::testing::EngineScheme;
using kvcast::testing::Full;
using kvcast::testing::Registered;
using kvcast::testing::SchemeTokens;
using kvcast::testing::StoreFull;
using kvcast::testing::StoreWindow;

std::vector<TokenId> PromptOf(int64_t tokens) {
  std::vector<TokenId> prompt(static_cast<size_t>(tokens));
  std::iota(prompt.begin(), prompt.end(), 1);
  return prompt;
}

std::vector<BlockHash> ChainOf(const std::vector<TokenId>& tokens) {
  std::vector<Digest> digests;
  BlockHasher::FromSeed(HashAlgorithm::kSha256, kDefaultHashSeed)
      ->ExtendChain(tokens, 16, HashInputs(), digests);
  std::vector<BlockHash> chain;
  for (const Digest& digest : digests) chain.push_back(ToEventHash(digest, EventHashForm::kInt64));
  return chain;
}

std::unique_ptr<Publisher> StartPublisher() {
  PublisherConfig config;
  config.endpoint = "tcp://127.0.0.1:0";
  config.replay_endpoint = "tcp://127.0.0.1:0";
  return Publisher::Create(config).value();
}

WorkerRegistration RegistrationFor(const std::string& name, const Publisher& publisher) {
  WorkerRegistration source;
  source.endpoint = publisher.endpoint();
  source.replay_endpoint = publisher.replay_endpoint();
  source.worker = Registered({});
  source.worker.name = name;
  return source;
}

// True if the worker has applied `batches` batches and knows the publisher's epoch. A source that
// receives batches before it knows the epoch drops their blocks and begins again at batch 0.
bool HasApplied(const Json& worker, int batches) {
  return worker.at("next_seq") == batches && worker.at("state") == "synced";
}

struct RouterServiceTest : ::testing::Test {
  void Start(std::vector<WorkerRegistration> sources) {
    RouterOptions options;
    options.sources = std::move(sources);
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
  }
  httplib::Client Client() const {
    httplib::Client client("127.0.0.1", service->http_port());
    client.set_read_timeout(60);
    client.set_write_timeout(60);
    return client;
  }

  Json Ask(const Json& body) const {
    const auto reply = Client().Post("/v1/query", body.dump(), "application/json");
    if (!reply || reply->status != 200) return nullptr;
    return Json::parse(reply->body).at("workers");
  }
  // Polls until `done` holds for the answer. Fails after a minute.
  Json AskUntil(const Json& body, const std::function<bool(const Json&)>& done) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    Json workers = Ask(body);
    while (!done(workers) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
      workers = Ask(body);
    }
    EXPECT_TRUE(done(workers)) << workers.dump();
    return workers;
  }

  std::unique_ptr<RouterService> service;
};

TEST_F(RouterServiceTest, PublishedBlocksAreReusableByTokensAndByHashes) {
  const auto publisher = StartPublisher();
  Start({RegistrationFor("engine", *publisher)});
  const auto chain = ChainOf(PromptOf(64));
  EventBatch batch = Batch(StoreFull(chain, 0), StoreWindow({chain[0], chain[1], chain[2]}, 1, 32));
  batch.ts = 1;
  ASSERT_TRUE(publisher->Publish(batch).ok());
  const Json workers = AskUntil({{"tokens", PromptOf(100)}},
                                [](const Json& answer) { return HasApplied(answer.at(0), 1); });
  EXPECT_EQ(workers[0].at("name"), "engine");
  EXPECT_EQ(workers[0].at("reusable_tokens"), 48);
  EXPECT_EQ(workers[0].at("per_group_tokens"), Json({64, 48}));
  EXPECT_EQ(workers[0].at("hash_block_size"), 16);
  EXPECT_EQ(workers[0].at("hit"), "partial");
  EXPECT_EQ(workers[0].at("limiting_group"), 1);
  EXPECT_EQ(workers[0].at("recompute_tokens"), 52);
  EXPECT_EQ(workers[0].at("reusable_with_cpu_tokens"), 48);
  EXPECT_EQ(workers[0].at("certain"), true);
  EXPECT_GE(workers[0].at("event_age_seconds"), 0);
  Json hashes = Json::array();
  for (const BlockHash& hash : chain) hashes.push_back(hash.integer());
  EXPECT_EQ(Ask({{"hashes", hashes}})[0].at("reusable_tokens"), 48);
  EXPECT_EQ(Ask({{"tokens", PromptOf(100)}, {"cache_salt", "x"}})[0].at("reusable_tokens"), 0);
  const auto packed = Json::to_msgpack({{"tokens", PromptOf(100)}});
  const std::string body(packed.begin(), packed.end());
  const auto queried = Client().Post("/v1/query", body, "application/msgpack");
  ASSERT_TRUE(queried && queried->status == 200);
  EXPECT_EQ(Json::parse(queried->body)["workers"][0].at("reusable_tokens"), 48);
  const auto routed = Client().Post("/v1/route", body, "application/msgpack");
  ASSERT_TRUE(routed && routed->status == 200) << routed->body;
  EXPECT_EQ(Client().Post("/v1/query", body, "application/json")->status, 400);
}

TEST_F(RouterServiceTest, ExpectedPrefixesNeverEnterTheExactAnswer) {
  const auto publisher = StartPublisher();
  RouterOptions options;
  options.sources = {RegistrationFor("engine", *publisher)};
  options.routing.speculative.lifetime_ms = 600'000;
  service = RouterService::Start(options).value();
  ASSERT_TRUE(publisher->Publish(Batch(StoreFull(ChainOf(PromptOf(32)), 0))).ok());
  const Json prompt = {{"tokens", PromptOf(100)}};
  AskUntil(prompt, [](const Json& answer) { return HasApplied(answer.at(0), 1); });
  const auto route = [&] {
    const auto reply = Client().Post("/v1/route", prompt.dump(), "application/json");
    EXPECT_TRUE(reply && reply->status == 200);
    return Json::parse(reply->body).at("candidates").at(0);
  };
  EXPECT_EQ(route().at("speculative_tokens"), 0);
  const Json again = route();
  EXPECT_GT(again.at("speculative_tokens"), 32);
  EXPECT_EQ(again.at("reusable_tokens"), 32);
  EXPECT_EQ(Ask(prompt)[0].at("reusable_tokens"), 32);
}

TEST_F(RouterServiceTest, WorkersAreFollowedSideBySide) {
  const auto first = StartPublisher();
  const auto second = StartPublisher();
  Start({RegistrationFor("first", *first), RegistrationFor("second", *second)});
  const auto chain = ChainOf(PromptOf(64));
  ASSERT_TRUE(first->Publish(Batch(StoreFull(chain, 0))).ok());
  ASSERT_TRUE(second->Publish(Batch(StoreFull({chain[0]}, 0))).ok());
  const Json workers = AskUntil({{"tokens", PromptOf(65)}}, [](const Json& answer) {
    return HasApplied(answer.at(0), 1) && HasApplied(answer.at(1), 1);
  });
  EXPECT_EQ(workers[0].at("reusable_tokens"), 64);
  EXPECT_EQ(workers[1].at("reusable_tokens"), 16);
  const Json one = Ask({{"tokens", PromptOf(65)}, {"workers", {"second"}}});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].at("name"), "second");
}

// Four engines hash in four ways. One engine has a registered algorithm, and this algorithm is
// wrong.
TEST_F(RouterServiceTest, TheSchemesOfAMixedFleetAreFound) {
  const EngineScheme schemes[] = {
      {.algorithm = HashAlgorithm::kSha256Cbor, .seed = "0", .hash_block_size = 8},
      {.algorithm = HashAlgorithm::kXxhash, .seed = "42", .form = EventHashForm::kBytes},
      {.seed = "0"},
      {.seed = "nobody knows"}};
  const auto publishers = {StartPublisher(), StartPublisher(), StartPublisher(), StartPublisher()};
  std::vector<WorkerRegistration> sources;
  for (const auto& publisher : publishers) {
    sources.push_back(RegistrationFor("engine-" + std::to_string(sources.size()), *publisher));
  }
  sources[2].algorithm = HashAlgorithm::kXxhashCbor;
  Start(sources);
  size_t i = 0;
  for (const auto& publisher : publishers) {
    const auto store = DenseStore(schemes[i], PromptOf(96), 0, 3, 32);
    const auto again = DenseStore(schemes[i++], SchemeTokens(32, 7000), 0, 1, 32);
    ASSERT_TRUE(publisher->Publish(Batch(store, again)).ok());
  }
  const Json workers = AskUntil({{"tokens", PromptOf(100)}}, [](const Json& answer) {
    return std::ranges::all_of(answer, [](const Json& worker) { return HasApplied(worker, 1); });
  });
  for (const Json& worker : workers) {
    EXPECT_EQ(worker.at("reusable_tokens"), 96);
    EXPECT_EQ(worker.at("named_by"), "content");
    EXPECT_EQ(worker.at("exact"), false);
    EXPECT_EQ(worker.at("reason"),
              "the kinds of the groups are neither sent nor registered: set groups");
  }
  EXPECT_EQ(workers[0].at("scheme"), Json({{"state", "matched"},
                                           {"algorithm", "sha256_cbor"},
                                           {"seed", "0"},
                                           {"hash_block_size", 8},
                                           {"reason", ""}}));
  EXPECT_EQ(workers[1].at("scheme").at("algorithm"), "xxhash");
  EXPECT_EQ(workers[2].at("scheme").at("reason"),
            "registered xxhash_cbor; the stores have sha256, seed 0, unit 16");
  EXPECT_EQ(workers[3].at("scheme").at("reason"), "no known scheme fits the stores");
  EXPECT_EQ(Json::parse(Client().Get("/healthz")->body).at("schemes_matched"), 2);
  const std::string page = Client().Get("/metrics")->body;
  EXPECT_NE(page.find("kvcast_source_scheme_state{worker=\"engine-3\",state=\"token_mode\"} 1"),
            std::string::npos);
}

// A query by hashes contains the engine's own hashes, so the scheme does not matter.
TEST_F(RouterServiceTest, HashesAreExactWithoutAScheme) {
  const auto publisher = StartPublisher();
  WorkerRegistration source = RegistrationFor("engine", *publisher);
  source.worker.groups = {Full()};
  Start({source});
  ASSERT_TRUE(publisher->Publish(Batch(StoreFull(kvcast::testing::Hashes(1, 2), 0))).ok());
  const Json workers = AskUntil({{"hashes", {1, 2}}},
                                [](const Json& answer) { return HasApplied(answer.at(0), 1); });
  EXPECT_EQ(workers[0].at("reusable_tokens"), 32);
  EXPECT_EQ(workers[0].at("exact"), true);
  const Json by_tokens = AskUntil({{"tokens", PromptOf(100)}}, [](const Json& answer) {
    return answer.at(0).at("state") == "synced";
  });
  EXPECT_EQ(by_tokens[0].at("exact"), false);
  EXPECT_EQ(by_tokens[0].at("reason"),
            "hash scheme: no testable store at the start of a prompt was seen yet");
}

TEST_F(RouterServiceTest, BadQueriesGetOneClearError) {
  const auto publisher = StartPublisher();
  Start({RegistrationFor("engine", *publisher)});
  const std::pair<std::string, std::string> cases[] = {
      {"{", "body: not JSON"},
      {R"({"tokens": [1], "salt": "a"})", "unknown member: salt"},
      {R"({"tokens": [1], "workers": ["nobody"]})", "workers: unknown worker nobody"}};
  for (const auto& [body, message] : cases) {
    const auto reply = Client().Post("/v1/query", body, "application/json");
    ASSERT_TRUE(reply) << body;
    EXPECT_EQ(reply->status, 400) << body;
    EXPECT_EQ(Json::parse(reply->body), Json({{"error", message}}));
  }
  EXPECT_NE(Client().Get("/metrics")->body.find("kvcast_bad_queries_total 3"), std::string::npos);
}

TEST_F(RouterServiceTest, ARouteWithoutAWorkerCountsAsABadQuery) {
  Start({});
  const auto reply = Client().Post("/v1/route", R"({"tokens": [1]})", "application/json");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 503);
  const std::string page = Client().Get("/metrics")->body;
  EXPECT_NE(page.find("\nkvcast_queries_total 0\n"), std::string::npos);
  EXPECT_NE(page.find("\nkvcast_bad_queries_total 1\n"), std::string::npos);
}

TEST_F(RouterServiceTest, HealthCountsSyncedSources) {
  const auto publisher = StartPublisher();
  Start({RegistrationFor("engine", *publisher)});
  ASSERT_TRUE(publisher->Publish(Batch(StoreFull(ChainOf(PromptOf(16)), 0))).ok());
  AskUntil({{"tokens", PromptOf(65)}},
           [](const Json& answer) { return answer.at(0).at("state") == "synced"; });
  const auto reply = Client().Get("/healthz");
  ASSERT_TRUE(reply);
  EXPECT_EQ(Json::parse(reply->body),
            Json({{"status", "ok"}, {"sources", 1}, {"synced", 1}, {"schemes_matched", 0}}));
}

TEST_F(RouterServiceTest, AFailedStartNamesTheCause) {
  const auto publisher = StartPublisher();
  const WorkerRegistration source = RegistrationFor("engine", *publisher);
  Start({source});
  RouterOptions taken;
  taken.http.port = service->http_port();
  EXPECT_EQ(RouterService::Start(taken).status().code(), StatusCode::kUnavailable);
  RouterOptions twice;
  twice.sources = {source, source};
  EXPECT_EQ(RouterService::Start(twice).status().message(), "two sources are named engine");
  RouterOptions unreachable;
  unreachable.sources = {source};
  unreachable.sources[0].endpoint = "no endpoint";
  const Status status = RouterService::Start(unreachable).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().substr(0, 8), "engine: ");
}

// Only the health routes use the health lane. Only the listed routes accept a body above
// kSmallBody.
TEST_F(RouterServiceTest, RoutesHaveLanesAndBounds) {
  ServiceCore core;
  std::vector<HttpRoute> routes = OwnRoutes(core, {});
  for (const auto& more : {IndexerRoutes(core), StaticRoutes()}) {
    routes.insert(routes.end(), more.begin(), more.end());
  }
  std::set<std::string> health;
  std::set<std::string> changes;
  std::set<std::string> need_client;
  std::map<std::string, size_t> large;
  for (const HttpRoute& route : routes) {
    if (route.needs_client) need_client.insert(route.path);
    if (route.lane == HttpRoute::Lane::kHealth) health.insert(route.path);
    if (route.lane == HttpRoute::Lane::kChange) changes.insert(route.path);
    if (route.max_body_bytes > HttpRoute::kSmallBody) large[route.path] = route.max_body_bytes;
  }
  EXPECT_EQ(health, (std::set<std::string>{"/health", "/healthz", "/readyz"}));
  EXPECT_EQ(changes,
            (std::set<std::string>{"/register", "/unregister", "/v1/events", "/v1/sources"}));
  EXPECT_EQ(need_client,
            (std::set<std::string>{"/query", "/query_by_hash", "/v1/query", "/v1/route"}));
  const size_t query = 16 << 20;
  EXPECT_EQ(large, (std::map<std::string, size_t>{{"/query", query},
                                                  {"/query_by_hash", query},
                                                  {"/v1/events", query},
                                                  {"/v1/query", query},
                                                  {"/v1/route", query},
                                                  {"/v1/sources", 1 << 20}}));
}

TEST_F(RouterServiceTest, IsHealthyWhileLargeQueriesAndDecisionsAreAnswered) {
  RouterOptions options;
  options.http = kvcast::testing::PatientOptions();
  service = RouterService::Start(options).value();
  const auto patient = [this] {
    auto client = std::make_unique<httplib::Client>("127.0.0.1", service->http_port());
    client->set_read_timeout(600);
    client->set_write_timeout(600);
    return client;
  };
  std::string body = "{\"tokens\":[1";
  // The body stays below the byte limit and has more tokens than allowed.
  while (body.size() < (16 << 20) - 10) body += ",123456";
  body += "]}";
  std::atomic<int> posting{4};
  std::vector<std::thread> busy;
  for (int i = 0; i < 4; ++i) {
    busy.emplace_back([&] {
      const auto reply = patient()->Post("/v1/query", body, "application/json");
      EXPECT_TRUE(reply && reply->status == 400);
      --posting;
    });
  }
  busy.emplace_back([&] {
    while (posting > 0) EXPECT_EQ(patient()->Get("/v1/decisions")->status, 200);
  });
  do {
    const auto reply = patient()->Get("/healthz");
    EXPECT_TRUE(reply && reply->status == 200);
  } while (posting > 0);
  for (std::thread& thread : busy) thread.join();
}

TEST_F(RouterServiceTest, PromptsThatAreTooLongAreBadRequests) {
  Start({});
  const auto post = [this](const std::string& path, const std::string& member, size_t count) {
    std::string body = "{\"model_name\":\"m\",\"" + member + "\":[7";
    if (path.starts_with("/v1")) body = "{\"" + member + "\":[7";
    for (size_t i = 1; i < count; ++i) body += ",7";
    const auto reply = Client().Post(path, body + "]}", "application/json");
    return reply ? std::to_string(reply->status) + Json::parse(reply->body).value("error", "") : "";
  };
  constexpr size_t kTokens = (1 << 21) + 1;
  constexpr size_t kHashes = (1 << 17) + 1;
  EXPECT_EQ(post("/v1/query", "tokens", kTokens), "400tokens: more than 2097152 elements");
  EXPECT_EQ(post("/v1/query", "tokens", kTokens - 1), "200");
  EXPECT_EQ(post("/v1/query", "hashes", kHashes), "400hashes: more than 131072 elements");
  EXPECT_EQ(post("/v1/query", "hashes", kHashes - 1), "200");
  EXPECT_EQ(post("/v1/route", "tokens", kTokens), "400tokens: more than 2097152 elements");
  EXPECT_EQ(post("/query", "token_ids", kTokens), "400token_ids: more than 2097152 elements");
  EXPECT_EQ(post("/query_by_hash", "block_hashes", kHashes),
            "400block_hashes: more than 131072 elements");
}

TEST_F(RouterServiceTest, ListensBeyondLoopbackOnlyIfAllowed) {
  for (const char* address : {"0.0.0.0", "::", "[::]", "203.0.113.1", "127.example.org", "host"}) {
    RouterOptions options;
    options.http.address = address;
    const Status status = RouterService::Start(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << address;
    EXPECT_EQ(status.message().find(std::string("http: ") + address + " is not loopback"), 0u);
  }
  for (const char* relay : {"tcp://*:0", "tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://eth0:0"}) {
    RouterOptions options;
    options.relay.endpoint = relay;
    const Status status = RouterService::Start(options).status();
    EXPECT_EQ(status.message().find(std::string("relay: ") + relay + " is not loopback"), 0u);
    options.allow_remote = true;
    EXPECT_EQ(RouterService::Start(options).status().message(),
              std::string("relay: ") + relay +
                  " is not loopback; set curve_key and curve_clients (CURVE)");
  }
  RouterOptions remote_allowed;
  remote_allowed.http.address = "0.0.0.0";
  remote_allowed.allow_remote = true;
  EXPECT_TRUE(RouterService::Start(remote_allowed).ok());
  RouterOptions local;
  local.relay.endpoint = "tcp://127.0.0.1:0";
  EXPECT_TRUE(RouterService::Start(local).ok());
}

TEST_F(RouterServiceTest, ABoundSourceBeyondLoopbackMustBeAllowed) {
  WorkerRegistration source;
  source.worker.name = "w";
  source.bind = true;
  source.endpoint = "tcp://0.0.0.0:5557";
  RouterOptions options;
  options.sources = {source};
  EXPECT_EQ(RouterService::Start(options).status().message().find(
                "w: bind: tcp://0.0.0.0:5557 is not loopback"),
            0u);
  Start({});
  const auto refused = Client().Post(
      "/v1/sources", R"({"name": "w", "endpoint": "tcp://*:5557", "bind": true})", "text/json");
  EXPECT_EQ(refused->status, 400);
  EXPECT_NE(refused->body.find("w: bind: tcp://*:5557 is not loopback"), std::string::npos);
}

// A worker that is removed while the service uses an earlier view of the fleet.
TEST(ServiceCore, ARemovedWorkerKeepsNoLoad) {
  ServiceCore core;
  core.request_router = std::make_unique<RequestRouter>(RoutingConfig(), [] { return 0.0; });
  FleetObserver observer;
  observer.on_removed = [&core](const FleetWorker& worker) {
    core.request_router->OnRemoved(worker.id);
  };
  core.fleet = Fleet::Create({}, core.index, std::move(observer)).value();
  core.now = [] { return 0.0; };
  core.queries = std::make_unique<QueryEngine>(
      core.index, [&core](WorkerId worker) { return core.fleet->stream(worker); }, core.now);
  WorkerRegistration source;
  source.endpoint = "tcp://127.0.0.1:1";  // no process listens at this port
  for (const char* name : {"a", "b", "c"}) {
    source.worker.name = name;
    ASSERT_TRUE(core.fleet->Add(source).ok());
  }
  const FleetView before = core.fleet->view();
  // The service reads this clock after the answers and before the decision.
  core.steady_ms = [&core] {
    (void)core.fleet->Remove("a");
    return int64_t{0};
  };
  Query query;
  query.tokens = PromptOf(100);
  query.by_tokens = true;
  query.prompt_tokens = 100;
  query.request_id = "r";
  const auto decision = core.Route(query);
  ASSERT_TRUE(decision.ok()) << decision.status().ToString();
  EXPECT_EQ(decision->candidates[decision->chosen].answer.name, "a");
  EXPECT_EQ(core.request_router->counters().bookings, 0u);
  EXPECT_EQ(core.request_router->load(before->Find("a")->id).active_prefill_tokens, 0);
  query.request_id = "s";
  ASSERT_TRUE(core.Route(query).ok());
  EXPECT_EQ(core.request_router->counters().bookings, 1u) << "the other workers keep their load";
}

// tests/apps/commands/router_api_test.py checks that the routes of the document exist and behave as
// described.
TEST(OpenApi, NamesEveryRoute) {
  ServiceCore core;
  std::set<std::string> served;
  for (const auto& routes : {OwnRoutes(core, {}), IndexerRoutes(core), StaticRoutes()}) {
    for (const HttpRoute& route : routes) {
      // Pages for people are not part of the API.
      if (route.path == "/" || route.path.starts_with("/dashboard")) continue;
      constexpr std::array kMethods = {"get", "post", "delete"};
      served.insert(std::string(kMethods[static_cast<size_t>(route.method)]) + " " + route.path);
    }
  }
  std::set<std::string> named;
  const Json document = Json::parse(OpenApiText());
  for (const auto& [path, methods] : document.at("paths").items()) {
    for (const auto& [method, description] : methods.items()) named.insert(method + " " + path);
  }
  EXPECT_EQ(served, named);
}

TEST_F(RouterServiceTest, StopMayBeCalledTwice) {
  const auto publisher = StartPublisher();
  Start({RegistrationFor("engine", *publisher)});
  service->Stop();
  service->Stop();
  EXPECT_FALSE(Client().Get("/healthz"));
}

TEST_F(RouterServiceTest, ObserverSeesEachBatchWithItsWorker) {
  const auto a = StartPublisher();
  const auto b = StartPublisher();
  std::mutex mutex;
  std::map<std::string, std::vector<uint64_t>> seen;
  RouterOptions options;
  options.sources = {RegistrationFor("a", *a), RegistrationFor("b", *b)};
  options.on_applied = [&](const FleetWorker& worker, const AppliedBatch& applied) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!applied.batch.events.empty()) seen[worker.config.worker.name].push_back(applied.seq.value);
  };
  service = RouterService::Start(options).value();
  const auto chain = ChainOf(PromptOf(64));
  for (const BlockHash& hash : chain) ASSERT_TRUE(a->Publish(Batch(StoreFull({hash}, 0))).ok());
  ASSERT_TRUE(b->Publish(Batch(StoreFull(chain, 0))).ok());
  std::vector<WorkerReport> workers;
  ASSERT_TRUE(stream::Eventually([&] {
    workers = service->workers();
    const auto is_synced = [](const WorkerReport& worker, uint64_t next_seq) {
      return worker.state == SourceState::kSynced && worker.stream.next_seq == next_seq;
    };
    return workers.size() == 2 && is_synced(workers[0], 4) && is_synced(workers[1], 1);
  }));
  service->Stop();
  // A source that received batches before it knew the publisher's epoch begins again at batch 0.
  const auto runs = [](const std::vector<uint64_t>& seqs, uint64_t last) {
    for (size_t i = 1; i < seqs.size(); ++i) {
      if (seqs[i] != 0 && seqs[i] != seqs[i - 1] + 1) return false;
    }
    return !seqs.empty() && seqs[0] == 0 && *std::ranges::max_element(seqs) == last;
  };
  EXPECT_TRUE(runs(seen["a"], 3)) << ::testing::PrintToString(seen["a"]);
  EXPECT_TRUE(runs(seen["b"], 0)) << ::testing::PrintToString(seen["b"]);
  EXPECT_EQ(workers[0].name, "a");
  EXPECT_EQ(workers[1].name, "b");
}

// Routes a prompt, and reports the admission of the request. The worker holds 96 tokens of the
// prompt.
struct FeedbackTest : RouterServiceTest {
  void Follow(RoutingPolicy policy) {
    publisher = StartPublisher();
    RouterOptions options;
    options.sources = {RegistrationFor("a", *publisher)};
    options.routing.policy = policy;
    service = RouterService::Start(options).value();
    ASSERT_TRUE(publisher->Publish(Batch(StoreFull(ChainOf(PromptOf(96)), 0))).ok());
    AskUntil(kQuery, [](const Json& answer) { return HasApplied(answer.at(0), 1); });
  }
  httplib::Result Post(const std::string& path, const Json& body) const {
    return Client().Post(path, body.dump(), "application/json");
  }
  std::string Route() const {
    const auto reply = Post("/v1/route", kQuery);
    return reply && reply->status == 200 ? Json::parse(reply->body).value("request_id", "") : "";
  }
  std::string Admit(const std::string& request, int64_t reused) const {
    return Post("/v1/feedback",
                {{"request_id", request}, {"event", "admitted"}, {"reused_tokens", reused}})
        ->body;
  }

  const Json kQuery = {{"tokens", PromptOf(100)}};
  const std::string kTaken = "{\"refuted\":false,\"status\":\"ok\"}\n";
  std::unique_ptr<Publisher> publisher;
};

TEST_F(FeedbackTest, PromisesByAnotherRuleRefuteNothing) {
  Follow(RoutingPolicy::kFullOnly);
  for (int i = 0; i < 2 * ReuseFeedback::kMinAnswers; ++i) EXPECT_EQ(Admit(Route(), 0), kTaken);
}

TEST_F(FeedbackTest, WrongPromisesRefuteTheState) {
  Follow(RoutingPolicy::kExact);
  for (int i = 1; i < ReuseFeedback::kMinAnswers; ++i) EXPECT_EQ(Admit(Route(), 0), kTaken);
  EXPECT_EQ(Admit(Route(), 0), "{\"refuted\":true,\"status\":\"ok\"}\n");
}

TEST_F(FeedbackTest, ARequestCountsOnce) {
  Follow(RoutingPolicy::kExact);
  const std::string request = Route();
  for (int i = 0; i < 2 * ReuseFeedback::kMinAnswers; ++i) EXPECT_EQ(Admit(request, 0), kTaken);
  EXPECT_EQ(Post("/v1/feedback", {{"request_id", request}, {"event", "finished"}})->status, 200);
  EXPECT_EQ(Post("/v1/feedback", {{"request_id", request}, {"event", "finished"}})->status, 404);
}

TEST_F(FeedbackTest, IsOnlyAboutBookedRequests) {
  Follow(RoutingPolicy::kExact);
  const Json of_a_worker = {{"worker", "a"}, {"promised_tokens", 100}, {"cached_tokens", 0}};
  EXPECT_EQ(Post("/v1/feedback", of_a_worker)->status, 400);
  EXPECT_EQ(Post("/v1/feedback",
                 {{"request_id", "kvcast-1"}, {"event", "admitted"}, {"reused_tokens", 0}})
                ->status,
            404);
  EXPECT_EQ(Post("/v1/feedback", {{"worker", "a"}})->status, 400);
  EXPECT_EQ(Post("/v1/feedback", Json::array())->status, 400);
}

}  // namespace
}  // namespace kvcast::router
