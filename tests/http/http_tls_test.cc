// The server with TLS. The test makes its certificate with openssl.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>
#include <malloc.h>
#include <openssl/ssl.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "src/http/http_server.h"
#include "tests/http/patient_options.h"
#include "tests/http/raw_http.h"

namespace kvcast {
namespace {

using kvcast::testing::PatientOptions;
using kvcast::testing::RawHttp;

class HttpTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/http_tls_test_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    const std::string make =
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost "
        "-addext subjectAltName=IP:127.0.0.1 -keyout " +
        folder_ + "/key.pem -out " + folder_ + "/cert.pem 2>/dev/null";
    ASSERT_EQ(std::system(make.c_str()), 0);
    options.tls_certificate = folder_ + "/cert.pem";
    options.tls_key = folder_ + "/key.pem";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Start() {
    using Method = HttpRoute::Method;
    auto started = HttpServer::Start(
        options, {{Method::kPost, "/echo",
                   [](const HttpRequest& request) { return HttpReply{.body = request.body}; },
                   HttpRoute::Lane::kQuery, size_t{16} << 20},
                  {Method::kGet, "/pieces", [](const HttpRequest&) {
                     auto next = std::make_shared<int>(0);
                     return HttpReply{.next_piece = [next] {
                       return ++*next > 100 ? "" : std::string(10000, 'x');
                     }};
                   }}});
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    server = std::move(started).value();
  }
  std::unique_ptr<httplib::SSLClient> Client() const {
    auto client = std::make_unique<httplib::SSLClient>("127.0.0.1", server->port());
    client->set_ca_cert_path(options.tls_certificate.c_str());
    client->enable_server_certificate_verification(true);
    client->set_keep_alive(true);
    return client;
  }

  std::string folder_;
  HttpOptions options = PatientOptions();
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpTlsTest, RequestsAndRepliesGoThroughOneConnection) {
  Start();
  const auto client = Client();
  for (const size_t size : {size_t{2}, size_t{100000}, size_t{4} << 20}) {
    const std::string body(size, 'x');
    const auto reply = client->Post("/echo", body, "text/plain");
    ASSERT_TRUE(reply) << size << " " << to_string(reply.error());
    EXPECT_EQ(reply->body, body);
  }
  const auto pieces = client->Get("/pieces");
  ASSERT_TRUE(pieces);
  EXPECT_EQ(pieces->body.size(), 1000000u);
  EXPECT_EQ(server->counters().accepted, 1u);
}

TEST_F(HttpTlsTest, ARefusalReachesTheClientAndEndsTheConnection) {
  Start();
  const auto client = Client();
  const auto reply = client->Post("/echo", std::string((16 << 20) + 1, 'x'), "text/plain");
  EXPECT_TRUE(!reply || reply->status == 413);
  const auto next = client->Get("/nowhere");
  ASSERT_TRUE(next);
  EXPECT_EQ(next->status, 404);
}

TEST_F(HttpTlsTest, AClientWithoutTlsIsNotAnswered) {
  Start();
  RawHttp client(server->port());
  client.Send("GET /pieces HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.ReadToEnd().find("HTTP/1.1 200"), std::string::npos);
}

// A client that sends no bytes times out during the handshake.
TEST_F(HttpTlsTest, AMissingHandshakeTimesOut) {
  options.request_timeout_ms = 1;
  Start();
  RawHttp silent(server->port());
  EXPECT_EQ(silent.ReadToEnd(), "");
}

// A TLS client whose bytes the test sends.
class TlsClient {
 public:
  explicit TlsClient(int port) : raw(port), context_(SSL_CTX_new(TLS_client_method())) {
    tls_.reset(SSL_new(context_.get()));
    SSL_set_bio(tls_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));  // the SSL owns both
    SSL_set_connect_state(tls_.get());
  }
  // The bytes that TLS wants to send.
  std::string Unsent() {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(SSL_get_wbio(tls_.get()), &bytes);
    std::string unsent(bytes, static_cast<size_t>(size));
    EXPECT_EQ(BIO_reset(SSL_get_wbio(tls_.get())), 1);
    return unsent;
  }
  // The first bytes of a handshake.
  std::string Hello() {
    EXPECT_LT(SSL_do_handshake(tls_.get()), 0);
    return Unsent();
  }
  // Completes the handshake, and sends `bytes`. The server may close the connection before.
  void Begin(std::string_view bytes) {
    Write(bytes);
    raw.Send(Unsent());
  }
  // Completes the handshake, sends `request`, and returns the reply up to `end`. Sends one byte at
  // a time.
  std::string Ask(std::string_view request, std::string_view end) {
    Write(request);
    std::string reply;
    while (!reply.ends_with(end)) {
      char buffer[4096];
      const int got = SSL_read(tls_.get(), buffer, sizeof(buffer));
      if (got > 0) {
        reply.append(buffer, static_cast<size_t>(got));
      } else if (!Exchange()) {
        break;
      }
    }
    return reply;
  }

  RawHttp raw;

 private:
  // Completes the handshake, and encrypts `bytes`. Does not send the encrypted bytes.
  void Write(std::string_view bytes) {
    while (SSL_do_handshake(tls_.get()) != 1 && Exchange()) {
    }
    SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()));
  }
  // False: the connection has ended.
  bool Exchange() {
    for (const char byte : Unsent()) raw.Send({&byte, 1});
    const std::string received = raw.ReadSome();
    if (received.empty()) return false;
    return BIO_write(SSL_get_rbio(tls_.get()), received.data(), static_cast<int>(received.size())) >
           0;
  }

  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* tls) const { SSL_free(tls); }
  };
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> tls_;
};

constexpr char kEcho[] = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n";

TEST_F(HttpTlsTest, TheBytesOfAClientMayArriveOneByOne) {
  Start();
  TlsClient client(server->port());
  for (const std::string body : {"hi", "ho"}) {
    const std::string reply = client.Ask(kEcho + body, body);
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
    EXPECT_TRUE(reply.ends_with(body)) << reply;
  }
}

TEST_F(HttpTlsTest, TwoRequestsMayArriveTogether) {
  Start();
  TlsClient client(server->port());
  const std::string replies = client.Ask(kEcho + std::string("hi") + kEcho + "ho", "\r\n\r\nho");
  EXPECT_NE(replies.find("\r\n\r\nhi"), std::string::npos);
  EXPECT_TRUE(replies.ends_with("ho")) << replies;
}

TEST_F(HttpTlsTest, UnfinishedHandshakesBlockNoClient) {
  Start();
  std::vector<TlsClient> clients;
  for (int i = 0; i < 100; ++i) {
    clients.emplace_back(server->port());
    const std::string hello = clients.back().Hello();
    clients.back().raw.Send(std::string_view(hello).substr(0, hello.size() - i % 2));
    if (i % 4 < 2) clients.back().raw.EndSending();
  }
  TlsClient client(server->port());
  EXPECT_TRUE(client.Ask(kEcho + std::string("hi"), "hi").ends_with("hi"));
  server->Stop();
  EXPECT_EQ(server->counters().connections, 0u);
}

TEST_F(HttpTlsTest, ALateRequestGetsItsAnswer) {
  options.request_timeout_ms = 1000;
  Start();
  TlsClient client(server->port());
  const std::string head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
  const std::string reply = client.Ask(head + "late", "}");
  // On a busy machine, the handshake itself may be late. Such a client gets no answer.
  EXPECT_TRUE(reply.empty() || reply.starts_with("HTTP/1.1 408")) << reply;
  EXPECT_EQ(reply.empty(), server->counters().timed_out == 0);
}

// The server ends TLS while a read of TLS waits. If the server did not free the TLS state, each
// connection would leave 76 KiB behind.
TEST_F(HttpTlsTest, LateRequestsLeaveNoMemoryBehind) {
  options.request_timeout_ms = 300;
  Start();
  const auto leave_late_requests = [this](int count) {
    std::vector<TlsClient> clients;
    for (int i = 0; i < count; ++i) {
      clients.emplace_back(server->port());
      clients.back().Begin("POST /echo HTTP/1.1\r\n");
    }
    while (server->counters().connections > 0) std::this_thread::yield();
  };
  leave_late_requests(1);  // OpenSSL and the server hold memory after the first connection
  const size_t before = mallinfo2().uordblks;
  constexpr int kClients = 100;
  leave_late_requests(kClients);
  EXPECT_GT(server->counters().timed_out, 0u);
  EXPECT_LT(mallinfo2().uordblks, before + kClients * size_t{20000});
}

TEST_F(HttpTlsTest, OldVersionsAreRefused) {
  Start();
  const std::string connect =
      "openssl s_client -tls1_1 -cipher DEFAULT@SECLEVEL=0 -connect 127.0.0.1:" +
      std::to_string(server->port()) + " </dev/null >/dev/null 2>&1";
  EXPECT_NE(std::system(connect.c_str()), 0);
}

TEST_F(HttpTlsTest, IdleConnectionsAreClosed) {
  options.idle_timeout_ms = 1;
  Start();
  const auto client = Client();
  client->Get("/pieces");
  while (server->counters().connections > 0) std::this_thread::yield();
}

TEST_F(HttpTlsTest, StopEndsAllConnections) {
  Start();
  const auto client = Client();
  ASSERT_TRUE(client->Post("/echo", "hi", "text/plain"));
  server->Stop();
  EXPECT_EQ(server->counters().connections, 0u);
  EXPECT_FALSE(client->Post("/echo", "hi", "text/plain"));
}

TEST_F(HttpTlsTest, FilesThatCannotBeUsedAreNamed) {
  const auto error = [this] { return HttpServer::Start(options, {}).status(); };
  const std::string key = options.tls_key;
  options.tls_key = "";
  EXPECT_EQ(error().code(), StatusCode::kInvalidArgument);
  options.tls_key = folder_ + "/none.pem";
  EXPECT_EQ(error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(error().message().find("TLS key " + options.tls_key), std::string::npos);
  options.tls_key = key;
  std::ofstream(folder_ + "/bad.pem") << "no certificate";
  options.tls_certificate = folder_ + "/bad.pem";
  EXPECT_NE(error().message().find("TLS certificate " + options.tls_certificate),
            std::string::npos);
  options.tls_certificate = folder_ + "/none.pem";
  EXPECT_EQ(error().message(),
            "http: TLS certificate " + options.tls_certificate + ": No such file or directory");
}

// Each error is one line that names the file and the cause.
TEST_F(HttpTlsTest, InvalidFilesAreErrors) {
  const auto error = [this] {
    const Status status = HttpServer::Start(options, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    return status.message();
  };
  const auto make = [this](const std::string& command) {
    ASSERT_EQ(std::system(("cd " + folder_ + " && (" + command + ") >/dev/null 2>&1").c_str()), 0);
  };
  const std::string certificate = options.tls_certificate;
  const std::string key = options.tls_key;
  make("openssl genrsa -out other.pem 2048");
  options.tls_key = folder_ + "/other.pem";
  EXPECT_EQ(error(), "http: TLS key " + options.tls_key + ": does not belong to the certificate");
  make("openssl rsa -in key.pem -aes128 -passout pass:secret -out locked.pem");
  options.tls_key = folder_ + "/locked.pem";
  EXPECT_NE(error().find("locked.pem: not a PEM key without a password"), std::string::npos);
  options.tls_key = key;
  make(
      "openssl req -new -key key.pem -subj /CN=localhost -out request.pem && touch index && "
      "echo 01 > serial && printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\n"
      "new_certs_dir=.\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n' > ca.conf && "
      "openssl ca -batch -config ca.conf -selfsign -keyfile key.pem -in request.pem "
      "-startdate 20200101000000Z -enddate 20200102000000Z -out past.pem -notext && "
      "rm index index.* && touch index && "
      "openssl ca -batch -config ca.conf -selfsign -keyfile key.pem -in request.pem "
      "-startdate 20900101000000Z -enddate 20900102000000Z -out future.pem -notext");
  options.tls_certificate = folder_ + "/past.pem";
  EXPECT_EQ(error(), "http: TLS certificate " + options.tls_certificate + ": has expired");
  options.tls_certificate = folder_ + "/future.pem";
  EXPECT_EQ(error(), "http: TLS certificate " + options.tls_certificate + ": is not valid yet");
  options.tls_certificate = certificate;
  EXPECT_TRUE(HttpServer::Start(options, {}).ok());
}

}  // namespace
}  // namespace kvcast
