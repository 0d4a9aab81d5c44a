// The service logs the states and resets of each source. It also logs registrations, refusals and
// listeners. It logs no secret.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "router/service/api/http_log.h"
#include "router/service/router_service.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/index_events.h"
#include "tests/support/log_lines.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::Hashes;
using kvcast::testing::LogLines;
using kvcast::testing::StoreFull;
using Json = nlohmann::json;
using stream::Eventually;
using Lines = std::vector<std::string>;

constexpr char kTrace[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr char kSeed[] = "a-seed-that-is-a-secret";

struct LogServiceTest : ::testing::Test {
  explicit LogServiceTest(LogLevel level = LogLevel::kInfo, LogFormat format = LogFormat::kText)
      : lines(level, format) {
    options.log = &lines.log();
  }
  void UseTokens() {
    options.http.token_file =
        folder.Write("tokens", "query tokenOfQuery\nadmin tokenOfAdmin\nobserve tokenOfObserver\n");
  }
  void Start() {
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
  }
  void AddSource(const Publisher& publisher, int64_t max_residencies = 0) {
    WorkerRegistration source;
    source.worker.name = "w";
    source.endpoint = publisher.endpoint();
    source.replay_endpoint = publisher.replay_endpoint();
    source.max_residencies = max_residencies;
    options.sources.push_back(source);
  }
  int Send(const std::string& method, const std::string& path, const std::string& token,
           const std::string& body = "{}") const {
    httplib::Client client("127.0.0.1", service->http_port());
    client.set_read_timeout(60);
    httplib::Request request;
    request.method = method;
    request.path = path;
    request.set_header("traceparent", kTrace);
    if (!token.empty()) request.set_header("Authorization", "Bearer " + token);
    if (method == "POST") request.body = body;
    const auto reply = client.send(request);
    return reply ? reply->status : 0;
  }
  int Register(const Json& source, const std::string& token = "tokenOfAdmin") const {
    return Send("POST", "/v1/sources", token, source.dump());
  }
  bool Await(const Lines& texts) {
    return Eventually([&] { return !lines.With(texts).empty(); });
  }

  stream::TemporaryFolder folder;
  LogLines lines;
  RouterOptions options;
  std::unique_ptr<RouterService> service;
};

EventBatch Stored(uint64_t first, int64_t blocks) {
  return Batch(StoreFull(Hashes(first, blocks), 0));
}

TEST_F(LogServiceTest, EachQuarantineOfASourceWritesALineWithItsReason) {
  const auto publisher = stream::MakePublisher(stream::TestPublisherConfig());
  AddSource(*publisher, /*max_residencies=*/6);
  Start();
  ASSERT_TRUE(publisher->Publish(Stored(1, 5)).ok());
  ASSERT_TRUE(Await({"source_state source=w", "to=synced"}));
  ASSERT_TRUE(publisher->Publish(Stored(100, 5)).ok());
  ASSERT_TRUE(Await({"source_state source=w", "to=quarantined"}));
  ASSERT_TRUE(Await({"warning source_reset source=w reason=doubt residencies=10"}));
  ASSERT_TRUE(publisher->Publish(Stored(200, 1)).ok());
  ASSERT_TRUE(Eventually([&] { return service->workers()[0].stream.next_seq >= 3; }));
  // The source may join again, and be quarantined again.
  for (const std::string& line : lines.With({"to=quarantined"})) {
    EXPECT_TRUE(line.starts_with("warning source_state source=w from=")) << line;
    EXPECT_EQ(line.find("from=quarantined"), std::string::npos) << line;
    EXPECT_NE(line.find(" to=quarantined reason=too_large weight=0 "), std::string::npos) << line;
  }
}

// The "from" of each line is the "to" of the previous line, although two threads read the state.
TEST_F(LogServiceTest, TheStatesOfASourceAreAChain) {
  auto publisher = stream::MakePublisher(stream::TestPublisherConfig());
  AddSource(*publisher);
  Start();
  ASSERT_TRUE(publisher->Publish(Stored(1, 5)).ok());
  ASSERT_TRUE(Await({"source_state source=w", "to=synced"}));
  publisher.reset();
  ASSERT_TRUE(Await({"warning source_state source=w", "to=stale reason=disconnected"}));
  std::string state = "connecting";
  for (const std::string& line : lines.With({"source_state source=w"})) {
    const size_t from = line.find("from=") + 5;
    const size_t to = line.find("to=") + 3;
    const std::string before = line.substr(from, line.find(' ', from) - from);
    const std::string after = line.substr(to, line.find(' ', to) - to);
    EXPECT_EQ(before, state) << line;
    EXPECT_NE(after, before) << line;
    state = after;
  }
  EXPECT_EQ(state, "stale");
}

TEST_F(LogServiceTest, AFeedWritesItsStateToo) {
  UseTokens();
  Start();
  ASSERT_EQ(Register({{"name", "pushed"},
                      {"endpoint", "push"},
                      {"format", "trtllm"},
                      {"window_sizes", {4096}},
                      {"tokens_per_block", 4},
                      {"partial_reuse", false}}),
            201);
  ASSERT_EQ(Send("POST", "/v1/events?worker=pushed", "tokenOfAdmin",
                 R"([{"event_id": 0, "window_size": 4096, "data": {"type": "created",
                     "num_blocks_per_cache_level": [10]}}])"),
            200);
  EXPECT_TRUE(Await({"info source_state source=pushed from=connecting to=synced"}));
}

TEST_F(LogServiceTest, RegistrationsHaveTheRoleAndTraceOfTheClient) {
  UseTokens();
  Start();
  const std::string client = std::string("peer=127.0.0.1 role=admin traceparent=") + kTrace;
  ASSERT_EQ(Register({{"name", "a"}, {"endpoint", "tcp://127.0.0.1:9"}, {"model", "m"}}), 201);
  EXPECT_EQ(lines
                .With({"info source_added source=a by=client " + client +
                       " endpoint=tcp://127.0.0.1:9 security=none model=m ranks=1"})
                .size(),
            1u);
  ASSERT_EQ(Register({{"name", "b"}, {"endpoint", "tcp://10.0.0.1:9"}, {"insecure", true}}), 201);
  EXPECT_EQ(lines.With({"warning source_insecure source=b"}).size(), 1u);
  ASSERT_EQ(Send("DELETE", "/v1/sources?name=a", "tokenOfAdmin"), 200);
  EXPECT_EQ(lines.With({"info source_removed source=a by=client " + client}).size(), 1u);
  ASSERT_EQ(Send("POST", "/register", "tokenOfAdmin",
                 R"({"endpoint": "tcp://127.0.0.1:9", "instance_id": "i", "model_name": "m",
                     "block_size": 16})"),
            201);
  EXPECT_EQ(lines.With({"source_added source=default/m/i/0 by=client"}).size(), 1u);
  ASSERT_EQ(
      Send("POST", "/unregister", "tokenOfAdmin", R"({"instance_id": "i", "model_name": "m"})"),
      200);
  EXPECT_EQ(lines.With({"source_removed source=default/m/i/0 by=client"}).size(), 1u);
}

TEST_F(LogServiceTest, ARefusedRegistrationHasItsReason) {
  UseTokens();
  Start();
  ASSERT_EQ(Register({{"name", "far"}, {"endpoint", "tcp://10.0.0.1:9"}}), 400);
  EXPECT_EQ(
      lines.With({"warning source_refused source=127.0.0.1 name=far role=admin", "is not loopback"})
          .size(),
      1u);
  ASSERT_EQ(Send("POST", "/v1/sources", "tokenOfAdmin", "nonsense"), 400);
  ASSERT_EQ(Send("POST", "/register", "tokenOfAdmin", "{}"), 400);
  EXPECT_EQ(lines.With({"source_refused source=127.0.0.1 role=admin"}).size(), 2u);
}

TEST_F(LogServiceTest, RefusedClientsAreNamedByAddressAndReason) {
  UseTokens();
  Start();
  ASSERT_EQ(Send("GET", "/v1/state", ""), 401);
  ASSERT_EQ(Send("GET", "/v1/state", "aWrongToken"), 401);
  ASSERT_EQ(Send("DELETE", "/v1/sources?name=x", "tokenOfQuery"), 403);
  const std::string trace = std::string(" traceparent=") + kTrace;
  const std::string needed =
      "warning http_refused source=127.0.0.1 status=401 method=GET "
      "route=/v1/state reason=\"authorization: a valid bearer token is "
      "needed\"" +
      trace;
  EXPECT_EQ(lines.With({needed}).size(), 2u);
  EXPECT_EQ(
      lines.With({"http_refused", "status=403 method=DELETE route=/v1/sources", trace}).size(), 1u);
  ASSERT_EQ(Send("GET", "/readyz", ""), 200);
  ASSERT_EQ(Send("POST", "/v1/route", "tokenOfAdmin", R"({"tokens": [1]})"), 503);
  EXPECT_EQ(
      lines.With({"error http_failed source=127.0.0.1 status=503 route=/v1/route" + trace}).size(),
      1u);
}

TEST_F(LogServiceTest, ListenersAreNamedAtTheStart) {
  UseTokens();
  options.admin_http.emplace().unix_path = folder.File("admin");
  options.relay.endpoint = "tcp://127.0.0.1:0";
  Start();
  const std::string port = std::to_string(service->http_port());
  EXPECT_EQ(lines
                .With({"info http_listening listener=public address=http://127.0.0.1:" + port +
                       " encrypted=false tokens=true"})
                .size(),
            1u);
  EXPECT_EQ(
      lines.With({"http_listening listener=admin address=unix:" + folder.File("admin")}).size(),
      1u);
  EXPECT_EQ(lines
                .With({"info stream_listening stream=relay address=" + service->relay_endpoint() +
                       " encrypted=false"})
                .size(),
            1u);
}

TEST_F(LogServiceTest, ARefusedSubscriberOfTheRelayIsLogged) {
  const CurveKeyPair keys = stream::NewKeys();
  options.curve_key = folder.Write("router.key", keys.secret_key + "\n");
  options.curve_clients = folder.Write("clients", "");
  options.relay.endpoint = "tcp://127.0.0.1:0";
  Start();
  EXPECT_EQ(lines.With({"stream_listening stream=relay", "encrypted=true"}).size(), 1u);
  SubscriberConfig config;
  config.curve_keys = stream::NewKeys();
  const auto stranger = Subscriber::Create(config).value();
  stream::RecordingSink sink;
  ASSERT_TRUE(stream::AddSource(
                  *stranger, sink,
                  {WorkerId(0), service->relay_endpoint(), "", "", /*bind=*/false, keys.public_key})
                  .ok());
  EXPECT_TRUE(
      Await({"warning stream_refused source=127.0.0.1 stream=relay socket=live "
             "reason=not_allowed"}));
}

TEST_F(LogServiceTest, ASourceWithAnotherKeyIsInTheLog) {
  options.curve_key = folder.Write("router.key", stream::NewKeys().secret_key + "\n");
  const auto publisher = stream::MakePublisher(stream::TestPublisherConfig());
  AddSource(*publisher);
  options.sources[0].server_key = stream::NewKeys().public_key;
  Start();
  EXPECT_TRUE(Await({"warning source_handshake_failed source=w failed="}));
}

// The log has level debug. No line may contain a secret.
struct EveryLine : LogServiceTest, ::testing::WithParamInterface<LogFormat> {
  EveryLine() : LogServiceTest(LogLevel::kDebug, GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Formats, EveryLine, ::testing::Values(LogFormat::kText, LogFormat::kJson));

TEST_P(EveryLine, HasNoTokenIdSeedKeyOrBearerToken) {
  UseTokens();
  const CurveKeyPair keys = stream::NewKeys();
  options.curve_key = folder.Write("router.key", keys.secret_key + "\n");
  const auto publisher = stream::MakePublisher(stream::TestPublisherConfig());
  AddSource(*publisher);
  options.sources[0].hash_seed = kSeed;
  Start();
  EventBatch batch = Stored(1, 1);
  std::get<BlockStored>(batch.events[0]).token_ids.emplace(16, 987654321);
  ASSERT_TRUE(publisher->Publish(std::move(batch)).ok());
  ASSERT_TRUE(Await({"source_state", "synced"}));
  const Json secrets = {{"name", "s"},
                        {"endpoint", "http://user:passOfUrl@127.0.0.1:9/kv?key=keyOfUrl"},
                        {"format", "trtllm"},
                        {"hash_seed", kSeed},
                        {"candidate_seeds", {kSeed}},
                        {"none_hash", "00c0ffee"}};
  (void)Register(secrets);
  ASSERT_EQ(Register({{"name", "v"},
                      {"endpoint", "http://127.0.0.1:9/kv?key=keyOfUrl"},
                      {"format", "trtllm"},
                      {"window_sizes", {4096}},
                      {"tokens_per_block", 4},
                      {"partial_reuse", false}}),
            201);
  Json tcp = {{"name", "t"}, {"endpoint", "tcp://127.0.0.1:9"}, {"hash_seed", kSeed}};
  tcp["server_key"] = stream::NewKeys().public_key;
  ASSERT_EQ(Register(tcp), 201);
  const std::string key = tcp["server_key"];
  tcp["name"] = "u";
  tcp["server_key"] = key.substr(1);  // refused
  ASSERT_EQ(Register(tcp), 400);
  const std::string prompt = R"({"tokens": [987654321, 987654321], "cache_salt": "saltOfPrompt"})";
  (void)Send("POST", "/v1/query", "tokenOfQuery", prompt);
  (void)Send("POST", "/v1/route", "tokenOfAdmin", prompt);
  (void)Send("POST", "/v1/route?token=tokenOfUrl", "tokenThatIsWrong", prompt);
  ASSERT_TRUE(Await({"http_request", "/v1/query"}));
  httplib::Client observer("127.0.0.1", service->http_port());
  observer.set_bearer_token_auth("tokenOfObserver");
  const auto page = observer.Get("/metrics");
  ASSERT_TRUE(page && page->status == 200);
  service.reset();
  Lines all = lines.lines();
  EXPECT_GE(all.size(), 8u);
  if (GetParam() == LogFormat::kJson) {
    for (const std::string& line : all) EXPECT_TRUE(Json::parse(line).is_object()) << line;
  }
  all.push_back(page->body);
  for (const std::string& line : all) {
    for (const std::string& secret :
         {std::string("tokenOf"), std::string("tokenThat"), std::string("Bearer "),
          std::string("OfUrl"), std::string(kSeed), std::string("987654321"), std::string("c0ffee"),
          std::string("saltOf"), keys.secret_key, keys.public_key, key.substr(1)}) {
      EXPECT_EQ(line.find(secret), std::string::npos) << line;
    }
  }
}

// Probes request /readyz all the time. So status 503 of /readyz is not logged.
TEST(HttpLog, Status503OfReadyzIsNotLogged) {
  LogLines lines;
  for (const std::string_view route : {"/readyz", "/v1/route"}) {
    LogAnswer(lines.log(), {.peer = "10.0.0.1",
                            .method = {},
                            .route = route,
                            .status = 503,
                            .refused_for = {},
                            .traceparent = {}});
  }
  EXPECT_EQ(lines.lines(), (Lines{"error http_failed source=10.0.0.1 status=503 route=/v1/route"}));
}

TEST(HttpLog, AMillionRefusalsGiveABoundedNumberOfLines) {
  LogLines lines;
  for (int i = 0; i < 1'000'000; ++i) {
    LogAnswer(lines.log(), {.peer = "10.0.0.1",
                            .method = "GET",
                            .route = "/v1/state",
                            .status = 401,
                            .refused_for = "authorization: a valid bearer token is needed",
                            .traceparent = {}});
  }
  EXPECT_EQ(lines.lines().size(), log_events::kHttpRefused.lines_per_source);
  lines.Advance(LogLimiter::kWindowMs);
  EXPECT_EQ(lines.lines().back(),
            "warning lines_suppressed source=10.0.0.1 of=http_refused lines=999990");
}

}  // namespace
}  // namespace kvcast::router
