// Tests the service with tokens, with a second address for changes, and with rules for the sources
// that clients register.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "router/service/api/indexer_api.h"
#include "router/service/api/own_api.h"
#include "router/service/api/static_files.h"
#include "router/service/json/json_fields.h"
#include "router/service/router_service.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Registered;

std::vector<HttpRoute> AllRoutes(ServiceCore& core) {
  std::vector<HttpRoute> routes = OwnRoutes(core, {});
  for (const auto& more : {IndexerRoutes(core), StaticRoutes()}) {
    routes.insert(routes.end(), more.begin(), more.end());
  }
  return routes;
}

std::string LineOf(const HttpRoute& route) {
  constexpr std::array kMethods = {"GET", "POST", "DELETE"};
  return std::string(kMethods[static_cast<size_t>(route.method)]) + " " + route.path;
}

struct AccessServiceTest : ::testing::Test {
  void SetUp() override {
    char folder[] = "/tmp/access_service_test_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    service.reset();
    std::filesystem::remove_all(folder_);
  }
  void UseTokens() {
    options.http.token_file = folder_ + "/tokens";
    std::ofstream(options.http.token_file) << "query q\nroute r\nobserve o\nadmin a\n";
    ASSERT_EQ(chmod(options.http.token_file.c_str(), 0600), 0);
  }
  void Start() {
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
  }
  int Ask(const std::string& line, const std::string& token = "", int port = 0,
          const std::string& body = "{}") const {
    httplib::Client client("127.0.0.1", port == 0 ? service->http_port() : port);
    client.set_read_timeout(60);
    httplib::Request request;
    request.method = line.substr(0, line.find(' '));
    request.path = line.substr(line.find(' ') + 1);
    if (!token.empty()) request.set_header("Authorization", "Bearer " + token);
    if (request.method == "POST") request.body = body;
    const auto reply = client.send(request);
    return reply ? reply->status : 0;
  }
  int Register(const std::string& name, const std::string& endpoint, const Json& more = {}) const {
    Json body = {{"name", name}, {"endpoint", endpoint}};
    if (more.is_object()) body.update(more);
    return Ask("POST /v1/sources", "", 0, body.dump());
  }

  std::string folder_;
  RouterOptions options;
  std::unique_ptr<RouterService> service;
};

// Each route is in exactly one of these lists.
const std::map<std::string, std::set<std::string>> kLinesOfRole = {
    {"",
     {"GET /", "GET /dashboard.css", "GET /dashboard.js", "GET /dashboard/chart.js", "GET /health",
      "GET /healthz", "GET /openapi.json", "GET /readyz"}},
    {"q", {"POST /query", "POST /query_by_hash", "POST /v1/query"}},
    {"r", {"POST /v1/feedback", "POST /v1/load_rates", "POST /v1/route"}},
    {"o",
     {"GET /metrics", "GET /v1/decisions", "GET /v1/events", "GET /v1/history", "GET /v1/sources",
      "GET /v1/state", "GET /workers"}},
    {"a",
     {"DELETE /v1/sources", "GET /dump", "POST /register", "POST /unregister", "POST /v1/events",
      "POST /v1/sources"}}};

TEST_F(AccessServiceTest, EachRouteNeedsItsRole) {
  UseTokens();
  Start();
  ServiceCore core;
  std::set<std::string> lines;
  for (const HttpRoute& route : AllRoutes(core)) lines.insert(LineOf(route));
  std::set<std::string> listed;
  const auto refused = [](int status) { return status == 401 || status == 403; };
  for (const auto& [role, of_role] : kLinesOfRole) {
    for (const std::string& line : of_role) {
      listed.insert(line);
      EXPECT_EQ(Ask(line) == 401, !role.empty()) << line;
      for (const std::string token : {"q", "r", "o", "a"}) {
        const bool allowed =
            role.empty() || token == role || token == "a" || (token == "r" && role == "q");
        EXPECT_EQ(refused(Ask(line, token)), !allowed) << line << " with " << token;
      }
    }
  }
  EXPECT_EQ(listed, lines);
}

TEST_F(AccessServiceTest, ChangesAndDumpsAreAnsweredAtTheAdminAddressAlone) {
  options.admin_http.emplace();
  Start();
  ASSERT_NE(service->admin_port(), 0);
  ASSERT_NE(service->admin_port(), service->http_port());
  for (const auto& [role, lines] : kLinesOfRole) {
    for (const std::string& line : lines) {
      const int public_status = Ask(line);
      EXPECT_EQ(public_status == 404 || public_status == 405, role == "a")
          << line << " " << public_status;
      const int admin_status = Ask(line, "", service->admin_port());
      EXPECT_TRUE(admin_status == 200 || admin_status == 400 || admin_status == 503)
          << line << " " << admin_status;
    }
  }
  const std::string source = R"({"name": "w", "endpoint": "tcp://127.0.0.1:9"})";
  EXPECT_EQ(Ask("POST /v1/sources", "", service->admin_port(), source), 201);
  EXPECT_EQ(service->workers().size(), 1u);
}

TEST_F(AccessServiceTest, TheAdminAddressNeedsTokensToo) {
  UseTokens();
  options.admin_http.emplace();
  Start();
  EXPECT_EQ(Ask("GET /dump", "", service->admin_port()), 401);
  EXPECT_EQ(Ask("GET /dump", "o", service->admin_port()), 403);
  EXPECT_EQ(Ask("GET /dump", "a", service->admin_port()), 200);
}

TEST_F(AccessServiceTest, TheAdminAddressIsOnLoopbackOrASocket) {
  options.admin_http.emplace().address = "0.0.0.0";
  EXPECT_EQ(RouterService::Start(options).status().message(),
            "admin_listen: 0.0.0.0 is not loopback; set allow_remote (--allow-remote) to listen "
            "there");
  options.admin_http->unix_path = folder_ + "/socket";
  Start();
  EXPECT_TRUE(std::filesystem::is_socket(options.admin_http->unix_path));
  EXPECT_EQ(Ask("POST /register"), 404);
}

// Other transports of libzmq would open files and UDP sockets, or reach the sockets of this
// process.
TEST_F(AccessServiceTest, ClientsRegisterTcpSourcesOnly) {
  Start();
  for (const std::string endpoint : {"inproc://kvcast-monitor-1",
                                     "ipc:///tmp/x",
                                     "ipc://@x",
                                     "norm://127.0.0.1:35556",
                                     "pgm://eth0;239.192.1.1:5555",
                                     "ws://127.0.0.1:80",
                                     "tipc://{1,2,3}",
                                     "udp://127.0.0.1:9",
                                     "tcp://127.0.0.1:1;10.0.0.1:80",
                                     "tcp://a/b:80",
                                     "tcp://a@b:80",
                                     "tcp://:80",
                                     "tcp://",
                                     "127.0.0.1:80",
                                     "TCP://127.0.0.1:80",
                                     "tcp://127.0.0.1",
                                     "tcp://127.0.0.1:0",
                                     "tcp://127.0.0.1:99999",
                                     "tcp://127.0.0.1:-1",
                                     "tcp://127.0.0.1:80x"}) {
    EXPECT_EQ(Register("w", endpoint), 400) << endpoint;
    EXPECT_EQ(Register("w", "tcp://127.0.0.1:9", {{"replay_endpoint", endpoint}}), 400) << endpoint;
    const Json registration = {
        {"instance_id", "i"}, {"model_name", "m"}, {"block_size", 16}, {"endpoint", endpoint}};
    EXPECT_EQ(Ask("POST /register", "", 0, registration.dump()), 400) << endpoint;
  }
  EXPECT_EQ(Register("w", "tcp://" + std::string(300, 'a') + ":80"), 400);
  EXPECT_EQ(service->workers().size(), 0u);
  EXPECT_EQ(Register("w", "tcp://127.0.0.1:9", {{"replay_endpoint", "tcp://[::1]:9"}}), 201);
}

TEST_F(AccessServiceTest, ClientsRegisterSourcesOfTheNetworksOnly) {
  options.source_networks = {*IpNetwork::Parse("127.0.0.0/8"), *IpNetwork::Parse("::1")};
  Start();
  for (const std::string endpoint :
       {"tcp://10.0.0.1:9", "tcp://[2001:db8::1]:9", "tcp://localhost:9", "tcp://0x7f000001:9",
        "tcp://127.1:9", "tcp://[::ffff:10.0.0.1]:9"}) {
    EXPECT_EQ(Register("w", endpoint), 400) << endpoint;
    EXPECT_EQ(Register("w", "tcp://127.0.0.1:9", {{"replay_endpoint", endpoint}}), 400) << endpoint;
  }
  const Json trtllm = {{"format", "trtllm"}, {"window_sizes", {64}}, {"tokens_per_block", 16}};
  EXPECT_EQ(Register("w", "http://10.0.0.1/kv_cache_events", trtllm), 400);
  EXPECT_EQ(Register("w", "http://localhost/kv_cache_events", trtllm), 400);
  Json bound = trtllm;
  bound["bind"] = true;  // the router polls the URL in any case
  EXPECT_EQ(Register("w", "http://10.0.0.1/kv_cache_events", bound), 400);
  EXPECT_EQ(Register("push", "push", trtllm), 201);
  EXPECT_EQ(Register("v4", "tcp://127.0.0.2:9"), 201);
  EXPECT_EQ(Register("v6", "tcp://[::1]:9"), 201);
}

TEST_F(AccessServiceTest, WorkersAreBounded) {
  options.source_limits = {.workers = 5, .client_workers = 3};
  for (const char* name : {"a", "b"}) {
    WorkerRegistration& source = options.sources.emplace_back();
    source.worker = Registered({});
    source.worker.name = name;
    source.endpoint = "tcp://127.0.0.1:9";
  }
  Start();
  EXPECT_EQ(Register("c", "tcp://127.0.0.1:9"), 201);
  EXPECT_EQ(Register("d", "tcp://127.0.0.1:9", {{"data_parallel_size", 3}}), 503);
  EXPECT_EQ(Register("d", "tcp://127.0.0.1:9", {{"data_parallel_size", 2}}), 201);
  EXPECT_EQ(Register("e", "tcp://127.0.0.1:9"), 503);
  EXPECT_EQ(Ask("DELETE /v1/sources?name=a"), 200);
  EXPECT_EQ(Register("e", "tcp://127.0.0.1:9"), 503) << "clients have their own bound";
  EXPECT_EQ(Ask("DELETE /v1/sources?name=c"), 200);
  EXPECT_EQ(Register("e", "tcp://127.0.0.1:9"), 201);
  options.source_limits.workers = 1;
  const Status status = RouterService::Start(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "max_sources: at most 1 workers are followed");
}

TEST_F(AccessServiceTest, DifferentSelectionsAreDifferentWorkers) {
  Start();
  const auto add = [this](const char* group, const char* model, const char* instance) {
    const Json body = {{"instance_id", instance},
                       {"model_name", model},
                       {"routing_group", group},
                       {"block_size", 16},
                       {"endpoint", "tcp://127.0.0.1:9"}};
    return Ask("POST /register", "", 0, body.dump());
  };
  EXPECT_EQ(add("a/b", "c", "i"), 201);
  EXPECT_EQ(add("a", "b/c", "i"), 201);
  EXPECT_EQ(add("a", "b", "c/i"), 201);
  EXPECT_EQ(add("a%2Fb", "c", "i"), 201);
  EXPECT_EQ(add("a", "b/c", "i"), 409);
  EXPECT_EQ(service->workers()[1].name, "a/b/c/i/0") << "slashes of a model stay";
}

TEST_F(AccessServiceTest, MetricsCountRequestsOfBothAddresses) {
  UseTokens();
  options.admin_http.emplace();
  Start();
  Ask("GET /healthz");
  Ask("GET /healthz", "", service->admin_port());
  Ask("GET /dump", "", service->admin_port());
  Ask("GET /no/such/path");
  httplib::Client client("127.0.0.1", service->http_port());
  const auto page = client.Get("/metrics", {{"Authorization", "Bearer o"}});
  ASSERT_TRUE(page);
  for (const char* line : {"kvcast_http_requests_total{route=\"/healthz\",code=\"200\"} 2\n",
                           "kvcast_http_requests_total{route=\"/dump\",code=\"401\"} 1\n",
                           "kvcast_http_requests_total{route=\"other\",code=\"404\"} 1\n"}) {
    EXPECT_NE(page->body.find(line), std::string::npos) << line;
  }
}

TEST_F(AccessServiceTest, ADecisionNamesItsTrace) {
  WorkerRegistration& source = options.sources.emplace_back();
  source.worker = Registered({});
  source.worker.name = "w";
  source.endpoint = "tcp://127.0.0.1:9";
  Start();
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  httplib::Client client("127.0.0.1", service->http_port());
  client.set_read_timeout(60);
  const auto routed =
      client.Post("/v1/route", {{"traceparent", trace}}, R"({"tokens": [1]})", "application/json");
  ASSERT_TRUE(routed && routed->status == 200);
  EXPECT_EQ(Json::parse(routed->body).value("traceparent", ""), trace);
  EXPECT_EQ(routed->get_header_value("traceparent"), trace);
  const auto plain = client.Post("/v1/route", R"({"tokens": [1]})", "application/json");
  EXPECT_FALSE(Json::parse(plain->body).contains("traceparent"));
  const Json seen = Json::parse(client.Get("/v1/decisions")->body).at("decisions");
  EXPECT_EQ(seen[0].value("traceparent", ""), trace);
}

}  // namespace
}  // namespace kvcast::router
