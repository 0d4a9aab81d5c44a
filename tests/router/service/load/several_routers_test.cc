// Several routers in front of the same workers: each counts the requests of the others.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "router/service/router_service.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::stream::Eventually;
using kvcast::stream::Line;
using kvcast::stream::NewKeys;
using kvcast::stream::TemporaryFolder;
using ::testing::HasSubstr;

WorkerRegistration WorkerNamed(const std::string& name) {
  WorkerRegistration source;
  source.endpoint = "tcp://127.0.0.1:1";  // no engine; the worker stays connecting
  source.worker.name = name;
  return source;
}

Query AQuery(const std::string& id, bool book = true) {
  Query query;
  query.tokens.assign(1000, 7);
  query.prompt_tokens = 1000;
  query.request_id = id;
  query.book = book;
  return query;
}

struct SeveralRoutersTest : ::testing::Test {
  std::string EndpointOf(const std::string& name) const { return "ipc://" + folder.File(name); }
  // All routers get the same list of peers. It has each router, also the router itself.
  RouterOptions OptionsOf(const std::string& name, std::vector<std::string> workers) const {
    RouterOptions options;
    options.http.port = 0;
    for (const std::string& worker : workers) options.sources.push_back(WorkerNamed(worker));
    options.load.name = name;
    options.load.endpoint = EndpointOf(name);
    for (const char* peer : {"a", "b", "c"}) {
      options.load.peers.push_back({.endpoint = EndpointOf(peer), .server_key = ""});
    }
    return options;
  }
  static std::unique_ptr<RouterService> Started(const RouterOptions& options) {
    auto started = RouterService::Start(options);
    EXPECT_TRUE(started.ok()) << started.status().ToString();
    return std::move(started).value();
  }
  std::unique_ptr<RouterService> Router(const std::string& name) const {
    return Started(OptionsOf(name, {"w1", "w2"}));
  }
  // A decision that changes nothing.
  static RouteDecision Look(RouterService& router) {
    auto decision = router.Route(AQuery("look", /*book=*/false));
    EXPECT_TRUE(decision.ok()) << decision.status().ToString();
    return std::move(decision).value();
  }
  static WorkerLoad LoadOf(const RouteDecision& decision, const std::string& worker) {
    for (const RouteCandidate& candidate : decision.candidates) {
      if (candidate.answer.name == worker) return candidate.load;
    }
    ADD_FAILURE() << "unknown worker " << worker;
    return {};
  }
  static int64_t PeerRequests(RouterService& router, const std::string& worker) {
    return LoadOf(Look(router), worker).peer_requests;
  }
  static std::string ChosenOf(const RouteDecision& decision) {
    return decision.candidates[decision.chosen].answer.name;
  }

  const TemporaryFolder folder;
};

TEST_F(SeveralRoutersTest, ARequestOfOneRouterCountsInTheOther) {
  const auto a = Router("a");
  const auto b = Started(OptionsOf("b", {"w2", "w1"}));  // with other ids for the workers
  const auto decision = a->Route(AQuery("r"));
  ASSERT_TRUE(decision.ok());
  const std::string loaded = ChosenOf(*decision);
  const std::string idle = loaded == "w1" ? "w2" : "w1";
  ASSERT_TRUE(Eventually([&] { return PeerRequests(*b, loaded) == 1; }));
  const RouteDecision other = Look(*b);
  EXPECT_EQ(ChosenOf(other), idle);
  EXPECT_EQ(LoadOf(other, loaded).peer_prefill_tokens, 1000);
  EXPECT_EQ(LoadOf(other, loaded).active_prefill_tokens, 0)
      << "active_prefill_tokens counts only the router's own requests";
  EXPECT_EQ(LoadOf(other, idle).peer_requests, 0);
  ASSERT_TRUE(other.peers);
  EXPECT_EQ(other.peers->routers, 1u);
  EXPECT_GE(other.peers->age_ms.value_or(-1), 0);
  EXPECT_EQ(PeerRequests(*a, loaded), 0) << "a router ignores its own messages";

  ASSERT_TRUE(a->TakeFeedback({.event = Feedback::Event::kFirstToken, .request_id = "r"}).ok());
  ASSERT_TRUE(Eventually([&] { return LoadOf(Look(*b), loaded).peer_prefill_tokens == 0; }));
  EXPECT_EQ(PeerRequests(*b, loaded), 1) << "the request is in decode";
  ASSERT_TRUE(a->TakeFeedback({.event = Feedback::Event::kFinished, .request_id = "r"}).ok());
  EXPECT_TRUE(Eventually([&] { return PeerRequests(*b, loaded) == 0; }));
}

TEST_F(SeveralRoutersTest, TheLoadsOfAllOtherRoutersAreSummed) {
  const auto a = Started(OptionsOf("a", {"w1"}));
  const auto b = Started(OptionsOf("b", {"w1", "w2"}));
  const auto c = Started(OptionsOf("c", {"w1", "unknown"}));
  ASSERT_TRUE(a->Route(AQuery("1")).ok());
  ASSERT_TRUE(a->Route(AQuery("2")).ok());
  // It is not known whether router c has received the load of router a. So the test counts the
  // choices of router c.
  int64_t at_w1 = 0;
  int64_t at_unknown = 0;
  for (int id = 3; at_w1 == 0 || at_unknown == 0; ++id) {
    ASSERT_LT(id, 20) << "w1 has " << at_w1 << " requests of c";
    const auto decision = c->Route(AQuery(std::to_string(id)));
    ASSERT_TRUE(decision.ok());
    ++(ChosenOf(*decision) == "w1" ? at_w1 : at_unknown);
  }
  ASSERT_TRUE(Eventually([&] {
    const RouteDecision decision = Look(*b);
    return decision.peers && decision.peers->routers == 2 &&
           LoadOf(decision, "w1").peer_requests == 2 + at_w1;
  }));
  EXPECT_EQ(ChosenOf(Look(*b)), "w2");
}

TEST_F(SeveralRoutersTest, ARouterThatEndsIsDropped) {
  auto a = Router("a");
  const auto b = Router("b");
  const std::string loaded = ChosenOf(*a->Route(AQuery("r")));
  ASSERT_TRUE(Eventually([&] { return PeerRequests(*b, loaded) == 1; }));
  a.reset();
  ASSERT_TRUE(Eventually([&] { return PeerRequests(*b, loaded) == 0; }));
  ASSERT_TRUE(Eventually([&] { return Look(*b).peers->routers == 0; }));
  EXPECT_EQ(Look(*b).peers->age_ms, std::nullopt);
}

TEST_F(SeveralRoutersTest, ARouterThatRestartsReplacesItsLoad) {
  auto a = Router("a");
  const auto b = Router("b");
  const std::string loaded = ChosenOf(*a->Route(AQuery("r")));
  ASSERT_TRUE(Eventually([&] { return PeerRequests(*b, loaded) == 1; }));
  a.reset();
  a = Router("a");
  ASSERT_TRUE(Eventually([&] {
    const RouteDecision decision = Look(*b);
    return decision.peers->routers == 1 && LoadOf(decision, loaded).peer_requests == 0;
  }));
  // The restarted router learns the loads of the other routers.
  const std::string other = ChosenOf(*b->Route(AQuery("s")));
  EXPECT_TRUE(Eventually([&] { return PeerRequests(*a, other) == 1; }));
}

TEST_F(SeveralRoutersTest, AWorkerThatIsAddedLaterHasTheLoadOfTheOthers) {
  const auto a = Router("a");
  const auto b = Started(OptionsOf("b", {"w3"}));
  const std::string loaded = ChosenOf(*a->Route(AQuery("r")));
  ASSERT_TRUE(Eventually([&] { return Look(*b).peers->routers == 1; }));
  ASSERT_TRUE(b->Reload(OptionsOf("b", {"w1", "w2", "w3"})).ok());
  EXPECT_TRUE(Eventually([&] { return PeerRequests(*b, loaded) == 1; }));
}

TEST_F(SeveralRoutersTest, TheStateAndTheMetricsShowTheOtherRouters) {
  const auto a = Router("a");
  const auto b = Router("b");
  const std::string loaded = ChosenOf(*a->Route(AQuery("r")));
  ASSERT_TRUE(Eventually([&] { return PeerRequests(*b, loaded) == 1; }));
  httplib::Client client("127.0.0.1", b->http_port());
  const auto state = nlohmann::json::parse(client.Get("/v1/state")->body);
  EXPECT_EQ(state.at("peers").at("router"), "b");
  EXPECT_EQ(state.at("peers").at("routers"), 1);
  EXPECT_TRUE(state.at("peers").at("age_ms").is_number());
  for (const auto& worker : state.at("workers")) {
    EXPECT_EQ(worker.at("load").at("peer_requests"), worker.at("name") == loaded ? 1 : 0);
  }
  const std::string body = nlohmann::json{{"tokens", {1, 2, 3}}}.dump();
  const auto decision =
      nlohmann::json::parse(client.Post("/v1/route", body, "application/json")->body);
  EXPECT_EQ(decision.at("peers").at("routers"), 1);
  const std::string page = client.Get("/metrics")->body;
  EXPECT_THAT(page, HasSubstr("\nkvcast_peer_load_routers 1\n"));
  EXPECT_THAT(page, HasSubstr("\nkvcast_peer_load_rejected_total{reason=\"malformed\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("\nkvcast_peer_load_age_seconds "));
  EXPECT_GT(b->load_counters().sent, 0u);
  EXPECT_GT(b->load_counters().received, 0u);
}

TEST_F(SeveralRoutersTest, ARouterAloneHasNoPeers) {
  RouterOptions options = OptionsOf("a", {"w1"});
  options.load = {};
  const auto alone = Started(options);
  EXPECT_FALSE(Look(*alone).peers);
  EXPECT_EQ(alone->load_endpoint(), "");
  httplib::Client client("127.0.0.1", alone->http_port());
  EXPECT_FALSE(nlohmann::json::parse(client.Get("/v1/state")->body).contains("peers"));
}

std::string Text(const LoadGauge& gauge) {
  const auto bytes = EncodeGauge(gauge);
  return {bytes->begin(), bytes->end()};
}

TEST_F(SeveralRoutersTest, BadMessagesAreCountedAndChangeNothing) {
  zmq::context_t context;
  zmq::socket_t pub(context, zmq::socket_type::pub);
  pub.set(zmq::sockopt::linger, 0);
  pub.bind(EndpointOf("c"));
  const auto b = Router("b");
  LoadGauge gauge{.origin = "c",
                  .epoch = 1,
                  .seq = 0,
                  .period_ms = 1000,
                  .load = {.workers = {{"w1", {.decodes = 9, .decode_context = 9}}}}};
  ASSERT_TRUE(Eventually([&] {  // the first messages may precede the subscription
    ++gauge.seq;
    pub.send(zmq::buffer(Text(gauge)), zmq::send_flags::none);
    return PeerRequests(*b, "w1") == 9;
  }));
  const auto rejected = [&](GaugeReject reason) {
    return b->load_counters().rejected[static_cast<size_t>(reason)];
  };
  const auto send = [&](const std::string& bytes) {
    pub.send(zmq::buffer(bytes), zmq::send_flags::none);
  };
  send("");
  send("\xff\xff");
  pub.send(zmq::buffer(Text(gauge)), zmq::send_flags::sndmore);
  send("second frame");
  ASSERT_TRUE(Eventually([&] { return rejected(GaugeReject::kMalformed) == 3; }));
  send(Text(gauge));
  ASSERT_TRUE(Eventually([&] { return rejected(GaugeReject::kOldGauge) >= 1; }));
  LoadGauge same = gauge;
  same.origin = "b";
  send(Text(same));
  ASSERT_TRUE(Eventually([&] { return rejected(GaugeReject::kSameName) == 1; }));
  EXPECT_EQ(rejected(GaugeReject::kVersion), 0u);
  gauge.seq += 1000;
  gauge.load.workers[0].load.decodes = 4;
  send(Text(gauge));
  EXPECT_TRUE(Eventually([&] { return PeerRequests(*b, "w1") == 4; }));
}

// A router whose load endpoint has CURVE, and routers that subscribe with different keys.
struct SecureLoadTest : SeveralRoutersTest {
  RouterOptions Secure(const std::string& name, const CurveKeyPair& keys) const {
    RouterOptions options = OptionsOf(name, {"w1"});
    options.load.endpoint = "tcp://127.0.0.1:0";
    options.load.peers.clear();
    options.curve_key = folder.Write(name + ".key", keys.secret_key + "\n");
    return options;
  }

  const CurveKeyPair server = NewKeys();
  const CurveKeyPair allowed = NewKeys();
};

TEST_F(SecureLoadTest, OnlyAllowedRoutersGetTheLoad) {
  RouterOptions serving = Secure("a", server);
  serving.curve_clients = folder.Write("clients", Line("subscribe", allowed));
  const auto a = Started(serving);
  const auto following = [&](const std::string& name, const CurveKeyPair& keys,
                             const std::string& server_key) {
    RouterOptions options = Secure(name, keys);
    options.load.endpoint = "";
    options.load.peers = {{.endpoint = a->load_endpoint(), .server_key = server_key}};
    return Started(options);
  };
  const auto stranger = following("b", NewKeys(), server.public_key);
  ASSERT_TRUE(Eventually([&] { return a->load_counters().refused.not_allowed > 0; }));
  const auto wrong = following("c", allowed, NewKeys().public_key);
  ASSERT_TRUE(Eventually([&] { return a->load_counters().refused.wrong_server_key > 0; }));
  const auto plain = following("d", allowed, "");
  ASSERT_TRUE(Eventually([&] {
    const RefusedConnections refused = a->load_counters().refused;
    return refused.no_key + refused.broken > 0;
  }));
  const auto b = following("e", allowed, server.public_key);
  ASSERT_TRUE(Eventually([&] { return Look(*b).peers->routers == 1; }));
  for (const auto* router : {&stranger, &wrong, &plain}) {
    EXPECT_EQ((*router)->load_counters().received, 0u);
    EXPECT_EQ(Look(**router).peers->routers, 0u);
  }
}

TEST_F(SecureLoadTest, OptionsThatAreNotAllowedAreRefusedAtTheStart) {
  const auto refusal = [](const RouterOptions& options) {
    auto started = RouterService::Start(options);
    return started.ok() ? "" : started.status().message();
  };
  RouterOptions options = Secure("a", server);
  options.load.endpoint = "tcp://0.0.0.0:0";
  EXPECT_THAT(refusal(options), HasSubstr("set allow_remote"));
  options.allow_remote = true;
  EXPECT_THAT(refusal(options), HasSubstr("set curve_key and curve_clients (CURVE)"));
  options.curve_clients = folder.Write("clients", Line("subscribe", allowed));
  EXPECT_EQ(refusal(options), "");
  options.load.peers = {{.endpoint = "tcp://10.0.0.1:1", .server_key = ""}};
  EXPECT_THAT(refusal(options), HasSubstr("10.0.0.1:1 is not loopback; set server_key (CURVE)"));
  options.load.peers[0].server_key = server.public_key;
  EXPECT_EQ(refusal(options), "");
  RouterOptions without_key = options;
  without_key.curve_key = without_key.curve_clients = without_key.load.endpoint = "";
  EXPECT_THAT(refusal(without_key), HasSubstr("the router has no keys"));
  options.load.peers.resize(LoadSharingConfig::kMaxPeers + 1, options.load.peers[0]);
  EXPECT_THAT(refusal(options), HasSubstr("load_peers: at most 64"));
  options.load.peers.clear();
  options.load.period_ms = kMaxLoadPeriodMs + 1;
  EXPECT_THAT(refusal(options), HasSubstr("load_period_ms: must be from 10 to 1000"));
  options.load.period_ms = 100;
  options.load.name = std::string(kMaxOriginBytes + 1, 'x');
  EXPECT_THAT(refusal(options), HasSubstr("router_name: at most 128 bytes"));
  options.load.name = "";
  options.load.endpoint = "ipc:///no/such/folder/x";
  EXPECT_THAT(refusal(options), HasSubstr("load endpoint: "));
}

}  // namespace
}  // namespace kvcast::router
