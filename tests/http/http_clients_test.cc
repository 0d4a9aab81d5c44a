// Clients are served in turns, a client with many connections makes room itself, and the requests
// of clients that have left are dropped.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/clock.h"
#include "src/http/http_server.h"
#include "tests/http/patient_options.h"
#include "tests/http/raw_http.h"

namespace kvcast {
namespace {

using kvcast::testing::PatientOptions;
using kvcast::testing::RawHttp;

constexpr char kOne[] = "127.0.0.1";
constexpr char kOther[] = "127.0.0.2";

class HttpClientsTest : public ::testing::Test {
 protected:
  static HttpOptions WithThreads(int threads) {
    HttpOptions options = PatientOptions();
    options.threads = threads;
    return options;
  }
  // The handlers of /wait run until `release` is true. The handlers of other paths note the path.
  void Start(const HttpOptions& options) {
    using Method = HttpRoute::Method;
    const auto wait = [this](const HttpRequest&) {
      began = true;
      while (!release) std::this_thread::yield();
      return HttpReply{.body = "done"};
    };
    const auto work = [this](const HttpRequest& request) {
      order += request.path.back();
      return HttpReply{.body = "done"};
    };
    const auto healthz = [](const HttpRequest&) { return HttpReply{.body = "done"}; };
    HttpRoute query{.method = Method::kPost, .path = "/q", .handler = work};
    query.needs_client = true;
    server =
        HttpServer::Start(options, {{Method::kGet, "/wait", wait},
                                    {Method::kGet, "/a", work},
                                    {Method::kGet, "/b", work},
                                    {Method::kPost, "/c", work},
                                    query,
                                    {Method::kGet, "/healthz", healthz, HttpRoute::Lane::kHealth}})
            .value();
  }
  static void Request(RawHttp& client, const std::string& path, const char* method = "GET") {
    EXPECT_TRUE(client.Send(std::string(method) + " " + path +
                            " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
  }
  RawHttp Get(const char* from, const std::string& path, const char* method = "GET") const {
    RawHttp client(server->port(), from);
    Request(client, path, method);
    return client;
  }
  static void ExpectDone(RawHttp& client) {
    EXPECT_TRUE(client.ReadUpTo("done").ends_with("done"));
  }
  // Connections of one client, each after its first reply.
  std::vector<RawHttp> OpenMany(int count) const {
    std::vector<RawHttp> many;
    for (int i = 0; i < count; ++i) {
      many.push_back(Get(kOne, "/b"));
      ExpectDone(many.back());
    }
    return many;
  }
  // Returns when a handler of /wait runs.
  RawHttp Wait(const char* from) {
    began = false;
    RawHttp client = Get(from, "/wait");
    while (!began) std::this_thread::yield();
    return client;
  }
  // Returns when the server has read all requests that were sent `from` this address before.
  void AwaitRead(const char* from) const {
    RawHttp client = Get(from, "/healthz");
    ExpectDone(client);
  }

  // Waits until the server has this number of connections. Returns false after 30 s.
  bool HasConnections(uint64_t count) const {
    const int64_t deadline_ms = SteadyMs() + 30'000;
    while (server->counters().connections != count) {
      if (SteadyMs() > deadline_ms) return false;
      std::this_thread::yield();
    }
    return true;
  }

  std::atomic<bool> began{false};
  std::atomic<bool> release{false};
  std::string order;  // the last letters of the paths whose handlers have run
  std::unique_ptr<HttpServer> server;
};

// Waiting handlers of one client do not delay a handler of another client.
TEST_F(HttpClientsTest, TakeTurns) {
  Start(WithThreads(1));
  std::vector<RawHttp> clients;
  clients.push_back(Wait(kOther));
  for (int i = 0; i < 8; ++i) clients.push_back(Get(kOther, "/a"));
  AwaitRead(kOther);
  clients.push_back(Get(kOne, "/b"));
  AwaitRead(kOne);
  release = true;
  for (RawHttp& client : clients) ExpectDone(client);
  EXPECT_EQ(order, "abaaaaaaa");
}

// The connection of the other client is quiet for the longest time, but the other client has only
// this connection.
TEST_F(HttpClientsTest, AClientWithManyConnectionsMakesRoomItself) {
  HttpOptions options = WithThreads(1);
  options.max_connections = 4;
  Start(options);
  for (int i = 0; i < 4; ++i) {  // closed connections do not count
    RawHttp closed = Get(kOther, "/a");
    ExpectDone(closed);
  }
  EXPECT_TRUE(HasConnections(0));
  RawHttp only = Get(kOther, "/a");
  ExpectDone(only);
  std::vector<RawHttp> many = OpenMany(4);
  EXPECT_EQ(many.front().ReadToEnd(), "");
  Request(only, "/a");
  ExpectDone(only);
  EXPECT_EQ(server->counters().evicted, 1u);
}

// Handlers run for all connections of the client with many connections, so it gets no further
// connection.
TEST_F(HttpClientsTest, AClientWhoseHandlersAllRunGetsNoRoomFromOthers) {
  HttpOptions options = WithThreads(2);
  options.max_connections = 3;
  Start(options);
  RawHttp only = Get(kOther, "/healthz");
  ExpectDone(only);
  RawHttp first = Wait(kOne);
  RawHttp second = Wait(kOne);
  RawHttp refused(server->port(), kOne);
  EXPECT_EQ(refused.ReadToEnd(), "");
  Request(only, "/healthz");
  ExpectDone(only);
  release = true;
  ExpectDone(first);
  ExpectDone(second);
}

// A client that fills the server with requests leaves room for other clients.
TEST_F(HttpClientsTest, AClientCannotTakeAllConnections) {
  HttpOptions options = WithThreads(2);
  options.max_connections = 16;
  Start(options);
  RawHttp only = Get(kOther, "/a");
  ExpectDone(only);
  std::vector<RawHttp> many = OpenMany(20);
  EXPECT_TRUE(HasConnections(15)) << "14 of the client with many connections";
  EXPECT_EQ(many.front().ReadToEnd(), "");
  Request(only, "/a");
  ExpectDone(only);
}

// No client would read the answer.
TEST_F(HttpClientsTest, TheRequestOfAClientThatHasLeftIsDropped) {
  HttpOptions options = WithThreads(1);
  options.abandoned_after_ms = 0;
  Start(options);
  RawHttp running = Wait(kOne);
  {
    const RawHttp leaves = Get(kOne, "/a");
    AwaitRead(kOne);
  }
  RawHttp ended = Get(kOne, "/a");
  ended.EndSending();
  AwaitRead(kOne);
  RawHttp stays = Get(kOne, "/b");
  AwaitRead(kOne);
  release = true;
  ExpectDone(running);
  ExpectDone(stays);
  EXPECT_EQ(order, "b");
  EXPECT_EQ(server->counters().abandoned, 2u);
  EXPECT_TRUE(ended.ReadToEnd().starts_with("HTTP/1.1 503 "));
  EXPECT_TRUE(HasConnections(2)) << "the connection of the dropped request was not closed";
}

// A change takes effect although its client has left.
TEST_F(HttpClientsTest, ARequestThatChangesSomethingIsNotDropped) {
  HttpOptions options = WithThreads(1);
  options.abandoned_after_ms = 0;
  Start(options);
  RawHttp running = Wait(kOne);
  RawHttp change = Get(kOne, "/c", "POST");
  change.EndSending();
  RawHttp query = Get(kOne, "/q", "POST");
  query.EndSending();
  AwaitRead(kOne);
  release = true;
  ExpectDone(running);
  ExpectDone(change);
  EXPECT_THAT(query.ReadToEnd(), ::testing::StartsWith("HTTP/1.1 503 "));
  EXPECT_EQ(order, "c");
}

// HTTP allows a client to end its sending side after the request.
TEST_F(HttpClientsTest, AClientThatHasEndedItsSendingSideGetsItsAnswer) {
  Start(WithThreads(1));
  RawHttp running = Wait(kOne);
  RawHttp ended = Get(kOne, "/a");
  ended.EndSending();
  AwaitRead(kOne);
  release = true;
  ExpectDone(running);
  ExpectDone(ended);
  EXPECT_EQ(server->counters().abandoned, 0u);
}

}  // namespace
}  // namespace kvcast
