// Rows S2 and S3 of tests/RELIABILITY.md. Strangers are clients that are not on the access list.
// They fail many handshakes per second, or keep many handshakes open. Clients on the list lose no
// batch, and new clients are served.
//
// The strangers are in a process of their own. KVCAST_HANDSHAKES sets the number of failed
// handshakes (default: 600), KVCAST_HALF_OPEN the number of half-open connections (default: 600).
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "apps/support/forked_process.h"
#include "src/stream/follow/source_sockets.h"
#include "tests/fault/fault_test.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/setting.h"

namespace kvcast::stream {
namespace {

using tools::ForkedProcess;
using tools::PipeEnd;

constexpr int kTimeoutMs = 600'000;
constexpr double kHandshakesPerSecond = 1100;

// The addresses and the public key of the attacked publisher.
struct Server {
  std::array<char, 64> live{};
  std::array<char, 64> replay{};
  std::array<char, 64> key{};
};

Server ServerOf(const Publisher& publisher, const TestServer& server) {
  Server addresses;
  publisher.endpoint().copy(addresses.live.data(), addresses.live.size() - 1);
  publisher.replay_endpoint().copy(addresses.replay.data(), addresses.replay.size() - 1);
  server.key().copy(addresses.key.data(), addresses.key.size() - 1);
  return addresses;
}

// Connects with keys that are not on the list, kHandshakesPerSecond times a second, until the
// process is killed. A socket of libzmq does not try again after such a refusal, so each try has a
// new socket.
int FailHandshakes(const PipeEnd& in, const PipeEnd& /*out*/) {
  constexpr size_t kAtOnce = 128;
  Server server;
  if (!in.Get(server, kTimeoutMs)) return 1;
  const auto context = Context::Create();
  SourceSocketOptions options;
  options.max_frame_bytes = 1 << 20;
  options.curve = CurveClient{NewKeys(), server.key.data()};
  std::array<Socket, kAtOnce> sockets;
  const Stopwatch since;
  for (size_t made = 0;; ++made) {
    while (since.seconds() * kHandshakesPerSecond < static_cast<double>(made)) usleep(500);
    Socket& socket = sockets[made % kAtOnce];
    socket.Close();
    const bool live = made % 2 == 0;
    const std::string endpoint = live ? server.live.data() : server.replay.data();
    auto opened = live ? MakeLiveSocket(context, endpoint, options)
                       : MakeReplaySocket(context, endpoint, options);
    if (!opened.ok()) return 1;
    socket = std::move(opened).value();
    if (!socket.Connect(endpoint).ok()) return 1;
  }
}

// A TCP connection that sends the greeting of a CURVE client, one byte at a time, and never ends
// the greeting. So the server must close the connection because of its age.
class SlowStranger {
 public:
  explicit SlowStranger(const std::string& endpoint) {
    const std::string_view digits = std::string_view(endpoint).substr(endpoint.rfind(':') + 1);
    uint16_t port = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), port);
    address_.sin_family = AF_INET;
    address_.sin_port = htons(port);
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  SlowStranger(SlowStranger&& other) noexcept
      : address_(other.address_),
        socket_(std::exchange(other.socket_, -1)),
        sent_(std::exchange(other.sent_, 0)) {}
  SlowStranger& operator=(SlowStranger&&) = delete;
  ~SlowStranger() { Close(); }

  // Sends the next byte, and connects first if the server has closed the connection. False: the
  // connection could not be made.
  bool Step() {
    static constexpr std::string_view kGreeting("\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE", 17);
    static constexpr size_t kGreetingBytes = 64;  // zeros follow
    if (socket_ >= 0 && IsClosed()) {
      Close();
      ++closed_;
    }
    if (socket_ < 0) {
      socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (socket_ < 0) return false;
      if (connect(socket_, reinterpret_cast<sockaddr*>(&address_), sizeof(address_)) != 0) {
        Close();
        return false;
      }
    }
    if (sent_ + 1 == kGreetingBytes) return true;
    const char byte = sent_ < kGreeting.size() ? kGreeting[sent_] : '\0';
    ++sent_;
    return send(socket_, &byte, 1, MSG_NOSIGNAL) == 1;
  }
  uint64_t closed() const { return closed_; }

 private:
  bool IsClosed() const {
    std::array<char, 128> bytes{};
    for (;;) {
      const ssize_t got = recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got > 0) continue;
      return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    }
  }
  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
    sent_ = 0;
  }

  sockaddr_in address_{};
  int socket_ = -1;
  size_t sent_ = 0;
  uint64_t closed_ = 0;
};

struct HalfOpen {
  uint64_t connections = 0;
  uint64_t closed = 0;  // by the server, since the start
};

// Keeps connections half open until the process is killed. Reports after each byte.
int KeepHalfOpen(const PipeEnd& in, const PipeEnd& out) {
  Server server;
  if (!in.Get(server, kTimeoutMs)) return 1;
  const auto count = static_cast<uint64_t>(testing::Setting("KVCAST_HALF_OPEN", 600));
  std::vector<SlowStranger> strangers;
  strangers.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    strangers.emplace_back(i % 2 == 0 ? server.live.data() : server.replay.data());
  }
  for (;;) {
    const Stopwatch since_byte;
    HalfOpen report;
    for (SlowStranger& stranger : strangers) {
      report.connections += stranger.Step();
      report.closed += stranger.closed();
    }
    if (!out.Put(report)) return 0;
    while (since_byte.seconds() < 1) {  // row S3: 1 byte per second
      usleep(10'000);
    }
  }
}

class HandshakesTest : public ::testing::Test {
 protected:
  // Must be called before any thread starts.
  void StartStrangers(int (*run)(const PipeEnd&, const PipeEnd&)) {
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    auto started = ForkedProcess::Start(run);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    strangers_ = std::move(started).value();
    server_ = std::make_unique<TestServer>(Line(kAllRoles, client_));
    PublisherConfig config = TestPublisherConfig();
    config.curve = server_->server();
    publisher_ = MakePublisher(config);
  }
  void Attack() { ASSERT_TRUE(strangers_->to().Put(ServerOf(*publisher_, *server_))); }

  // Receives the next report of the strangers, if there is one.
  void Update(HalfOpen& report) {
    if (!strangers_->from().Ready()) return;
    EXPECT_TRUE(strangers_->from().Get(report, kTimeoutMs));
  }

  struct Client {
    RecordingSink sink;
    std::unique_ptr<Subscriber> subscriber;
  };
  std::unique_ptr<Client> Follow() {
    auto client = std::make_unique<Client>();
    SubscriberConfig config;
    config.curve_keys = client_;
    client->subscriber = Subscriber::Create(config).value();
    EXPECT_TRUE(AddSource(*client->subscriber, client->sink,
                          {kWorker, publisher_->endpoint(), publisher_->replay_endpoint(), "",
                           /*bind=*/false, server_->key()})
                    .ok());
    return client;
  }
  // Publishes batches while `continues` returns true. Publishes a batch after the client has
  // received the previous batch. Returns the longest time until the client had a batch, in seconds.
  // `work`: the number of handshakes or connections of the strangers in this time. It decides the
  // time limit.
  double PublishWhile(Client& client, uint64_t work, const std::function<bool()>& continues) {
    double longest = 0;
    const double time_limit_s = 120 + static_cast<double>(work) / 50;
    const Stopwatch since;
    while (continues() && !HasFailure()) {
      EXPECT_LT(since.seconds(), time_limit_s) << "the strangers have not done their work";
      const Stopwatch delay;
      const uint64_t end = publisher_->next_seq().value + 1;
      PublishUpTo(*publisher_, end);
      EXPECT_TRUE(client.sink.WaitFor(end));
      longest = std::max(longest, delay.seconds());
      usleep(1000);
    }
    return longest;
  }
  void ExpectUndisturbed(Client& client) {
    const uint64_t end = publisher_->next_seq().value;
    EXPECT_EQ(client.sink.deliveries(), Batches(0, end));
    const SourceStatus status = client.subscriber->status(kWorker);
    EXPECT_EQ(status.gaps, 0u);
    EXPECT_EQ(status.reconnects, 0u);
    EXPECT_EQ(status.failed_handshakes, 0u);
  }
  void ExpectANewClientIsServed(const char* row) {
    const Stopwatch join;
    const auto late = Follow();
    const uint64_t end = publisher_->next_seq().value;
    ASSERT_TRUE(Eventually([&] {
      const SourceStatus status = late->subscriber->status(kWorker);
      return status.next_seq >= end;
    })) << late->subscriber->status(kWorker).next_seq
        << " of " << end;
    Figure(row, "time until a new client has the newest batch", join.seconds(), 1, "s");
    EXPECT_EQ(late->subscriber->status(kWorker).failed_handshakes, 0u);
  }

  static constexpr WorkerId kWorker{0};
  const CurveKeyPair client_ = NewKeys();
  std::unique_ptr<ForkedProcess> strangers_;
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<Publisher> publisher_;
};

TEST_F(HandshakesTest, FailedHandshakesDisturbNoClient) {
  StartStrangers(&FailHandshakes);
  const auto client = Follow();
  PublishUpTo(*publisher_, 10);
  ASSERT_TRUE(client->sink.WaitFor(10));
  const auto wanted = static_cast<uint64_t>(testing::Setting("KVCAST_HANDSHAKES", 600));
  Attack();
  const Stopwatch attack;
  const double longest = PublishWhile(
      *client, wanted, [&] { return publisher_->counters().refused.not_allowed < wanted; });
  const double rate = static_cast<double>(wanted) / attack.seconds();
  Figure("S2", "failed handshakes", rate, 1000, "/s");
  Figure("S2", "longest delay of a batch", 1000 * longest, 0, "ms");
  ExpectANewClientIsServed("S2");
  ExpectUndisturbed(*client);
}

TEST_F(HandshakesTest, HalfOpenConnectionsDisturbNoClientAndAreClosed) {
  StartStrangers(&KeepHalfOpen);
  const auto client = Follow();
  PublishUpTo(*publisher_, 10);
  ASSERT_TRUE(client->sink.WaitFor(10));
  Attack();
  // The server closes a connection 5 s after its start. Until then, all are open.
  HalfOpen report;
  uint64_t max_open = 0;
  const auto wanted = static_cast<uint64_t>(testing::Setting("KVCAST_HALF_OPEN", 600));
  const double longest = PublishWhile(*client, wanted, [&] {
    Update(report);
    max_open = std::max(max_open, report.connections);
    return report.closed == 0;
  });
  ExpectANewClientIsServed("S3");
  PublishWhile(*client, wanted, [&] {
    Update(report);
    return report.closed < wanted;
  });
  Figure("S3", "half-open connections", static_cast<double>(max_open), 10000, "");
  Figure("S3", "longest delay of a batch", 1000 * longest, 0, "ms");
  ExpectUndisturbed(*client);
}

}  // namespace
}  // namespace kvcast::stream
