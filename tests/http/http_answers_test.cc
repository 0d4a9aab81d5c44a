// HttpOptions::on_answer gets the status, the peer, the request and the trace of each answer, and
// the reason of a refusal.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/http/http_server.h"
#include "tests/http/patient_options.h"
#include "tests/http/raw_http.h"
#include "tests/support/curve_test_util.h"

namespace kvcast {
namespace {

using kvcast::testing::PatientOptions;
using kvcast::testing::RawHttp;

constexpr char kTrace[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

struct HttpAnswersTest : ::testing::Test {
  HttpAnswersTest() {
    options.token_file = folder.Write("tokens", "observe watcher\nadmin owner\n");
    options.on_answer = [this](const HttpAnswer& answer) {
      const MutexLock lock(mutex);
      std::string line = std::to_string(answer.status);
      for (const std::string_view part :
           {answer.peer, answer.method, answer.route, answer.refused_for, answer.traceparent}) {
        line += "|" + std::string(part);
      }
      answers.push_back(std::move(line));
    };
    const auto echo = [](const HttpRequest& request) {
      const std::string role(request.role ? AccessRoleName(*request.role) : "none");
      return HttpReply{.body = request.peer + " " + role};
    };
    const auto fail = [](const HttpRequest&) -> HttpReply { throw std::bad_alloc(); };
    using Method = HttpRoute::Method;
    server =
        HttpServer::Start(
            options,
            {{Method::kGet, "/open", echo, HttpRoute::Lane::kQuery, 100, std::nullopt},
             {Method::kGet, "/seen", echo, HttpRoute::Lane::kQuery, 100, AccessRole::kObserve},
             {Method::kPost, "/change", echo, HttpRoute::Lane::kQuery, 100, AccessRole::kAdmin},
             {Method::kGet, "/fails", fail, HttpRoute::Lane::kQuery, 100, std::nullopt}})
            .value();
  }
  std::string Ask(const std::string& line, const std::string& headers,
                  const std::string& host = "localhost") const {
    RawHttp client(server->port());
    client.Send(line + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" + headers +
                "\r\n");
    return client.ReadToEnd();
  }
  std::vector<std::string> TakeAnswers() {
    const MutexLock lock(mutex);
    return std::exchange(answers, {});
  }
  using Lines = std::vector<std::string>;

  stream::TemporaryFolder folder;
  HttpOptions options = PatientOptions();
  Mutex mutex;
  std::vector<std::string> answers KV_GUARDED_BY(mutex);
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpAnswersTest, ARefusalHasItsReason) {
  const std::string trace = std::string("traceparent: ") + kTrace + "\r\n";
  Ask("GET /seen", "Authorization: Bearer guess\r\n" + trace);
  EXPECT_EQ(TakeAnswers(), (Lines{"401|127.0.0.1|GET|/seen|authorization: a valid bearer token is "
                                  "needed|" +
                                  std::string(kTrace)}));
  Ask("POST /change", "Authorization: Bearer watcher\r\n");
  EXPECT_EQ(TakeAnswers(),
            (Lines{"403|127.0.0.1|POST|/change|authorization: the role of the token does "
                   "not allow this request|"}));
  Ask("GET /open", "", "evil.example");
  const Lines rebound = TakeAnswers();
  ASSERT_EQ(rebound.size(), 1u);
  EXPECT_TRUE(rebound[0].starts_with("403|127.0.0.1|GET|/open|host: ")) << rebound[0];
}

TEST_F(HttpAnswersTest, OtherAnswersHaveTheirStatusAndTrace) {
  const std::string trace = std::string("traceparent: ") + kTrace + "\r\n";
  Ask("GET /open", trace);
  Ask("GET /fails", trace);
  Ask("GET /none", "");
  EXPECT_EQ(TakeAnswers(),
            (Lines{std::string("200|127.0.0.1||/open||") + kTrace,
                   std::string("500|127.0.0.1||/fails||") + kTrace, "404|127.0.0.1||||"}));
}

TEST_F(HttpAnswersTest, AHandlerSeesThePeerAndTheRole) {
  EXPECT_NE(Ask("GET /open", "").find("127.0.0.1 none"), std::string::npos);
  EXPECT_NE(Ask("GET /seen", "Authorization: Bearer owner\r\n").find("127.0.0.1 admin"),
            std::string::npos);
  EXPECT_NE(Ask("GET /open", "Authorization: Bearer owner\r\n").find("127.0.0.1 none"),
            std::string::npos);
}

// A request does not inherit the role of the previous request on the same connection.
TEST_F(HttpAnswersTest, ARoleCountsForOneRequest) {
  RawHttp client(server->port());
  const std::string head = " HTTP/1.1\r\nHost: localhost\r\n";
  client.Send("GET /seen" + head + "Authorization: Bearer owner\r\n\r\n");
  EXPECT_NE(client.ReadUpTo("admin").find("127.0.0.1 admin"), std::string::npos);
  client.Send("GET /open" + head + "Connection: close\r\n\r\n");
  EXPECT_NE(client.ReadToEnd().find("127.0.0.1 none"), std::string::npos);
}

}  // namespace
}  // namespace kvcast
