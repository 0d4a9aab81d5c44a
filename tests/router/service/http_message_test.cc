// The request reader: whole requests out of pieces of any size, bounds, and nothing that two
// readers could understand differently.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/http/http_message.h"

#include <gtest/gtest.h>

#include <string>

namespace kvcast::router {
namespace {

using State = RequestReader::State;

constexpr char kPost[] =
    "POST /v1/query?a=1&b=x%20y+z HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody";
constexpr char kChunked[] =
    "POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    "3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n";

State ReadAll(RequestReader& reader, std::string text) { return reader.Read(text); }

State ReadOne(const std::string& text) {
  RequestReader reader({.max_head_bytes = 200, .max_body_bytes = 10});
  return ReadAll(reader, text);
}

int ErrorOf(const std::string& text) {
  RequestReader reader({.max_head_bytes = 200, .max_body_bytes = 10});
  return ReadAll(reader, text) == State::kBad ? reader.error().status : 0;
}

TEST(RequestReader, ReadsPathQueryHeadersAndBody) {
  RequestReader reader({});
  ASSERT_EQ(ReadAll(reader, kPost), State::kComplete);
  const HttpRequest request = reader.Take();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/query");
  EXPECT_EQ(request.query.at("a"), "1");
  EXPECT_EQ(request.query.at("b"), "x y z");
  EXPECT_EQ(request.Header("host"), "localhost");
  EXPECT_EQ(request.body, "body");
  EXPECT_TRUE(request.keep_alive);
}

TEST(RequestReader, PiecesOfAnySizeMakeTheSameRequest) {
  for (const std::string text : {kPost, kChunked}) {
    for (size_t piece = 1; piece <= text.size(); ++piece) {
      RequestReader reader({});
      std::string input;
      State state = State::kHead;
      for (size_t i = 0; i < text.size(); i += piece) {
        EXPECT_NE(state, State::kComplete);
        input += text.substr(i, piece);
        state = reader.Read(input);
      }
      ASSERT_EQ(state, State::kComplete) << piece << " of " << text;
      EXPECT_EQ(reader.request().body, text == kPost ? "body" : "abcde");
      EXPECT_EQ(input, "");
    }
  }
}

TEST(RequestReader, WhatFollowsIsTheNextRequest) {
  RequestReader reader({});
  std::string input = std::string(kPost) + kChunked + "GET /last HTTP/1.0\r\n\r\n";
  ASSERT_EQ(reader.Read(input), State::kComplete);
  EXPECT_EQ(reader.Take().body, "body");
  ASSERT_EQ(reader.Read(input), State::kComplete);
  EXPECT_EQ(reader.Take().body, "abcde");
  ASSERT_EQ(reader.Read(input), State::kComplete);
  EXPECT_EQ(reader.request().path, "/last");
  EXPECT_FALSE(reader.request().keep_alive);
}

TEST(RequestReader, BodiesAreBounded) {
  EXPECT_EQ(ReadOne("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789"), State::kComplete);
  EXPECT_EQ(ErrorOf("POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n"), 413);
  EXPECT_EQ(ErrorOf("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n"), 400);
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(ReadOne(chunked + "a\r\n0123456789\r\n0\r\n\r\n"), State::kComplete);
  EXPECT_EQ(ErrorOf(chunked + "b\r\n"), 413);
  EXPECT_EQ(ErrorOf(chunked + "8\r\n01234567\r\n3\r\n"), 413);
  EXPECT_EQ(ErrorOf(chunked + "ffffffffffffffff\r\n"), 413);
}

TEST(RequestReader, HeadsAreBoundedBeforeTheyEnd) {
  EXPECT_EQ(ErrorOf("GET /" + std::string(200, 'x')), 431);
  EXPECT_EQ(ErrorOf("GET / HTTP/1.1\r\nA: " + std::string(200, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(ErrorOf("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" +
                    std::string(100, 'x') + "\r\n" + std::string(101, 'y') + "\r\n"),
            431);
}

TEST(RequestReader, WhatCanBeReadInTwoWaysIsRefused) {
  const std::string post = "POST / HTTP/1.1\r\n";
  for (const std::string head :
       {"Content-Length: 1\r\nTransfer-Encoding: chunked", "Content-Length: 1\r\nContent-Length: 1",
        "Host: a\r\nHost: b", "Transfer-Encoding: gzip, chunked", "Content-Length: +1",
        "Content-Length: 0x1", "Content-Length: ", "Content-Length : 1", " Folded: line",
        "No colon", "Bare: line\nfeed"}) {
    EXPECT_EQ(ErrorOf(post + head + "\r\n\r\n"), 400) << head;
  }
  for (const std::string line : {"GET /", "GET  / HTTP/1.1", "GET / HTTP/2.0", " / HTTP/1.1",
                                 "G(T / HTTP/1.1", "GET /%zz HTTP/1.1", "GET /?a=%1 HTTP/1.1"}) {
    EXPECT_EQ(ErrorOf(line + "\r\n\r\n"), 400) << line;
  }
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(ErrorOf(chunked + "x\r\n"), 400);
  EXPECT_EQ(ErrorOf(chunked + "1\r\nab\r\n"), 400);
  EXPECT_EQ(ErrorOf(chunked + std::string(200, '1')), 400);
}

TEST(RequestReader, ContinueIsAskedForOnceAndOnlyForABody) {
  RequestReader reader({});
  ReadAll(reader, "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_TRUE(reader.TakeAwaitsContinue());
  EXPECT_FALSE(reader.TakeAwaitsContinue());
  RequestReader empty({});
  ReadAll(empty, "POST / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_FALSE(empty.TakeAwaitsContinue());
}

TEST(RenderReply, SaysItsLengthAndLeavesTheBodyOutForHead) {
  const HttpReply reply{.status = 200, .body = "hi", .content_type = "text/plain"};
  const std::string whole = RenderReply(reply, true);
  EXPECT_TRUE(whole.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n")) << whole;
  EXPECT_TRUE(whole.ends_with("keep-alive\r\n\r\nhi")) << whole;
  EXPECT_TRUE(RenderReply(reply, false, true).ends_with("close\r\n\r\n"));
}

}  // namespace
}  // namespace kvcast::router
