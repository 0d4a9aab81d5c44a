// The time that the server spends on a client is linear in the received bytes. The bytes that the
// server holds are bounded. A client never blocks the thread of the health checks.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/clock.h"
#include "src/http/http_server.h"
#include "src/http/request_reader.h"
#include "tests/http/patient_options.h"
#include "tests/http/raw_http.h"

namespace kvcast {
namespace {

using kvcast::testing::PatientOptions;
using kvcast::testing::RawHttp;

constexpr char kHead[] = "POST /echo HTTP/1.1\r\nHost: localhost\r\n";

std::string Repeated(const std::string& text, size_t bytes) {
  std::string repeated;
  while (repeated.size() < bytes) repeated += text;
  return repeated;
}

std::string Chunks(const std::string& chunk, size_t bytes) {
  return kHead + std::string("Transfer-Encoding: chunked\r\n\r\n") + Repeated(chunk, bytes) +
         "0\r\n\r\n";
}

// The smallest chunks that the server accepts in any number.
std::string SmallChunks(size_t bytes) {
  return Chunks("10\r\n" + std::string(16, 'x') + "\r\n", bytes);
}

constexpr size_t kSocketRead = 16 << 10;  // maximum bytes of one read

// The CPU time of the fastest of five runs. The bytes arrive in pieces of `piece_bytes` bytes.
int64_t ReadNs(const std::string& text, size_t piece_bytes = kSocketRead) {
  int64_t fastest = std::numeric_limits<int64_t>::max();
  for (int run = 0; run < 5; ++run) {
    RequestReader reader({});
    boost::beast::flat_buffer input;
    const int64_t begin = ThreadCpuNs();
    for (size_t offset = 0; offset < text.size(); offset += piece_bytes) {
      const std::string_view piece = std::string_view(text).substr(offset, piece_bytes);
      const auto room = input.prepare(piece.size());
      std::copy(piece.begin(), piece.end(), static_cast<char*>(room.data()));
      input.commit(piece.size());
      reader.Read(input);
    }
    fastest = std::min(fastest, ThreadCpuNs() - begin);
    EXPECT_EQ(reader.state(), RequestReader::State::kComplete);
  }
  return fastest;
}

// A linear reader takes 4 times as long, a quadratic reader 16 times.
TEST(HttpBounds, FourTimesTheBytesCostFourTimesTheTime) {
  constexpr size_t kMiB = 1 << 20;
  const int64_t one = ReadNs(SmallChunks(kMiB));
  const int64_t four = ReadNs(SmallChunks(4 * kMiB));
  EXPECT_LT(four, 8 * one) << one << " ns for a MiB";
}

// A reader that moves the bytes for each line or chunk would take 16 times as long.
TEST(HttpBounds, ManyLinesInOneReadCostNoMoreThanInSmallReads) {
  constexpr size_t kMiB = 1 << 20;
  const int64_t apart = ReadNs(SmallChunks(kMiB), kSocketRead / 16);
  EXPECT_LT(ReadNs(SmallChunks(kMiB)), 4 * apart) << apart << " ns in small pieces";
}

// Memory of an unfinished request.
size_t HeldBy(const std::string& text) {
  RequestReader reader({});
  boost::beast::flat_buffer input;
  const auto room = input.prepare(text.size());
  std::copy(text.begin(), text.end(), static_cast<char*>(room.data()));
  input.commit(text.size());
  reader.Read(input);
  return reader.held_bytes() + input.size();
}

int StatusAfter(const std::string& text) {
  RequestReader reader({});
  boost::beast::flat_buffer input;
  const auto room = input.prepare(text.size());
  std::copy(text.begin(), text.end(), static_cast<char*>(room.data()));
  input.commit(text.size());
  return reader.Read(input) == RequestReader::State::kBad ? reader.error().status : 0;
}

TEST(HttpBounds, EmptyLinesAreLimitedInNumber) {
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(StatusAfter(Repeated("\r\n", 32) + request), 0);
  EXPECT_EQ(StatusAfter(Repeated("\r\n", 34) + request), 400);
}

TEST(HttpBounds, HeadersAndNamesInTheQueryAreLimitedInNumber) {
  const auto fields = [](size_t count) {
    return "GET / HTTP/1.1\r\nHost: localhost\r\n" + Repeated("X: y\r\n", 6 * count) + "\r\n";
  };
  EXPECT_EQ(StatusAfter(fields(127)), 0);
  EXPECT_EQ(StatusAfter(fields(128)), 431);
  const auto names = [](int count) {
    std::string target = "/?";
    for (int i = 0; i < count; ++i) target += std::to_string(i) + "&";
    return "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  };
  EXPECT_EQ(StatusAfter(names(128)), 0);
  EXPECT_EQ(StatusAfter(names(129)), 400);
}

// A header or a name in the query takes more memory than its bytes.
TEST(HttpBounds, AHeadCountsWithTheMemoryOfItsHeaders) {
  std::string head = kHead + std::string("Content-Length: 9\r\n");
  for (int i = 100; i < 200; ++i) head += "X" + std::to_string(i) + ":\r\n";
  EXPECT_GT(HeldBy(head), head.size() + 99 * sizeof(std::pair<std::string, std::string>));
  head += "\r\n";
  EXPECT_GT(HeldBy(head), head.size() + 100 * sizeof(std::pair<std::string, std::string>));
  EXPECT_EQ(HeldBy(head + "body"), HeldBy(head) + 4);
}

TEST(HttpBounds, SmallChunksAreLimitedInNumber) {
  const std::string chunk = "1\r\nx\r\n";
  EXPECT_EQ(StatusAfter(Chunks(chunk, 1024 * chunk.size())), 0);
  EXPECT_EQ(StatusAfter(Chunks(chunk, 1025 * chunk.size())), 400);
  EXPECT_EQ(StatusAfter(SmallChunks(1 << 20)), 0);
}

// The head and the chunk lines arrive byte by byte. The time per byte must not grow.
TEST(HttpBounds, BytesThatComeOneByOneCostTheSameEach) {
  const auto read_ns = [](size_t bytes, const std::string& head) {
    const std::string text = head + std::string(bytes, 'x');
    int64_t fastest = std::numeric_limits<int64_t>::max();
    for (int run = 0; run < 5; ++run) {
      RequestReader reader({.max_head_bytes = 1 << 20});
      boost::beast::flat_buffer input;
      const int64_t begin = ThreadCpuNs();
      for (const char byte : text) {
        *static_cast<char*>(input.prepare(1).data()) = byte;
        input.commit(1);
        reader.Read(input);
      }
      fastest = std::min(fastest, ThreadCpuNs() - begin);
      EXPECT_NE(reader.state(), RequestReader::State::kBad);
    }
    return fastest;
  };
  for (const std::string& head :
       {std::string(kHead) + "X: ", std::string(kHead) + "Transfer-Encoding: chunked\r\n\r\n1;"}) {
    EXPECT_LT(read_ns(64000, head), 8 * read_ns(16000, head));
  }
}

class HttpBoundsTest : public ::testing::Test {
 protected:
  using Method = HttpRoute::Method;
  using Lane = HttpRoute::Lane;

  // More than the buffers of a loopback connection hold.
  static constexpr size_t kLargeReply = 20 << 20;

  void Start(const HttpOptions& options = PatientOptions()) {
    const auto wait = [this](std::atomic<int>& waiting) {
      ++waiting;
      while (!release) std::this_thread::yield();
      return HttpReply{.body = "waited"};
    };
    server =
        HttpServer::Start(
            options,
            {{Method::kPost, "/echo",
              [](const HttpRequest& request) { return HttpReply{.body = request.body}; },
              Lane::kQuery, size_t{16} << 20},
             {Method::kPost, "/wait", [=, this](const HttpRequest&) { return wait(querying); },
              Lane::kQuery, size_t{16} << 20},
             {Method::kPost, "/small", [](const HttpRequest&) { return HttpReply(); }},
             {Method::kGet, "/query", [=, this](const HttpRequest&) { return wait(querying); }},
             {Method::kGet, "/state", [=, this](const HttpRequest&) { return wait(observing); },
              Lane::kObserver},
             {Method::kPost, "/change", [=, this](const HttpRequest&) { return wait(changing); },
              Lane::kChange},
             {Method::kGet, "/large",
              [](const HttpRequest&) {
                return HttpReply{.body = std::string(kLargeReply, 'y') + "end"};
              }},
             {Method::kGet, "/healthz", [](const HttpRequest&) { return HttpReply{.body = "ok"}; },
              Lane::kHealth}})
            .value();
  }
  void ExpectHealthy() {
    httplib::Client client("127.0.0.1", server->port());
    const auto reply = client.Get("/healthz");
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->body, "ok");
  }
  int StatusOf(RawHttp& client) {
    const std::string head = client.ReadUpTo("\r\n\r\n");
    return head.size() < 12 ? 0 : std::stoi(head.substr(9, 3));
  }
  // Opens a connection and sends the request.
  RawHttp Client(const std::string& request) {
    RawHttp client(server->port());
    EXPECT_TRUE(client.Send(request));
    return client;
  }
  static std::string Head(size_t bytes, const std::string& path = "/echo") {
    return "POST " + path +
           " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n";
  }

  std::atomic<int> querying{0};
  std::atomic<int> observing{0};
  std::atomic<int> changing{0};
  std::atomic<bool> release{false};
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpBoundsTest, OtherClientsAreAnsweredWhileOneClientSendsSlowly) {
  Start();
  std::atomic<bool> done{false};
  std::thread sending([&] {
    RawHttp client(server->port());
    EXPECT_TRUE(client.Send(SmallChunks(4 << 20)));
    EXPECT_EQ(StatusOf(client), 200);
    done = true;
  });
  do {
    ExpectHealthy();
  } while (!done);
  sending.join();
}

// All threads for large queries wait, and more large queries are queued.
TEST_F(HttpBoundsTest, LargeQueriesDelayNoOtherQuery) {
  HttpOptions options = PatientOptions();
  options.threads = 2;
  Start(options);
  std::vector<std::unique_ptr<RawHttp>> large;
  for (int i = 0; i < 4; ++i) {
    large.push_back(std::make_unique<RawHttp>(server->port()));
    large.back()->Send(Head(HttpRoute::kLargeBody + 1, "/wait") +
                       std::string(HttpRoute::kLargeBody + 1, 'x'));
  }
  while (querying == 0) std::this_thread::yield();
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    RawHttp small(server->port());
    small.Send(Head(4, "/echo") + "body");
    EXPECT_EQ(StatusOf(small), 200);
  }
  EXPECT_EQ(querying, 1);
  release = true;
  for (const auto& client : large) EXPECT_EQ(StatusOf(*client), 200);
}

TEST_F(HttpBoundsTest, ARouteRefusesABodyAboveItsLimit) {
  Start();
  const size_t max_body = HttpRoute::kSmallBody;
  for (const std::string path : {"/small", "/nowhere"}) {
    RawHttp fits(server->port());
    fits.Send(Head(max_body, path) + std::string(max_body, 'x'));
    EXPECT_EQ(StatusOf(fits), path == "/small" ? 200 : 404);
    RawHttp longer(server->port());
    longer.Send(Head(max_body + 1, path));
    EXPECT_EQ(StatusOf(longer), 413) << path;
  }
  RawHttp longest(server->port());
  longest.Send(Head((16 << 20) + 1));
  EXPECT_EQ(StatusOf(longest), 413);
}

TEST_F(HttpBoundsTest, AHealthCheckWaitsForNoQueryAndNoObserver) {
  HttpOptions options = PatientOptions();
  options.threads = 2;
  Start(options);
  std::vector<RawHttp> clients;
  for (int i = 0; i < 20; ++i) {
    clients.emplace_back(server->port());
    clients.back().Send(i % 2 == 0 ? "GET /query HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                   : "GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  while (querying < 2 || observing < 1) std::this_thread::yield();
  ExpectHealthy();
  release = true;
  for (RawHttp& client : clients) EXPECT_TRUE(client.ReadUpTo("waited").ends_with("waited"));
}

TEST_F(HttpBoundsTest, ObserversHoldUpNoQuery) {
  Start();
  std::vector<RawHttp> observers;
  for (int i = 0; i < 20; ++i) {
    observers.emplace_back(server->port());
    observers.back().Send("GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  while (observing == 0) std::this_thread::yield();
  httplib::Client client("127.0.0.1", server->port());
  EXPECT_EQ(client.Post("/echo", "answer", "text/plain")->body, "answer");
  release = true;
}

// The lane of the observers waits until the thread of the sockets has taken the previous reply.
// Otherwise thousands of large replies could be ready at the same time, and the thread of the
// sockets would send all these replies before it reads from other clients.
TEST_F(HttpBoundsTest, AnObserversReplyIsTakenBeforeTheNextReplyIsMade) {
  std::atomic<int> answers{0};
  HttpOptions options = PatientOptions();
  options.on_answer = [&](const HttpAnswer& answer) {
    if (answer.route != "/state") return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the lane could go on meanwhile
    EXPECT_EQ(observing, ++answers);
  };
  release = true;
  Start(options);
  std::vector<RawHttp> observers;
  for (int i = 0; i < 20; ++i) {
    observers.push_back(Client("GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }
  for (RawHttp& observer : observers) EXPECT_EQ(StatusOf(observer), 200);
  server->Stop();
  EXPECT_EQ(answers, 20);
}

// A registration or removal waits for the thread that applies events.
TEST_F(HttpBoundsTest, ChangesHoldUpOnlyChanges) {
  Start();
  std::vector<RawHttp> changes;
  for (int i = 0; i < 20; ++i) {
    changes.emplace_back(server->port());
    changes.back().Send(Head(0, "/change"));
  }
  while (changing == 0) std::this_thread::yield();
  ExpectHealthy();
  httplib::Client client("127.0.0.1", server->port());
  EXPECT_EQ(client.Post("/echo", "answer", "text/plain")->body, "answer");
  RawHttp observer(server->port());
  observer.Send("GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n");
  while (observing == 0) std::this_thread::yield();
  EXPECT_EQ(changing, 1) << "the lane has one thread";
  release = true;
}

// Uploads that lack one byte hold memory until they time out. The server still answers later
// requests. If the bound is exceeded, the server closes the largest upload.
TEST_F(HttpBoundsTest, UnfinishedUploadsDoNotBlockOtherRequests) {
  constexpr size_t kBytes = 200000;
  constexpr uint64_t kUploads = 17;
  const std::string upload = Head(kBytes) + std::string(kBytes - 1, 'x');
  const uint64_t each = HeldBy(upload);
  HttpOptions options = PatientOptions();
  options.max_held_bytes = 16 * each + 1000;
  Start(options);
  std::vector<RawHttp> uploads;
  for (uint64_t i = 1; i <= kUploads; ++i) {
    uploads.emplace_back(server->port());
    ASSERT_TRUE(uploads.back().Send(upload));
    const uint64_t refused = i == kUploads ? 1 : 0;
    while (server->counters().refused_bytes != refused) std::this_thread::yield();
    const uint64_t held = (i - refused) * each;
    while (server->counters().held_bytes != held) std::this_thread::yield();
  }
  EXPECT_EQ(server->counters().refused_bytes, 1u);
  EXPECT_EQ(StatusOf(uploads[0]), 503);  // the oldest of the largest uploads
  httplib::Client client("127.0.0.1", server->port());
  for (int i = 0; i < 20; ++i) {
    const auto reply = client.Post("/echo", std::string(20000, 'y'), "text/plain");
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 200);
  }
  EXPECT_EQ(server->counters().refused_bytes, 2u);  // one upload was closed to make room
  EXPECT_EQ(StatusOf(uploads[1]), 503);
  for (size_t i = 2; i < uploads.size(); ++i) {
    ASSERT_TRUE(uploads[i].Send("x"));
    EXPECT_EQ(StatusOf(uploads[i]), 200) << i;
  }
}

TEST_F(HttpBoundsTest, ALargeUploadIsClosedBeforeSmallerUploads) {
  HttpOptions options = PatientOptions();
  options.max_held_bytes = 150000;
  Start(options);
  const std::string few = Head(30000) + std::string(29999, 'x');
  const std::string many = Head(110000) + std::string(109999, 'x');
  RawHttp small(server->port());
  small.Send(few);
  while (server->counters().held_bytes != HeldBy(few)) std::this_thread::yield();
  RawHttp large(server->port());
  large.Send(many);
  while (server->counters().held_bytes != HeldBy(few) + HeldBy(many)) std::this_thread::yield();
  RawHttp newcomer(server->port());
  newcomer.Send(Head(20000) + std::string(20000, 'x'));
  EXPECT_EQ(StatusOf(newcomer), 200);
  EXPECT_EQ(StatusOf(large), 503);
  small.Send("x");
  EXPECT_EQ(StatusOf(small), 200);
}

TEST_F(HttpBoundsTest, HeadsAreHeldWithinTheBound) {
  HttpOptions options = PatientOptions();
  options.max_held_bytes = 200000;
  Start(options);
  std::string head = Head(1000);
  head.insert(head.size() - 2, "X: " + std::string(10000, 'y') + "\r\n");
  std::vector<RawHttp> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(Client(head));
  EXPECT_EQ(StatusOf(clients[0]), 503);
  EXPECT_LE(server->counters().held_bytes, options.max_held_bytes);
}

// The server does not need the body for its answer, so it must not hold the body.
TEST_F(HttpBoundsTest, ARequestWithoutARouteIsAnsweredBeforeItsBody) {
  Start();
  RawHttp nowhere = Client(Head(1000, "/nowhere"));
  EXPECT_EQ(StatusOf(nowhere), 404);
  RawHttp method = Client(Head(1000, "/healthz"));
  EXPECT_EQ(StatusOf(method), 405);
  RawHttp complete = Client(Head(4, "/nowhere") + "body" + Head(4, "/echo") + "body");
  EXPECT_EQ(StatusOf(complete), 404);
  EXPECT_NE(complete.ReadUpTo("\r\n\r\nbody").find("HTTP/1.1 200"), std::string::npos);
}

// The server closes the oldest reply. Requests of other clients are not refused.
TEST_F(HttpBoundsTest, RepliesThatAreNotReadCauseNoRefusedRequest) {
  HttpOptions options = PatientOptions();
  options.max_held_bytes = 2 * kLargeReply + 10000;  // two replies
  Start(options);
  std::vector<RawHttp> clients;
  for (uint64_t i = 1; i <= 6; ++i) {
    clients.push_back(
        Client("GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    while (server->counters().held_bytes < std::min<uint64_t>(i, 2) * kLargeReply ||
           server->counters().refused_bytes + 2 < i) {
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(server->counters().refused_bytes, 4u);
  EXPECT_LE(server->counters().held_bytes, options.max_held_bytes);
  RawHttp other = Client(Head(20000) + std::string(20000, 'x'));
  EXPECT_EQ(StatusOf(other), 200);
  EXPECT_LT(clients[0].ReadToEnd().size(), kLargeReply);
  EXPECT_TRUE(clients[5].ReadToEnd().ends_with("end"));
}

// The client reads without a pause, but slowly.
TEST_F(HttpBoundsTest, AReplyHasATimeLimit) {
  HttpOptions options = PatientOptions();
  options.reply_timeout_ms = 50;
  Start(options);
  RawHttp slow = Client("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::atomic<bool> done{false};
  std::thread reading([&] {
    while (!done && !slow.ReadUpTo("x").empty()) {
    }
  });
  while (server->counters().timed_out == 0) std::this_thread::yield();
  done = true;
  reading.join();
  while (server->counters().connections > 0) std::this_thread::yield();
}

// After the drain timeout, the server has closed all connections. No client could get the replies
// of the requests that still wait.
TEST_F(HttpBoundsTest, StopRunsNoHandlerAfterTheDrainTimeout) {
  HttpOptions options = PatientOptions();
  options.threads = 1;
  options.drain_timeout_ms = 1;
  Start(options);
  std::vector<RawHttp> clients;
  for (int i = 0; i < 20; ++i)
    clients.push_back(Client("GET /query HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  while (querying == 0) std::this_thread::yield();
  std::thread stopping([this] { server->Stop(); });
  while (server->counters().connections > 0) std::this_thread::yield();
  release = true;
  stopping.join();
  EXPECT_EQ(querying, 1);
}

// Some clients send an empty line after a request. The next request has its own time.
TEST_F(HttpBoundsTest, AnEmptyLineBeginsNoRequest) {
  HttpOptions options = PatientOptions();
  options.request_timeout_ms = 1;
  Start(options);
  RawHttp client = Client(Head(4) + "body\r\n");
  EXPECT_EQ(StatusOf(client), 200);
  RawHttp late = Client("G");
  EXPECT_EQ(StatusOf(late), 408) << "the server has looked for late requests";
  client.Send(Head(4) + "body");
  EXPECT_NE(client.ReadUpTo("\r\n\r\nbody").find("HTTP/1.1 200"), std::string::npos);
}

// The server closes a few late connections at a time, and serves other connections in between. In
// the end, the server has closed all late connections.
TEST_F(HttpBoundsTest, ManyLateConnectionsAreClosed) {
  HttpOptions options = PatientOptions();
  options.request_timeout_ms = 100;
  Start(options);
  std::vector<RawHttp> late;
  for (int i = 0; i < 300; ++i) late.push_back(Client("G"));
  for (RawHttp& client : late) EXPECT_EQ(StatusOf(client), 408);
  ExpectHealthy();
}

// The number of files that the file table of this process can hold.
size_t FileTableSize() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t size = 0;
    if (word == "FDSize:" && status >> size) return size;
  }
  return 0;
}

// If the table grew while clients connect, each growth would delay all clients by many
// milliseconds. The table never shrinks, so the test needs a process without earlier servers.
TEST(HttpBoundsDeathTest, TheFileTableHasRoomForAllConnections) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = [] {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    HttpOptions options = PatientOptions();
    options.max_connections = 4 * FileTableSize();
    const auto server = HttpServer::Start(options, {});
    const size_t size = FileTableSize();
    std::cerr << "connections " << options.max_connections << ", file table " << size;
    std::exit(server.ok() && size >= options.max_connections ? 0 : 1);
  };
  EXPECT_EXIT(start(), ::testing::ExitedWithCode(0), "file table");
}

// After its answer to a late request, the server still reads, so that the client gets the answer.
// The server then holds no bytes of the request.
TEST_F(HttpBoundsTest, ALateRequestHoldsNoBytes) {
  HttpOptions options = PatientOptions();
  options.request_timeout_ms = 300;
  Start(options);
  RawHttp client = Client(Head(60000) + std::string(50000, 'x'));
  EXPECT_EQ(StatusOf(client), 408);
  // The client may have read the answer before the server stops to count the bytes of the answer.
  while (server->counters().held_bytes != 0) std::this_thread::yield();
}

// One request alone exceeds the bound, so the server cannot make room by closing another request.
TEST_F(HttpBoundsTest, ARequestAboveTheBoundAloneIsRefused) {
  HttpOptions options = PatientOptions();
  options.max_held_bytes = 50000;
  Start(options);
  RawHttp client(server->port());
  client.Send(Head(60000) + std::string(60000, 'x'));
  EXPECT_EQ(StatusOf(client), 503);
  ExpectHealthy();
}

}  // namespace
}  // namespace kvcast
