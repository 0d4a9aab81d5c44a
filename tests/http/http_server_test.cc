// Tests of the HTTP server: addresses, errors as JSON objects, limits of bodies and connections,
// the order of replies, timeouts, Stop, and requests from pages of other sites.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/http_server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/clock.h"
#include "tests/http/patient_options.h"
#include "tests/http/raw_http.h"

namespace kvcast {
namespace {

using kvcast::testing::PatientOptions;
using kvcast::testing::RawHttp;

std::unique_ptr<HttpServer> StartEcho(const HttpOptions& options = PatientOptions()) {
  using Method = HttpRoute::Method;
  auto server = HttpServer::Start(
      options,
      {{Method::kPost, "/echo",
        [](const HttpRequest& request) { return HttpReply{.body = request.body}; },
        HttpRoute::Lane::kQuery, size_t{64} << 20},
       {Method::kGet, "/hello",
        [](const HttpRequest&) { return HttpReply{.body = "hi", .content_type = "text/plain"}; }},
       {Method::kGet, "/throws", [](const HttpRequest&) -> HttpReply { throw 1; }}});
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  return server.ok() ? std::move(server).value() : nullptr;
}

// A server whose handler of GET /slow waits until `release` is true.
struct SlowServer {
  explicit SlowServer(const HttpOptions& options = PatientOptions())
      : server(HttpServer::Start(options, {{HttpRoute::Method::kGet, "/slow",
                                            [this](const HttpRequest&) {
                                              began = true;
                                              while (!release) std::this_thread::yield();
                                              return HttpReply{.body = "done"};
                                            }}})
                   .value()) {}

  // Returns when the handler runs.
  RawHttp Begin() {
    RawHttp client(server->port());
    client.Send("GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (!began) std::this_thread::yield();
    return client;
  }

  // Releases the handler, and returns its reply.
  std::string End(RawHttp& client) {
    release = true;
    return client.ReadUpTo("done");
  }

  std::atomic<bool> began{false};
  std::atomic<bool> release{false};
  std::unique_ptr<HttpServer> server;
};

TEST(HttpServer, ServesOnAFreePortOfLoopback) {
  const auto server = StartEcho();
  httplib::Client client("127.0.0.1", server->port());
  const auto reply = client.Get("/hello");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "hi");
  EXPECT_EQ(reply->get_header_value("Content-Type"), "text/plain");
}

TEST(HttpServer, ARequestHasTheTimeOfItsLastByte) {
  const auto server =
      HttpServer::Start(PatientOptions(),
                        {{HttpRoute::Method::kGet, "/time",
                          [](const HttpRequest& request) {
                            return HttpReply{.body = std::to_string(request.received_us)};
                          }}})
          .value();
  httplib::Client client("127.0.0.1", server->port());
  const int64_t before_us = SteadyUs();
  const auto reply = client.Get("/time");
  ASSERT_TRUE(reply);
  EXPECT_GE(std::stoll(reply->body), before_us);
  EXPECT_LE(std::stoll(reply->body), SteadyUs());
}

TEST(HttpServer, APortInUseIsAnError) {
  const auto server = StartEcho();
  HttpOptions same = PatientOptions();
  same.port = server->port();
  const auto second = HttpServer::Start(same, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(second.status().message(),
            "http: cannot listen on 127.0.0.1:" + std::to_string(same.port));
}

TEST(HttpServer, APortIsFreeAgainAfterStop) {
  const auto server = StartEcho();
  HttpOptions same = PatientOptions();
  same.port = server->port();
  server->Stop();
  server->Stop();
  EXPECT_TRUE(HttpServer::Start(same, {}).ok());
}

TEST(HttpServer, OptionsOutOfRangeAreErrors) {
  HttpOptions options = PatientOptions();
  options.port = 65536;
  EXPECT_EQ(HttpServer::Start(options, {}).status().code(), StatusCode::kInvalidArgument);
  options = PatientOptions();
  options.threads = 0;
  EXPECT_EQ(HttpServer::Start(options, {}).status().code(), StatusCode::kInvalidArgument);
  options = PatientOptions();
  options.address = "203.0.113.1";
  EXPECT_EQ(HttpServer::Start(options, {}).status().code(), StatusCode::kUnavailable);
}

TEST(HttpServer, UnknownPathsAndMethodsAreClearErrors) {
  const auto server = StartEcho();
  httplib::Client client("127.0.0.1", server->port());
  const auto nowhere = client.Get("/nowhere");
  ASSERT_TRUE(nowhere);
  EXPECT_EQ(nowhere->status, 404);
  EXPECT_EQ(nowhere->body, "{\"error\":\"no such path\"}\n");
  const auto wrong = client.Get("/echo");
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->status, 405);
  EXPECT_EQ(wrong->get_header_value("Allow"), "POST");
  const auto head = client.Head("/hello");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->body, "");
}

TEST(HttpServer, BodiesOfAnyContentTypeAreReadWhole) {
  const auto server = StartEcho();
  httplib::Client client("127.0.0.1", server->port());
  const std::string body(100000, 'x');
  for (const char* type : {"application/json", "application/x-www-form-urlencoded", "text/plain"}) {
    const auto reply = client.Post("/echo", body, type);
    ASSERT_TRUE(reply) << type;
    EXPECT_EQ(reply->status, 200) << type;
    EXPECT_EQ(reply->body.size(), body.size()) << type;
  }
}

TEST(HttpServer, LongBodiesAreRefused) {
  HttpOptions options = PatientOptions();
  options.limits.max_body_bytes = 1000;
  const auto server = StartEcho(options);
  httplib::Client client("127.0.0.1", server->port());
  const auto fits = client.Post("/echo", std::string(1000, 'x'), "application/json");
  ASSERT_TRUE(fits);
  EXPECT_EQ(fits->status, 200);
  const auto reply = client.Post("/echo", std::string(1001, 'x'), "application/json");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 413);
  EXPECT_EQ(reply->body, "{\"error\":\"body: longer than 1000 bytes\"}\n");
}

TEST(HttpServer, ChunkedBodiesAreBoundedToo) {
  HttpOptions options = PatientOptions();
  options.limits.max_body_bytes = 1000;
  const auto server = StartEcho(options);
  httplib::Client client("127.0.0.1", server->port());
  std::signal(SIGPIPE, SIG_IGN);  // this client writes until the socket breaks
  const auto endless = [](size_t, httplib::DataSink& sink) {
    const std::string piece(600, 'x');
    return sink.write(piece.data(), piece.size());
  };
  const auto reply = client.Post("/echo", endless, "application/json");
  EXPECT_TRUE(!reply || reply->status == 413);
  EXPECT_EQ(client.Get("/hello")->status, 200);
}

TEST(HttpServer, AThrowingHandlerIsAnInternalError) {
  const auto server = StartEcho();
  httplib::Client client("127.0.0.1", server->port());
  const auto reply = client.Get("/throws");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 500);
  EXPECT_EQ(reply->body, "{\"error\":\"internal error\"}\n");
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  const auto server = StartEcho();
  RawHttp client(server->port());
  std::string requests;
  std::string wanted;
  for (int i = 0; i < 500; ++i) {
    const std::string body = std::to_string(i) + ";";
    requests +=
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body + "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n";
    wanted += body + "404";
  }
  requests += "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  ASSERT_TRUE(client.Send(requests));
  const std::string replies = client.ReadToEnd();
  std::string got;
  for (size_t offset = 0; (offset = replies.find("HTTP/1.1 ", offset)) != std::string::npos;
       ++offset) {
    const size_t body = replies.find("\r\n\r\n", offset) + 4;
    const bool missing = replies.compare(offset + 9, 3, "404") == 0;
    got += missing ? "404" : replies.substr(body, replies.find_first_of(";h", body) + 1 - body);
  }
  EXPECT_EQ(got, wanted + "h");
}

// When the first request is answered, the second request waits in memory, and the third request
// waits in the socket.
TEST(HttpServer, ARequestThatComesWhileAnotherWaitsIsAnsweredInItsTurn) {
  std::atomic<int> sent = 0;
  std::atomic<int> handled = 0;
  auto server = HttpServer::Start(PatientOptions(),
                                  {{HttpRoute::Method::kGet, "/turn", [&](const HttpRequest&) {
                                      const int turn = handled++;
                                      while (sent <= turn / 3) std::this_thread::yield();
                                      return HttpReply{.body = std::to_string(turn) + ";"};
                                    }}});
  ASSERT_TRUE(server.ok());
  const std::string request = "GET /turn HTTP/1.1\r\nHost: localhost\r\n\r\n";
  RawHttp client((*server)->port());
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(client.Send(request + request));
    while (handled <= 3 * round) std::this_thread::yield();
    ASSERT_TRUE(client.Send(request));
    ++sent;
    for (int turn = 3 * round; turn < 3 * round + 3; ++turn) {
      const std::string body = std::to_string(turn) + ";";
      ASSERT_TRUE(client.ReadUpTo(body).ends_with("\r\n\r\n" + body)) << turn;
    }
  }
}

TEST(HttpServer, ContinueIsSentBeforeTheBody) {
  const auto server = StartEcho();
  RawHttp client(server->port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: "
      "2\r\n\r\n");
  EXPECT_EQ(client.ReadUpTo("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("hi");
  EXPECT_TRUE(client.ReadUpTo("\r\n\r\nhi").starts_with("HTTP/1.1 200 OK"));
}

TEST(HttpServer, ARequestThatNeverEndsTimesOut) {
  HttpOptions options = PatientOptions();
  options.request_timeout_ms = 1;
  const auto server = StartEcho(options);
  for (const std::string start :
       {"GET /hel", "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhal"}) {
    RawHttp client(server->port());
    ASSERT_TRUE(client.Send(start));
    EXPECT_TRUE(client.ReadToEnd().starts_with("HTTP/1.1 408 ")) << start;
  }
  EXPECT_EQ(server->counters().timed_out, 2u);
}

// The time limit of a request ends when the handler begins.
TEST(HttpServer, AHandlerHasNoTimeLimit) {
  HttpOptions options = PatientOptions();
  options.request_timeout_ms = 1;
  SlowServer slow(options);
  RawHttp busy = slow.Begin();
  RawHttp late(slow.server->port());
  late.Send("GET /slow");
  EXPECT_TRUE(late.ReadToEnd().starts_with("HTTP/1.1 408 "));
  EXPECT_EQ(slow.server->counters().timed_out, 1u);
  const std::string reply = slow.End(busy);
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 ")) << reply;
}

TEST(HttpServer, IdleConnectionsAreClosedWithoutAReply) {
  HttpOptions options = PatientOptions();
  options.idle_timeout_ms = 1;
  const auto server = StartEcho(options);
  RawHttp client(server->port());
  EXPECT_EQ(client.ReadToEnd(), "");
}

TEST(HttpServer, IdleConnectionsAreClosedAfterAReplyToo) {
  HttpOptions options = PatientOptions();
  options.idle_timeout_ms = 1;
  const auto server = StartEcho(options);
  RawHttp client(server->port());
  client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_NE(client.ReadToEnd(), "timeout");
  while (server->counters().connections > 0) std::this_thread::yield();
  EXPECT_EQ(server->counters().timed_out, 0u);
}

// Clients that have sent half of a request hold no thread. A server with one thread still answers
// the next client.
TEST(HttpServer, SlowClientsDelayNoOtherClient) {
  HttpOptions options = PatientOptions();
  options.threads = 1;
  const auto server = StartEcho(options);
  std::vector<RawHttp> slow;
  for (int i = 0; i < 50; ++i) {
    slow.emplace_back(server->port());
    ASSERT_TRUE(
        slow.back().Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhal"));
  }
  httplib::Client client("127.0.0.1", server->port());
  ASSERT_TRUE(client.Get("/hello"));
  for (RawHttp& one : slow) {
    ASSERT_TRUE(one.Send("lo"));
    EXPECT_TRUE(one.ReadUpTo("hallo").ends_with("\r\n\r\nhallo"));
  }
}

TEST(HttpServer, TheConnectionThatIsQuietLongestMakesRoom) {
  HttpOptions options = PatientOptions();
  options.max_connections = 4;
  const auto server = StartEcho(options);
  std::vector<RawHttp> clients;
  for (int i = 0; i < 4; ++i) clients.emplace_back(server->port());
  // The oldest connection sends the latest message.
  clients[0].Send("GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(clients[0].ReadUpTo("hi").ends_with("hi"));
  RawHttp fifth(server->port());
  EXPECT_EQ(clients[1].ReadToEnd(), "");
  for (RawHttp* alive : {&clients[0], &clients[2], &clients[3], &fifth}) {
    alive->Send("GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(alive->ReadUpTo("hi").ends_with("hi"));
  }
  EXPECT_EQ(server->counters().evicted, 1u);
  EXPECT_EQ(server->counters().connections, 4u);
}

TEST(HttpServer, AConnectionWhoseHandlerRunsMakesNoRoom) {
  HttpOptions options = PatientOptions();
  options.max_connections = 2;
  SlowServer slow(options);
  RawHttp busy = slow.Begin();
  RawHttp idle(slow.server->port());
  const RawHttp newcomer(slow.server->port());
  EXPECT_EQ(idle.ReadToEnd(), "");
  const std::string reply = slow.End(busy);
  EXPECT_TRUE(reply.ends_with("done")) << reply;
}

TEST(HttpServer, AReplyThatIsNotReadTimesOut) {
  HttpOptions options = PatientOptions();
  options.write_timeout_ms = 1;
  options.limits.max_body_bytes = 64 << 20;
  const auto server = StartEcho(options);
  RawHttp client(server->port());
  const size_t size = 40 << 20;
  ASSERT_TRUE(client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                          std::to_string(size) + "\r\n\r\n" + std::string(size, 'x')));
  while (server->counters().timed_out == 0) std::this_thread::yield();
  while (server->counters().connections > 0) std::this_thread::yield();
  EXPECT_EQ(server->counters().held_bytes, 0u);
}

TEST(HttpServer, StopAnswersRequestsThatHaveBegun) {
  SlowServer slow;
  RawHttp idle(slow.server->port());
  RawHttp busy = slow.Begin();
  std::thread stopping([&] { slow.server->Stop(); });
  EXPECT_EQ(idle.ReadToEnd(), "");
  EXPECT_FALSE(RawHttp(slow.server->port()).connected());
  slow.release = true;
  const std::string reply = busy.ReadToEnd();
  EXPECT_TRUE(reply.ends_with("done")) << reply;
  EXPECT_NE(reply.find("Connection: close"), std::string::npos);
  stopping.join();
}

// A request that began before Stop may still be completed.
TEST(HttpServer, StopWaitsForARequestThatHasBegun) {
  const auto server = StartEcho();
  RawHttp half(server->port());
  ASSERT_TRUE(half.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhal"));
  while (server->counters().held_bytes == 0) std::this_thread::yield();
  std::thread stopping([&] { server->Stop(); });
  while (RawHttp(server->port()).connected()) std::this_thread::yield();
  ASSERT_TRUE(half.Send("lo"));
  const std::string reply = half.ReadToEnd();
  EXPECT_TRUE(reply.ends_with("\r\n\r\nhallo")) << reply;
  EXPECT_NE(reply.find("Connection: close"), std::string::npos);
  stopping.join();
}

TEST(HttpServer, StopClosesARequestThatDoesNotEnd) {
  HttpOptions options = PatientOptions();
  options.drain_timeout_ms = 1;
  const auto server = StartEcho(options);
  RawHttp half(server->port());
  ASSERT_TRUE(half.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhal"));
  while (server->counters().held_bytes == 0) std::this_thread::yield();
  server->Stop();
  EXPECT_EQ(half.ReadToEnd(), "");
  EXPECT_EQ(server->counters().connections, 0u);
}

// A page of another site, loaded by a browser on this machine, must not register workers.
TEST(HttpServer, OtherSitesPagesAreRefused) {
  const auto server = StartEcho();
  const std::string host = "localhost:" + std::to_string(server->port());
  const auto status = [&](const std::string& headers) {
    RawHttp client(server->port());
    client.Send("POST /echo HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n" + headers +
                "\r\n");
    return client.ReadToEnd().substr(9, 3);
  };
  EXPECT_EQ(status("Host: " + host + "\r\n"), "200");
  EXPECT_EQ(status("Host: " + host + "\r\nOrigin: http://" + host + "\r\n"), "200");
  EXPECT_EQ(status("Host: " + host + "\r\nOrigin: http://evil.example\r\n"), "403");
  EXPECT_EQ(status("Host: " + host + "\r\nOrigin: null\r\n"), "403");
  EXPECT_EQ(status("Host: evil.example\r\nOrigin: http://evil.example\r\n"), "403");
  EXPECT_EQ(status("Host: 127.0.0.1.evil.example\r\n"), "403");
  EXPECT_EQ(status("Host: [::1]:80\r\n"), "200");
}

}  // namespace
}  // namespace kvcast
