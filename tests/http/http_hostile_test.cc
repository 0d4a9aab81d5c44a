// Requests that two readers could parse differently. Each such request is refused, or is parsed as
// RFC 9112 requires. After a refused request, the server parses no further bytes of the connection.
// After a parsed request, the server finds the next request.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "src/http/http_server.h"
#include "tests/http/patient_options.h"
#include "tests/http/raw_http.h"

namespace kvcast {
namespace {

using kvcast::testing::PatientOptions;
using kvcast::testing::RawHttp;
using namespace std::string_literals;

class HttpHostileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    using Method = HttpRoute::Method;
    server =
        HttpServer::Start(PatientOptions(), {{Method::kPost, "/echo",
                                              [](const HttpRequest& request) {
                                                return HttpReply{.body = "<" + request.body + ">"};
                                              }},
                                             {Method::kGet, "/smuggled",
                                              [this](const HttpRequest&) {
                                                ++smuggled;
                                                return HttpReply{.body = "smuggled"};
                                              }}})
            .value();
  }

  // Sends the bytes, shuts down the sending direction, and returns all replies.
  std::string Replies(const std::string& bytes) {
    RawHttp client(server->port());
    client.Send(bytes);
    client.EndSending();
    return client.ReadToEnd();
  }
  // Expects that the server refuses the request with this status, and does not parse the bytes
  // after the request.
  void ExpectRefused(const std::string& bytes, int status) {
    smuggled = 0;
    const std::string replies = Replies(bytes + kSmuggled);
    EXPECT_TRUE(replies.starts_with("HTTP/1.1 " + std::to_string(status) + " "))
        << bytes << replies;
    EXPECT_EQ(replies.find("HTTP/1.1 ", 1), std::string::npos) << bytes << replies;
    EXPECT_EQ(smuggled, 0) << bytes;
  }
  void ExpectRead(const std::string& bytes, const std::string& body) {
    smuggled = 0;
    const std::string replies = Replies(bytes + kSmuggled);
    EXPECT_TRUE(replies.starts_with("HTTP/1.1 200 ")) << bytes << replies;
    EXPECT_NE(replies.find("\r\n\r\n<" + body + ">HTTP/1.1 200 "), std::string::npos) << replies;
    EXPECT_EQ(smuggled, 1) << bytes;
  }

  const std::string kPost = "POST /echo HTTP/1.1\r\n";
  const std::string kHost = "Host: localhost\r\n";
  const std::string kSmuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string kChunked = kPost + kHost + "Transfer-Encoding: chunked\r\n\r\n";
  std::atomic<int> smuggled{0};
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpHostileTest, AmbiguousAndInvalidLengthsAreRefused) {
  for (const std::string& length :
       {"Content-Length: 4\r\nTransfer-Encoding: chunked"s,
        "Transfer-Encoding: chunked\r\nContent-Length: 4"s,
        "Content-Length: 4\r\nContent-Length: 0"s, "Content-Length: 4\r\nContent-Length: 4"s,
        "Content-Length: 4, 4"s, "Content-Length: 4, 0"s, "Content-Length: +4"s,
        "Content-Length: +14"s, "Content-Length: 0x4"s, "Content-Length: 0x0e"s,
        "Content-Length: -1"s, "Content-Length: 4x"s, "Content-Length: 4 4"s,
        "Content-Length: 18446744073709551616"s, "Content-Length: 18446744073709551620"s,
        "Content-Length: "s, "Content-Length:"s, "Content-Length: ,4"s}) {
    ExpectRefused(kPost + kHost + length + "\r\n\r\nabcd", 400);
    ExpectRefused(kPost + kHost + length + "\r\n\r\n0\r\n\r\n", 400);
  }
  ExpectRefused(kPost + kHost + "Content-Length: 18446744073709551615\r\n\r\nabcd", 413);
  ExpectRead(kPost + kHost + "Content-Length: 4\r\n\r\nabcd", "abcd");
  ExpectRead(kPost + kHost + "Content-Length: \t004 \r\n\r\nabcd", "abcd");
}

TEST_F(HttpHostileTest, ChunkedIsTheOnlyCoding) {
  for (const std::string coding :
       {"xchunked", "gzip, chunked", "chunked, gzip", "chunked, chunked", "chunked,", ",chunked",
        "identity", "", "\"chunked\"", "chunked;q=1", "\vchunked",
        "chunked\r\nTransfer-Encoding: chunked", "chunked\r\nTransfer-Encoding: identity"}) {
    ExpectRefused(kPost + kHost + "Transfer-Encoding: " + coding + "\r\n\r\n0\r\n\r\n", 400);
  }
  ExpectRefused("POST /echo HTTP/1.0\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                400);
  ExpectRead(kPost + kHost + "Transfer-Encoding: ChunkeD\r\n\r\n4\r\nabcd\r\n0\r\n\r\n", "abcd");
}

TEST_F(HttpHostileTest, HeadsHaveOneForm) {
  for (const std::string& line :
       {"\vTransfer-Encoding: chunked"s, "Content-Length : 4"s, "X: a\rContent-Length: 4"s,
        "X: a\nContent-Length: 4"s, "X: a\0b"s, "X\0Y: a"s, "X"s, ": a"s, "X: \x7f"s,
        "Host: localhost"s, "Host: evil.example"s, "X Y: a"s}) {
    ExpectRefused(kPost + kHost + line + "\r\n\r\n", 400);
  }
  ExpectRefused(kPost + " Content-Length: 4\r\n" + kHost + "\r\n", 400);
  // A folded line counts as one line. RFC 9112 5.2 allows this.
  ExpectRead(kPost + kHost + "Content-Length:\r\n 4\r\n\r\nabcd", "abcd");
  ExpectRead(kPost + kHost + "Transfer-Encoding:\r\n\tchunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
             "abcd");
}

TEST_F(HttpHostileTest, RequestLinesHaveOneForm) {
  for (const std::string line :
       {"GET /smuggled HTTP/2.0", "GET /smuggled HTTP/1.2", "GET /smuggled HTTP/0.9",
        "GET /smuggled http/1.1", "GET /smuggled HTTP/1.1 ", "GET  /smuggled HTTP/1.1",
        "GET /smuggled", " GET /smuggled HTTP/1.1", "G(T /smuggled HTTP/1.1",
        "GET\t/smuggled HTTP/1.1", "GET /%zz HTTP/1.1", "GET /?a=%1 HTTP/1.1",
        "\rGET /smuggled HTTP/1.1", "\nGET /smuggled HTTP/1.1"}) {
    ExpectRefused(line + "\r\n" + kHost + "\r\n", 400);
  }
  ExpectRefused(kPost + "Content-Length: 0\r\n\r\n", 400);  // no Host
  ExpectRefused("GET /" + std::string(17 << 10, 'a') + " HTTP/1.1\r\n" + kHost + "\r\n", 431);
  ExpectRefused(kPost + kHost + "X: " + std::string(17 << 10, 'a') + "\r\n\r\n", 431);
  ExpectRead("\r\n\r\n" + kPost + kHost + "Content-Length: 4\r\n\r\nabcd", "abcd");
}

TEST_F(HttpHostileTest, ChunksHaveOneForm) {
  for (const std::string& chunk : {"ffffffffffffffff\r\nabcd\r\n"s,
                                   "10000000000000004\r\nabcd\r\n"s, "7fffffffffffffff\r\n"s}) {
    SCOPED_TRACE(chunk);
    const std::string replies = Replies(kChunked + chunk + "0\r\n\r\n" + kSmuggled);
    EXPECT_TRUE(replies.starts_with("HTTP/1.1 4")) << replies;
    EXPECT_EQ(smuggled, 0);
  }
  for (const std::string& chunk :
       {"-1\r\nabcd\r\n"s, "+4\r\nabcd\r\n"s, "0x4\r\nabcd\r\n"s, "4\r\nabcd"s, "3\r\nabcd\r\n"s,
        "\r\n4\r\nabcd\r\n"s, " 4\r\nabcd\r\n"s, "4;a\nb\r\nabcd\r\n"s, "4;a=\"\nb\"\r\nabcd\r\n"s,
        "4;a=\"\r\"\r\nabcd\r\n"s, "4\nabcd\n0\n\n"s, "g\r\nabcd\r\n"s}) {
    ExpectRefused(kChunked + chunk + "0\r\n\r\n", 400);
  }
  ExpectRefused(kChunked + "0\r\nContent-Length: 4\r\n\r\n", 400);
  ExpectRefused(kChunked + "0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
  ExpectRead(kChunked + "4;name=\"a b\"\r\nabcd\r\n0\r\nTrailer: x\r\n\r\n", "abcd");
}

TEST_F(HttpHostileTest, TheBodyOfAGetIsNotARequest) {
  smuggled = 0;
  const std::string inner = kSmuggled;
  const std::string replies = Replies("GET /smuggled HTTP/1.1\r\n" + kHost + "Content-Length: " +
                                      std::to_string(inner.size()) + "\r\n\r\n" + inner);
  EXPECT_TRUE(replies.ends_with("smuggled")) << replies;
  EXPECT_EQ(smuggled, 1);
}

}  // namespace
}  // namespace kvcast
