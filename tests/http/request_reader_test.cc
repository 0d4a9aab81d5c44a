// The request reader makes complete requests from pieces of any size, enforces its limits, and
// reports once that a client waits for 100 Continue. RenderReply writes the length of a reply.
// SPDX-License-Identifier: Apache-2.0
#include "src/http/request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "src/http/reply_text.h"

namespace kvcast {
namespace {

using State = RequestReader::State;

constexpr char kPost[] =
    "POST /v1/query?a=1&b=x%20y+z HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody";
constexpr char kChunked[] =
    "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    "3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n";

constexpr char kNoChunk[] =
    "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
constexpr char kOnlyTrailers[] =
    "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n";

void Append(boost::beast::flat_buffer& input, std::string_view text) {
  const auto room = input.prepare(text.size());
  std::copy(text.begin(), text.end(), static_cast<char*>(room.data()));
  input.commit(text.size());
}

State ReadAll(RequestReader& reader, std::string_view text) {
  boost::beast::flat_buffer input;
  Append(input, text);
  return reader.Read(input);
}

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
  const std::map<std::string, std::string> bodies = {
      {kPost, "body"}, {kChunked, "abcde"}, {kNoChunk, ""}, {kOnlyTrailers, ""}};
  for (const auto& [text, body] : bodies) {
    for (size_t piece = 1; piece <= text.size(); ++piece) {
      RequestReader reader({});
      boost::beast::flat_buffer input;
      State state = State::kHead;
      for (size_t i = 0; i < text.size(); i += piece) {
        EXPECT_NE(state, State::kComplete);
        Append(input, std::string_view(text).substr(i, piece));
        state = reader.Read(input);
      }
      ASSERT_EQ(state, State::kComplete) << piece << " of " << text;
      EXPECT_EQ(reader.Take().body, body);
      EXPECT_EQ(input.size(), 0u);
    }
  }
}

TEST(RequestReader, ReadsPipelinedRequestsOneByOne) {
  RequestReader reader({});
  boost::beast::flat_buffer input;
  Append(input, std::string(kPost) + kChunked + "GET /last HTTP/1.0\r\n\r\n");
  ASSERT_EQ(reader.Read(input), State::kComplete);
  EXPECT_EQ(reader.Take().body, "body");
  ASSERT_EQ(reader.Read(input), State::kComplete);
  EXPECT_EQ(reader.Take().body, "abcde");
  ASSERT_EQ(reader.Read(input), State::kComplete);
  const HttpRequest last = reader.Take();
  EXPECT_EQ(last.path, "/last");
  EXPECT_FALSE(last.keep_alive);
}

TEST(RequestReader, BodiesAreBounded) {
  EXPECT_EQ(ReadOne("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789"),
            State::kComplete);
  EXPECT_EQ(ErrorOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n"), 413);
  EXPECT_EQ(
      ErrorOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n"),
      400);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(ReadOne(chunked + "a\r\n0123456789\r\n0\r\n\r\n"), State::kComplete);
  EXPECT_EQ(ErrorOf(chunked + "b\r\n"), 413);
  EXPECT_EQ(ErrorOf(chunked + "8\r\n01234567\r\n3\r\n"), 413);
  EXPECT_EQ(ErrorOf(chunked + "ffffffffffffffff\r\n"), 413);
}

TEST(RequestReader, HeadsAreBoundedBeforeTheyEnd) {
  EXPECT_EQ(ErrorOf("GET /" + std::string(200, 'x')), 431);
  EXPECT_EQ(ErrorOf("GET / HTTP/1.1\r\nHost: a\r\nA: " + std::string(200, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(ErrorOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" +
                    std::string(100, 'x') + "\r\n" + std::string(101, 'y') + "\r\n"),
            431);
}

TEST(RequestReader, TheHeadDecidesHowLongTheBodyMayBe) {
  const auto bound = [](const HttpRequest& head) { return head.path == "/four" ? 4u : 2u; };
  const auto read = [&](const std::string& text) {
    RequestReader reader({}, bound);
    return ReadAll(reader, text) == State::kBad ? reader.error().status : 0;
  };
  const std::string head = " HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(read("POST /four" + head + "Content-Length: 4\r\n\r\n"), 0);
  EXPECT_EQ(read("POST /four" + head + "Content-Length: 5\r\n\r\n"), 413);
  EXPECT_EQ(read("POST /two" + head + "Content-Length: 3\r\n\r\n"), 413);
  EXPECT_EQ(read("POST /two" + head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"), 0);
  EXPECT_EQ(read("POST /two" + head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\n"), 413);
}

TEST(RequestReader, LinesOfChunksAndTrailersAreBounded) {
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(ErrorOf(chunked + "1;" + std::string(300, 'x')), 431);
  EXPECT_EQ(ErrorOf(chunked + std::string(300, '0')), 431);
  EXPECT_EQ(ErrorOf(chunked + "0\r\nA: " + std::string(300, 'x')), 431);
}

// The head of the request has 100 bytes.
TEST(RequestReader, TheBoundOfTheHeadDoesNotDependOnPieces) {
  std::string text = "GET /path HTTP/1.1\r\nHost: a\r\nA: ";
  text += std::string(96 - text.size(), 'x') + "\r\n\r\n";
  for (const size_t max_head : {99, 100}) {
    for (size_t piece = 1; piece <= text.size(); ++piece) {
      RequestReader reader({.max_head_bytes = max_head, .max_body_bytes = 10});
      boost::beast::flat_buffer input;
      for (size_t i = 0; i < text.size(); i += piece) {
        Append(input, std::string_view(text).substr(i, piece));
        reader.Read(input);
      }
      EXPECT_EQ(reader.state(), max_head == 100 ? State::kComplete : State::kBad) << piece;
    }
  }
}

TEST(RequestReader, ReportsOnceThatAClientWaitsForContinue) {
  RequestReader reader({});
  ReadAll(reader,
          "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_TRUE(reader.TakeAwaitsContinue());
  EXPECT_FALSE(reader.TakeAwaitsContinue());
  RequestReader empty({});
  ReadAll(empty, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_FALSE(empty.TakeAwaitsContinue());
}

TEST(RenderReply, WritesTheLengthAndOmitsTheBodyForHead) {
  const HttpReply reply{.status = 200, .body = "hi", .content_type = "text/plain"};
  const std::string whole = RenderReply(reply, true);
  EXPECT_TRUE(whole.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n")) << whole;
  EXPECT_TRUE(whole.ends_with("keep-alive\r\n\r\nhi")) << whole;
  EXPECT_TRUE(RenderReply(reply, false, true).ends_with("close\r\n\r\n"));
}

}  // namespace
}  // namespace kvcast
