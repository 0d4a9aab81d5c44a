// Tests which sources the service accepts, and which clients the relay admits.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "router/service/api/source_flag.h"
#include "router/service/ingest/source_policy.h"
#include "router/service/relay/relay.h"
#include "router/service/router_service.h"
#include "src/stream/net/socket.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using stream::Eventually;
using stream::Line;
using stream::NewKeys;
using stream::TemporaryFolder;
using stream::TestServer;
using ::testing::HasSubstr;

WorkerRegistration Source(const std::string& endpoint, const std::string& replay = "") {
  WorkerRegistration source;
  source.worker.name = "w";
  source.endpoint = endpoint;
  source.replay_endpoint = replay;
  return source;
}

std::string Checked(const WorkerRegistration& source, const SourcePolicy& policy = {},
                    SourceOrigin origin = SourceOrigin::kOperator) {
  return CheckSource(source, policy, origin).message();
}

TEST(SourcePolicy, BeyondLoopbackASourceNeedsCurveOrTheWordInsecure) {
  const std::string key = NewKeys().public_key;
  EXPECT_EQ(Checked(Source("tcp://127.0.0.1:1", "tcp://localhost:2")), "");
  EXPECT_EQ(Checked(Source("ipc:///run/kv.sock")), "");
  for (const auto& [live, replay] :
       {std::pair("tcp://10.0.0.1:1", ""), std::pair("tcp://vllm-0:1", ""),
        std::pair("tcp://127.0.0.1:1", "tcp://10.0.0.1:2"), std::pair("tcp://127.example:1", "")}) {
    WorkerRegistration source = Source(live, replay);
    EXPECT_THAT(Checked(source), HasSubstr("is not loopback; set server_key (CURVE), or insecure"));
    source.insecure = true;
    EXPECT_EQ(Checked(source), "");
    EXPECT_EQ(SecurityOf(source), "insecure");
    source.server_key = key;
    EXPECT_EQ(Checked(source, {.has_keys = true}), "w: server_key and insecure exclude each other");
    source.insecure = false;
    EXPECT_THAT(Checked(source), HasSubstr("the router has no keys"));
    EXPECT_EQ(Checked(source, {.has_keys = true}), "");
    EXPECT_EQ(SecurityOf(source), "curve");
    source.server_key = "short";
    EXPECT_EQ(Checked(source, {.has_keys = true}), "w: server_key: a key has 40 characters, not 5");
  }
  WorkerRegistration bound = Source("tcp://10.0.0.1:1");
  bound.bind = true;
  bound.server_key = key;
  EXPECT_THAT(Checked(bound, {.has_keys = true}), HasSubstr("bind: tcp://10.0.0.1:1 is not loop"));
  EXPECT_EQ(Checked(bound, {.allow_remote = true, .has_keys = true}), "");
  EXPECT_EQ(Checked(Source("http://10.0.0.1:80/kv_cache_events")), "");
  EXPECT_EQ(Checked(Source("push")), "");
}

TEST(SourcePolicy, ALogNeedsARouterThatReadsLogs) {
  EXPECT_EQ(Checked(Source("nats:m/w")), "w: nats:m/w needs --nats");
  EXPECT_EQ(Checked(Source("nats:m/w"), {.reads_logs = true}), "");
}

TEST(SourcePolicy, OverHttpASourceHasTcpEndpoints) {
  for (const char* endpoint :
       {"ipc:///run/kv.sock", "ipc://@abstract", "inproc://events", "norm://127.0.0.1:1",
        "ws://127.0.0.1:1", "tipc://{1,2,3}", "nats:m/w"}) {
    EXPECT_THAT(Checked(Source(endpoint), {}, SourceOrigin::kHttp),
                HasSubstr("must be tcp://HOST:PORT"));
    EXPECT_THAT(Checked(Source("tcp://127.0.0.1:1", endpoint), {}, SourceOrigin::kHttp),
                HasSubstr("must be tcp://HOST:PORT"));
  }
  EXPECT_EQ(Checked(Source("tcp://127.0.0.1:1", "tcp://127.0.0.1:2"), {}, SourceOrigin::kHttp), "");
}

TEST(SourcePolicy, AnOperatorCannotNameAnInprocEndpoint) {
  EXPECT_TRUE(SourceFromFlag("w=ipc:///run/kv.sock").ok());
  EXPECT_EQ(SourceFromFlag("w=inproc://events").status().message(),
            "endpoint: inproc endpoints are not allowed");
  EXPECT_EQ(SourceFromFlag("w=tcp://127.0.0.1:1,inproc://events").status().message(),
            "replay_endpoint: inproc endpoints are not allowed");
}

struct SecureService : ::testing::Test {
  void Start(const RouterOptions& given = {}) {
    RouterOptions options = given;
    options.http.port = 0;
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
  }
  httplib::Result Post(const std::string& path, const nlohmann::json& body) {
    httplib::Client client("127.0.0.1", service->http_port());
    return client.Post(path, body.dump(), "application/json");
  }
  std::string Get(const std::string& path) {
    httplib::Client client("127.0.0.1", service->http_port());
    return client.Get(path)->body;
  }
  static nlohmann::json Registration(const std::string& endpoint) {
    return {{"instance_id", "i"}, {"model_name", "m"}, {"block_size", 16}, {"endpoint", endpoint}};
  }

  const TemporaryFolder folder;
  std::unique_ptr<RouterService> service;
};

// Both routes refuse other transports and impossible endpoints.
TEST_F(SecureService, BadEndpointsAreRefusedOverHttp) {
  Start();
  for (const std::string& endpoint :
       {std::string("inproc://kvcast-monitor-1"), std::string("inproc://zeromq.zap.01"),
        std::string("ipc:///tmp/x"), std::string("norm://127.0.0.1:35556"),
        std::string("ws://127.0.0.1:1"), std::string("tipc://{1,2,3}"),
        std::string("udp://127.0.0.1:1"), std::string("tcp://127.0.0.1:99999"),
        std::string("tcp://127.0.0.1:0"), std::string("tcp://10.0.0.1:1"),
        "tcp://" + std::string(900, 'a') + ":1"}) {
    EXPECT_EQ(Post("/v1/sources", {{"name", "w"}, {"endpoint", endpoint}})->status, 400)
        << endpoint;
    EXPECT_EQ(Post("/register", Registration(endpoint))->status, 400) << endpoint;
  }
  EXPECT_TRUE(service->workers().empty());
  EXPECT_EQ(Post("/register", Registration("tcp://127.0.0.1:1"))->status, 201);
}

TEST_F(SecureService, AnInsecureSourceIsShown) {
  Start();
  nlohmann::json source = Registration("tcp://127.0.0.1:1");
  source["insecure"] = true;
  EXPECT_EQ(Post("/register", source)->status, 201);
  EXPECT_EQ(Post("/v1/sources", {{"name", "w"}, {"endpoint", "tcp://127.0.0.1:1"}})->status, 201);
  const auto workers = nlohmann::json::parse(Get("/v1/state"))["workers"];
  EXPECT_EQ(workers[0]["security"], "insecure");
  EXPECT_EQ(workers[1]["security"], "none");
  const std::string metrics = Get("/metrics");
  EXPECT_THAT(metrics, HasSubstr("kvcast_source_insecure{worker=\"default/m/i/0\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("kvcast_source_insecure{worker=\"w\"} 0"));
  EXPECT_THAT(Get("/v1/sources"), HasSubstr("\"insecure\":true"));
  EXPECT_TRUE(service->workers()[0].insecure);
}

TEST_F(SecureService, FollowsAnEngineWithCurve) {
  const CurveKeyPair router_keys = NewKeys();
  const TestServer server(Line(stream::kAllRoles, router_keys));
  PublisherConfig config = stream::TestPublisherConfig();
  config.curve = server.server();
  const auto publisher = stream::MakePublisher(config);
  RouterOptions options;
  options.curve_key = folder.Write("router.key", router_keys.secret_key + "\n");
  Start(options);
  nlohmann::json source = {{"name", "w"},
                           {"endpoint", publisher->endpoint()},
                           {"replay_endpoint", publisher->replay_endpoint()},
                           {"server_key", server.key()}};
  EXPECT_EQ(Post("/v1/sources", source)->status, 201);
  EventBatch batch;
  batch.events.emplace_back(AllBlocksCleared());
  ASSERT_TRUE(publisher->Publish(std::move(batch)).ok());
  EXPECT_TRUE(Eventually([&] { return service->workers()[0].stream.batches > 0; }));
  const auto worker = nlohmann::json::parse(Get("/v1/state"))["workers"][0];
  EXPECT_EQ(worker["security"], "curve");
}

TEST_F(SecureService, ASourceThatIsRefusedIsCounted) {
  const TestServer server("");
  PublisherConfig config = stream::TestPublisherConfig();
  config.curve = server.server();
  const auto publisher = stream::MakePublisher(config);
  RouterOptions options;
  options.curve_key = folder.Write("router.key", NewKeys().secret_key);
  Start(options);
  EXPECT_EQ(Post("/v1/sources",
                 {{"name", "w"}, {"endpoint", publisher->endpoint()}, {"server_key", server.key()}})
                ->status,
            201);
  EXPECT_TRUE(Eventually([&] { return service->workers()[0].stream.failed_handshakes > 2; }));
  EXPECT_EQ(Get("/metrics").find("kvcast_source_failed_handshakes_total{worker=\"w\"} 0"),
            std::string::npos);
}

TEST_F(SecureService, BadKeysAreUsageErrors) {
  const auto message = [](const RouterOptions& options) {
    const Status status = RouterService::Start(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  RouterOptions options;
  options.curve_clients = folder.Write("clients", "");
  EXPECT_EQ(message(options), "curve_clients: needs curve_key");
  options.curve_key = folder.Write("loose.key", NewKeys().secret_key, 0644);
  EXPECT_THAT(message(options), HasSubstr("users other than the owner"));
  options.curve_key = folder.Write("router.key", NewKeys().secret_key);
  options.curve_clients = folder.Write("clients", "nonsense");
  EXPECT_THAT(message(options), HasSubstr("clients: line 1"));
}

struct SecureRelay : ::testing::Test {
  SecureRelay() {
    RelayConfig config;
    config.endpoint = "tcp://127.0.0.1:0";
    config.curve = server.server();
    relay = Relay::Create(config).value();
  }
  // Posts batches until `condition` holds.
  bool PostUntil(const std::function<bool()>& condition) {
    EventBatch batch;
    batch.events.emplace_back(AllBlocksCleared());
    std::vector<uint8_t> payload;
    EXPECT_TRUE(EncodeBatch(batch, Dialect::kKvcast1, payload).ok());
    return Eventually([&] {
      relay->Post("m", "w", 0, payload);
      return condition();
    });
  }
  stream::Socket Subscribe(const std::optional<CurveClient>& curve) const {
    auto socket = stream::Socket::Create(stream::Context::Create(), ZMQ_SUB).value();
    socket.SetOption(ZMQ_LINGER, 0);
    if (curve) socket.Secure(*curve);
    socket.Subscribe("");
    EXPECT_TRUE(socket.Connect(relay->endpoint()).ok());
    return socket;
  }
  bool Receives(stream::Socket& socket) {
    return socket.Receive(message) == stream::RecvResult::kMessage;
  }

  const CurveKeyPair client = NewKeys();
  const TestServer server{Line("subscribe", client)};
  std::unique_ptr<Relay> relay;
  stream::Multipart message;
};

TEST_F(SecureRelay, AdmitsTheClientsOfTheList) {
  stream::Socket valid = Subscribe(CurveClient{client, server.key()});
  // A peer without a key may close the connection before the relay has read its greeting.
  std::vector<stream::Socket> plain;
  for (int i = 0; i < 20; ++i) plain.push_back(Subscribe(std::nullopt));
  stream::Socket stranger = Subscribe(CurveClient{NewKeys(), server.key()});
  stream::Socket wrong_server = Subscribe(CurveClient{client, NewKeys().public_key});
  EXPECT_TRUE(PostUntil([&] {
    const RefusedConnections refused = relay->counters().refused;
    return refused.no_key + refused.broken > 0 && refused.not_allowed > 0 &&
           refused.wrong_server_key > 0 && Receives(valid);
  }));
  for (stream::Socket* refused : {&stranger, &wrong_server}) EXPECT_FALSE(Receives(*refused));
  for (stream::Socket& each : plain) EXPECT_FALSE(Receives(each));
}

TEST_F(SecureRelay, CutsOffAClientThatWasRevoked) {
  stream::Socket valid = Subscribe(CurveClient{client, server.key()});
  EXPECT_TRUE(PostUntil([&] { return Receives(valid); }));
  server.SetList("");
  EXPECT_TRUE(PostUntil([&] { return relay->counters().refused.not_allowed > 0; }));
  while (Receives(valid)) continue;
  const uint64_t messages = relay->counters().messages;
  EXPECT_TRUE(PostUntil([&] { return relay->counters().messages > messages + 100; }));
  EXPECT_FALSE(Receives(valid));
}

}  // namespace
}  // namespace kvcast::router
