// Clients without the right token, name or address are refused before their request has an effect.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "src/http/host_rules.h"
#include "src/http/http_server.h"
#include "src/http/loopback.h"
#include "tests/http/patient_options.h"
#include "tests/http/raw_http.h"

namespace kvcast {
namespace {

using kvcast::testing::PatientOptions;
using kvcast::testing::RawHttp;

class HttpAccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/http_access_test_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    server.reset();
    std::remove((folder_ + "/tokens").c_str());
    std::remove((folder_ + "/socket").c_str());
    std::remove(folder_.c_str());
  }
  void UseTokens(const std::string& text) {
    options.token_file = folder_ + "/tokens";
    std::ofstream(options.token_file) << text;
    ASSERT_EQ(chmod(options.token_file.c_str(), 0600), 0);
  }
  Status Start() {
    const auto answer = [this](const HttpRequest&) {
      ++handled;
      return HttpReply{.body = "done"};
    };
    const auto route = [&](HttpRoute::Method method, const char* path,
                           std::optional<AccessRole> access) {
      return HttpRoute{method, path, answer, HttpRoute::Lane::kQuery, size_t{16} << 20, access};
    };
    using Method = HttpRoute::Method;
    auto started =
        HttpServer::Start(options, {route(Method::kGet, "/open", std::nullopt),
                                    route(Method::kPost, "/query", AccessRole::kQuery),
                                    route(Method::kPost, "/route", AccessRole::kRoute),
                                    route(Method::kGet, "/seen", AccessRole::kObserve),
                                    route(Method::kPost, "/change", AccessRole::kAdmin)});
    if (started.ok()) server = std::move(started).value();
    return started.status();
  }
  std::string Send(const std::string& bytes) {
    RawHttp client(server->port());
    client.Send(bytes);
    return client.ReadToEnd();
  }
  static std::string Request(const std::string& line, const std::string& headers = "") {
    return line + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + "\r\n";
  }
  static int StatusOf(const std::string& reply) {
    return reply.size() < 12 ? 0 : std::stoi(reply.substr(9, 3));
  }
  int Ask(const std::string& line, const std::string& token) {
    return StatusOf(Send(Request(line, "Authorization: Bearer " + token + "\r\n")));
  }

  std::string folder_;
  HttpOptions options = PatientOptions();
  std::atomic<int> handled{0};
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpAccessTest, ATokenAllowsWhatItsRoleIncludes) {
  UseTokens("query q\nroute r\nobserve o\nadmin a\n");
  ASSERT_TRUE(Start().ok());
  const std::string lines[] = {"GET /open", "POST /query", "POST /route", "GET /seen",
                               "POST /change"};
  const auto statuses = [&](const std::string& token) {
    std::string text;
    for (const std::string& line : lines) text += std::to_string(Ask(line, token)) + " ";
    return text;
  };
  EXPECT_EQ(statuses("q"), "200 200 403 403 403 ");
  EXPECT_EQ(statuses("r"), "200 200 200 403 403 ");
  EXPECT_EQ(statuses("o"), "200 403 403 200 403 ");
  EXPECT_EQ(statuses("a"), "200 200 200 200 200 ");
  EXPECT_EQ(statuses("x"), "200 401 401 401 401 ");
  EXPECT_EQ(handled, 2 + 3 + 2 + 5 + 1);
  const std::string refused = Send(Request("POST /change"));
  EXPECT_EQ(StatusOf(refused), 401);
  EXPECT_NE(refused.find("\r\nWWW-Authenticate: Bearer\r\n"), std::string::npos) << refused;
  EXPECT_EQ(StatusOf(Send(Request("GET /none"))), 404);
  EXPECT_EQ(StatusOf(Send(Request("GET /change"))), 405);
  EXPECT_EQ(StatusOf(Send(Request("HEAD /seen"))), 401);
}

TEST_F(HttpAccessTest, WithoutATokenFileNoTokenIsNeeded) {
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(StatusOf(Send(Request("POST /change"))), 200);
}

// The server answers although the body never arrives.
TEST_F(HttpAccessTest, ARefusalDoesNotWaitForTheBody) {
  UseTokens("query q\n");
  ASSERT_TRUE(Start().ok());
  for (const std::string length : {"100", "16777216"}) {
    RawHttp client(server->port());
    client.Send(Request("POST /query", "Content-Length: " + length + "\r\n"));
    EXPECT_EQ(StatusOf(client.ReadUpTo("\r\n\r\n")), 401) << length;
  }
  RawHttp client(server->port());
  client.Send(Request("POST /query", "Content-Length: 100\r\nExpect: 100-continue\r\n"));
  EXPECT_EQ(StatusOf(client.ReadUpTo("\r\n\r\n")), 401)
      << "the refusal must come instead of 100 Continue";
  EXPECT_EQ(handled, 0);
}

TEST_F(HttpAccessTest, ATokenFileThatCannotBeUsedIsAnError) {
  options.token_file = folder_ + "/none";
  const Status status = Start();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "http: token file " + options.token_file + ": No such file or directory");
}

TEST_F(HttpAccessTest, AllowedHostsAreAnsweredUnderTheirNames) {
  options.allowed_hosts = {"Router.example"};
  ASSERT_TRUE(Start().ok());
  const auto status = [&](const std::string& host, const std::string& more = "") {
    return StatusOf(Send("POST /change HTTP/1.1\r\nConnection: close\r\nHost: " + host + "\r\n" +
                         more + "\r\n"));
  };
  EXPECT_EQ(status("localhost"), 200);
  EXPECT_EQ(status("router.EXAMPLE:8080"), 200);
  EXPECT_EQ(status("router.example:8080", "Origin: http://router.example:8080\r\n"), 200);
  EXPECT_EQ(status("evil.example"), 403);
  EXPECT_EQ(status("router.example.evil.example"), 403);
  EXPECT_EQ(handled, 3);
}

TEST(Loopback, IncompleteIpv4AddressesAreNotLoopback) {
  for (const char* host : {"127.0.0.1", "127.255.0.9", "localhost", "::1", "[::1]"}) {
    EXPECT_TRUE(IsLoopbackAddress(host)) << host;
  }
  // A resolver may resolve a name of digits and dots to any address.
  for (const char* host :
       {"127.1", "127.", "127.0.0.1.", "127.1.2.3.4", "127.0.0.256", "127..0.1"}) {
    EXPECT_FALSE(IsLoopbackAddress(host)) << host;
    EXPECT_FALSE(IsLoopbackEndpoint("tcp://" + std::string(host) + ":5557")) << host;
    EXPECT_NE(HostRules(true, {}).WhyRefused(host, "", false), nullptr) << host;
  }
}

TEST(HostRules, ABrowserCannotChangeDataUnderAForeignName) {
  const HostRules any(/*local_only=*/false, {});
  EXPECT_EQ(any.WhyRefused("router:8080", "", true), nullptr) << "not a browser";
  EXPECT_EQ(any.WhyRefused("evil.example", "", false), nullptr) << "no names are configured";
  EXPECT_NE(any.WhyRefused("evil.example:80", "http://evil.example:80", true), nullptr);
  EXPECT_EQ(any.WhyRefused("10.0.0.5:80", "http://10.0.0.5:80", true), nullptr);
  EXPECT_EQ(any.WhyRefused("[2001:db8::1]:80", "http://[2001:db8::1]:80", true), nullptr);
  const HostRules named(/*local_only=*/false, {"router"});
  EXPECT_EQ(named.WhyRefused("router:8080", "http://router:8080", true), nullptr);
  EXPECT_EQ(named.WhyRefused("10.0.0.5:80", "", false), nullptr) << "an address is not rebound";
  EXPECT_NE(named.WhyRefused("evil.example", "", false), nullptr);
  EXPECT_NE(named.WhyRefused("127.1.evil.example", "", false), nullptr);
  const HostRules local(/*local_only=*/true, {});
  EXPECT_NE(local.WhyRefused("10.0.0.5:80", "", false), nullptr);
  EXPECT_EQ(local.WhyRefused("localhost:80", "", false), nullptr);
  EXPECT_EQ(local.WhyRefused("", "", true), nullptr) << "HTTP/1.0";
}

class UnixClient {
 public:
  explicit UnixClient(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~UnixClient() { close(fd_); }
  bool connected() const { return connected_; }
  std::string Ask(const std::string& request) {
    if (write(fd_, request.data(), request.size()) < 0) return "";
    std::string reply;
    char buffer[4096];
    for (ssize_t got = 0; (got = read(fd_, buffer, sizeof(buffer))) > 0;) {
      reply.append(buffer, static_cast<size_t>(got));
    }
    return reply;
  }

 private:
  int fd_;
  bool connected_ = false;
};

TEST_F(HttpAccessTest, AUnixSocketIsForItsOwnerAlone) {
  options.unix_path = folder_ + "/socket";
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(server->port(), 0);
  struct stat info = {};
  ASSERT_EQ(stat(options.unix_path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, mode_t{0600});
  EXPECT_EQ(StatusOf(UnixClient(options.unix_path).Ask(Request("POST /change"))), 200);
  const HttpOptions same = options;
  const Status taken = HttpServer::Start(same, {}).status();
  EXPECT_EQ(taken.code(), StatusCode::kUnavailable);
  EXPECT_NE(taken.message().find("the socket is in use"), std::string::npos) << taken.message();
  EXPECT_EQ(StatusOf(UnixClient(options.unix_path).Ask(Request("POST /change"))), 200);
  server->Stop();
  EXPECT_NE(stat(options.unix_path.c_str(), &info), 0) << "Stop must remove the socket";
}

TEST_F(HttpAccessTest, AnAbandonedUnixSocketIsReplaced) {
  options.unix_path = folder_ + "/socket";
  {
    const int old = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    options.unix_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(bind(old, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    close(old);
  }
  ASSERT_TRUE(Start().ok());
  EXPECT_TRUE(UnixClient(options.unix_path).connected());
  server->Stop();
  std::ofstream(options.unix_path) << "a file";
  EXPECT_EQ(Start().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(std::ifstream(options.unix_path).good()) << "the file must stay";
  options.unix_path = std::string(200, 'x');
  EXPECT_EQ(Start().code(), StatusCode::kInvalidArgument);
}

TEST_F(HttpAccessTest, AServerThatStopsKeepsTheUnixSocketOfItsSuccessor) {
  options.unix_path = folder_ + "/socket";
  std::latch began(1);
  std::latch release(1);
  const auto slow = [&](const HttpRequest&) {
    began.count_down();
    release.wait();
    return HttpReply{.body = "done"};
  };
  auto old = HttpServer::Start(options, {{HttpRoute::Method::kGet, "/slow", slow}});
  ASSERT_TRUE(old.ok()) << old.status().ToString();
  std::string reply;
  std::thread asking([&] { reply = UnixClient(options.unix_path).Ask(Request("GET /slow")); });
  began.wait();
  std::thread stopping([&] { (*old)->Stop(); });
  while (UnixClient(options.unix_path).connected()) std::this_thread::yield();
  const Status started = Start();
  release.count_down();
  asking.join();
  stopping.join();
  ASSERT_TRUE(started.ok()) << started.ToString();
  EXPECT_EQ(StatusOf(reply), 200);
  EXPECT_EQ(StatusOf(UnixClient(options.unix_path).Ask(Request("GET /open"))), 200);
}

TEST_F(HttpAccessTest, RequestsAreCountedByRouteAndStatus) {
  UseTokens("query q\n");
  ASSERT_TRUE(Start().ok());
  Ask("POST /query", "q");
  Ask("POST /query", "q");
  Ask("POST /query", "x");
  Ask("GET /query", "q");
  Ask("GET /nowhere", "q");
  Ask("GET /nowhere/else", "q");
  Send("nonsense\r\n\r\n");
  const HttpRequestCounts expected = {{"/query", {{200, 2}, {401, 1}, {405, 1}}},
                                      {"other", {{400, 1}, {404, 2}}}};
  EXPECT_EQ(server->request_counts(), expected);
}

TEST_F(HttpAccessTest, TheTraceOfARequestIsInItsReply) {
  ASSERT_TRUE(Start().ok());
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const auto reply = [&](const std::string& value) {
    return Send(Request("GET /open", "traceparent: " + value + "\r\n"));
  };
  EXPECT_NE(reply(trace).find("\r\ntraceparent: " + trace + "\r\n"), std::string::npos);
  for (const std::string& other :
       {std::string(), std::string("00"), trace + "0",
        std::string("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        trace + "\r\ntraceparent: " + trace}) {
    const std::string answered = reply(other);
    EXPECT_EQ(StatusOf(answered), 200);
    EXPECT_EQ(answered.find("traceparent"), std::string::npos) << other;
  }
}

}  // namespace
}  // namespace kvcast
