// The HTTP server: one address is served once, bodies are bounded, errors are one JSON object.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/http_server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <memory>
#include <string>

namespace kvcast::router {
namespace {

std::unique_ptr<HttpServer> StartEcho(const HttpOptions& options = {}) {
  using Method = HttpRoute::Method;
  auto server = HttpServer::Start(
      options, {{Method::kPost, "/echo",
                 [](const std::string& body) {
                   return HttpReply{200, body};
                 }},
                {Method::kGet, "/hello",
                 [](const std::string&) {
                   return HttpReply{200, "hi", "text/plain"};
                 }},
                {Method::kGet, "/throws", [](const std::string&) -> HttpReply { throw 1; }}});
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  return server.ok() ? std::move(server).value() : nullptr;
}

TEST(HttpServer, ServesOnAFreePortOfLoopback) {
  const auto server = StartEcho();
  httplib::Client client("127.0.0.1", server->port());
  const auto reply = client.Get("/hello");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "hi");
  EXPECT_EQ(reply->get_header_value("Content-Type"), "text/plain");
}

TEST(HttpServer, APortInUseIsAnError) {
  const auto server = StartEcho();
  HttpOptions same;
  same.port = server->port();
  const auto second = HttpServer::Start(same, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(second.status().message(),
            "http: cannot listen on 127.0.0.1:" + std::to_string(same.port));
}

TEST(HttpServer, APortIsFreeAgainAfterStop) {
  const auto server = StartEcho();
  HttpOptions same;
  same.port = server->port();
  server->Stop();
  server->Stop();
  EXPECT_TRUE(HttpServer::Start(same, {}).ok());
}

TEST(HttpServer, OptionsOutOfRangeAreErrors) {
  HttpOptions options;
  options.port = 65536;
  EXPECT_EQ(HttpServer::Start(options, {}).status().code(), StatusCode::kInvalidArgument);
  options = {};
  options.threads = 0;
  EXPECT_EQ(HttpServer::Start(options, {}).status().code(), StatusCode::kInvalidArgument);
  options = {};
  options.address = "203.0.113.1";
  EXPECT_EQ(HttpServer::Start(options, {}).status().code(), StatusCode::kUnavailable);
}

TEST(HttpServer, UnknownPathsAndMethodsAreNotFound) {
  const auto server = StartEcho();
  httplib::Client client("127.0.0.1", server->port());
  for (const auto& reply : {client.Get("/nowhere"), client.Get("/echo")}) {
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 404);
    EXPECT_EQ(reply->body, "{\"error\":\"no such path or method\"}\n");
  }
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
  HttpOptions options;
  options.max_body_bytes = 1000;
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
  HttpOptions options;
  options.max_body_bytes = 1000;
  const auto server = StartEcho(options);
  httplib::Client client("127.0.0.1", server->port());
  const auto endless = [](size_t, httplib::DataSink& sink) {
    const std::string piece(600, 'x');
    return sink.write(piece.data(), piece.size());
  };
  const auto reply = client.Post("/echo", endless, "application/json");
  EXPECT_TRUE(!reply || reply->status == 413);
  EXPECT_EQ(client.Get("/hello")->status, 200);
}

TEST(HttpServer, MultipartBodiesAreRefused) {
  const auto server = StartEcho();
  httplib::Client client("127.0.0.1", server->port());
  const httplib::MultipartFormDataItems items = {{"a", "b", "c", "text/plain"}};
  const auto reply = client.Post("/echo", items);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 415);
}

TEST(HttpServer, AThrowingHandlerIsAnInternalError) {
  const auto server = StartEcho();
  httplib::Client client("127.0.0.1", server->port());
  const auto reply = client.Get("/throws");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 500);
  EXPECT_EQ(reply->body, "{\"error\":\"internal error\"}\n");
}

}  // namespace
}  // namespace kvcast::router
