// Replies in pieces: the handler makes a piece after the server has sent the previous piece. No
// thread waits for a client.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "src/http/http_server.h"
#include "tests/http/patient_options.h"
#include "tests/http/raw_http.h"

namespace kvcast {
namespace {

using kvcast::testing::PatientOptions;
using kvcast::testing::RawHttp;

struct HttpPiecesTest : ::testing::Test {
  static constexpr size_t kBig = 64 << 10;

  void Start(const HttpOptions& options = PatientOptions()) {
    using Method = HttpRoute::Method;
    using Lane = HttpRoute::Lane;
    server = HttpServer::Start(
                 options,
                 {{Method::kGet, "/count", [this](const HttpRequest&) { return Count(3); }},
                  {Method::kGet, "/broken", [this](const HttpRequest&) { return Count(3, 2); }},
                  {Method::kGet, "/endless", [this](const HttpRequest&) { return Endless(); },
                   Lane::kObserver},
                  {Method::kGet, "/hello",
                   [](const HttpRequest&) { return HttpReply{.body = "hi"}; }, Lane::kObserver}})
                 .value();
  }
  // The pieces are "0;", "1;", "2;". Throws instead of piece number `broken`. -1: throws for no
  // piece.
  HttpReply Count(int pieces, int broken = -1) {
    auto next = std::make_shared<int>(0);
    return {.body = "from: ", .content_type = "text/plain", .next_piece = [=] {
              if (*next == broken) throw std::runtime_error("broken");
              return *next == pieces ? std::string() : std::to_string((*next)++) + ";";
            }};
  }
  HttpReply Endless() {
    const std::shared_ptr<void> held(nullptr, [this](void*) { ++released; });
    return {.next_piece = [this, held] {
      ++made;
      return std::string(kBig, 'x');
    }};
  }

  std::atomic<int> made{0};
  std::atomic<int> released{0};
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpPiecesTest, AreChunksAndTheConnectionStays) {
  Start();
  httplib::Client client("127.0.0.1", server->port());
  client.set_keep_alive(true);
  for (int i = 0; i < 3; ++i) {
    const auto reply = client.Get("/count");
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->body, "from: 0;1;2;");
    EXPECT_EQ(reply->get_header_value("Transfer-Encoding"), "chunked");
    EXPECT_FALSE(reply->has_header("Content-Length"));
  }
  EXPECT_EQ(server->counters().accepted, 1u);
}

TEST_F(HttpPiecesTest, EndWithTheConnectionForOldClients) {
  Start();
  RawHttp client(server->port());
  client.Send("GET /count HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const std::string reply = client.ReadToEnd();
  EXPECT_TRUE(reply.ends_with("\r\nConnection: close\r\n\r\nfrom: 0;1;2;")) << reply;
  EXPECT_EQ(reply.find("chunked"), std::string::npos);
}

TEST_F(HttpPiecesTest, AReplyToHeadHasNoPieces) {
  Start();
  RawHttp client(server->port());
  client.Send(
      "HEAD /endless HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hello HTTP/1.1\r\nHost: "
      "localhost\r\nConnection: close\r\n\r\n");
  const std::string replies = client.ReadToEnd();
  EXPECT_NE(replies.find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_TRUE(replies.ends_with("hi")) << replies;
  EXPECT_EQ(made, 0);
}

TEST_F(HttpPiecesTest, AReplyWhosePieceFailsIsNotEnded) {
  Start();
  RawHttp client(server->port());
  client.Send("GET /broken HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string reply = client.ReadToEnd();
  EXPECT_TRUE(reply.ends_with("2\r\n1;\r\n")) << reply;
}

// A client that does not read gets a bounded number of pieces: the pieces in the kernel's buffers,
// and the pieces that the server holds. The thread that made the pieces is free, and other clients
// are answered.
TEST_F(HttpPiecesTest, AClientThatDoesNotReadDelaysNoOtherClient) {
  Start();
  RawHttp stalled(server->port());
  stalled.Send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
  while (server->counters().held_bytes < kBig / 2) std::this_thread::yield();
  httplib::Client client("127.0.0.1", server->port());
  for (int i = 0; i < 100; ++i) ASSERT_EQ(client.Get("/hello")->body, "hi");
  constexpr int kKernelBuffers = 16 << 20;  // more than both buffers of a loopback connection
  EXPECT_LE(made, kKernelBuffers / static_cast<int>(kBig) + 2);
  EXPECT_LE(server->counters().held_bytes, 2 * kBig);
}

TEST_F(HttpPiecesTest, AClientThatDoesNotReadTimesOut) {
  HttpOptions options = PatientOptions();
  options.write_timeout_ms = 1;
  Start(options);
  RawHttp stalled(server->port());
  stalled.Send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
  while (released == 0) std::this_thread::yield();
  while (server->counters().connections > 0) std::this_thread::yield();
  EXPECT_EQ(server->counters().held_bytes, 0u);
}

// If a reply in pieces is not complete after reply_timeout_ms, the server ends the reply, even if
// the client reads without a pause.
TEST_F(HttpPiecesTest, AReplyHasATimeLimit) {
  HttpOptions options = PatientOptions();
  options.reply_timeout_ms = 50;
  Start(options);
  RawHttp reader(server->port());
  reader.Send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::atomic<bool> done{false};
  std::thread reading([&] {
    while (!done && !reader.ReadUpTo("x").empty()) {
    }
  });
  while (released == 0) std::this_thread::yield();
  done = true;
  reading.join();
  EXPECT_EQ(server->counters().timed_out, 1u);
}

TEST_F(HttpPiecesTest, StopEndsReplies) {
  HttpOptions options = PatientOptions();
  options.drain_timeout_ms = 1;
  Start(options);
  RawHttp stalled(server->port());
  stalled.Send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
  while (made == 0) std::this_thread::yield();
  server->Stop();
  server.reset();
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace kvcast
