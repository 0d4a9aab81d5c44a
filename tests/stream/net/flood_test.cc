// Tests peers that send bytes without end. A publisher gets subscriptions, or parts of an endless
// message. A subscriber gets parts of an endless message. The connection of such a peer is ended.
// Other peers notice nothing.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "apps/conformance/frames/zmtp_peer.h"
#include "src/base/descriptor.h"
#include "src/stream/follow/endless_message.h"
#include "src/stream/follow/source_sockets.h"
#include "src/stream/net/frames.h"
#include "src/stream/net/receive_limit.h"
#include "src/stream/net/socket.h"
#include "src/stream/net/unfinished_bytes.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/frame_limit.h"
#include "tests/support/hostile_engine.h"
#include "tests/support/reserved_port.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

using kvcast::testing::EndsConnectionOfFrame;
using tools::ZmtpPeer;

constexpr WorkerId kGood(0);
constexpr WorkerId kHostile(1);
// Both ends of a TCP connection.
struct Connection {
  void Send(size_t bytes) {
    ASSERT_TRUE(SendAll(peer.get(), std::string(bytes, 'x')));
    std::string received(bytes, '\0');
    ASSERT_EQ(recv(own.get(), received.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
  }
  Listener listener;
  Descriptor peer = listener.Connect();
  Descriptor own = listener.Accept();
};

TEST(UnfinishedBytes, CountsTheBytesSinceTheLatestMessage) {
  Connection connection;
  UnfinishedBytes bytes(connection.own.get(), 0);
  EXPECT_EQ(bytes.Read(0), 0u);
  connection.Send(1000);
  EXPECT_EQ(bytes.Read(0), 1000u);
  connection.Send(50);
  EXPECT_EQ(bytes.Read(0), 1050u);
  bytes.NoteMessage();
  connection.Send(70);  // before the next Read: does not count
  EXPECT_EQ(bytes.Read(0), 0u);
  connection.Send(7);
  EXPECT_EQ(bytes.Read(0), 7u);
}

TEST(UnfinishedBytes, HeartbeatsAreFree) {
  Connection connection;
  UnfinishedBytes bytes(connection.own.get(), 0);
  for (int64_t second = 1; second <= 100; ++second) {
    connection.Send(UnfinishedBytes::kFreeBytesPerSecond);
    for (int64_t step = 0; step < 20; ++step) bytes.Read(second * 1000 + step * 50);
    EXPECT_LE(*bytes.Read(second * 1000 + 999), UnfinishedBytes::kFreeBytesPerSecond) << second;
  }
  connection.Send(10000);
  EXPECT_GE(*bytes.Read(101'000), 10000 - 2 * UnfinishedBytes::kFreeBytesPerSecond);
}

// The free bytes of a silent time are not kept for later.
TEST(UnfinishedBytes, SilenceGivesNoCredit) {
  Connection connection;
  UnfinishedBytes bytes(connection.own.get(), 0);
  EXPECT_EQ(bytes.Read(1'000'000'000), 0u);
  connection.Send(1000);
  EXPECT_GE(*bytes.Read(1'000'000'000), 999u);
}

TEST(UnfinishedBytes, AnotherConnectionWithTheSameDescriptorDoesNotCount) {
  auto first = std::make_optional<Connection>();
  const int descriptor = first->own.get();
  UnfinishedBytes bytes(descriptor, 0);
  Connection second;
  ASSERT_EQ(dup2(second.own.get(), descriptor), descriptor);
  second.Send(1000);
  EXPECT_EQ(bytes.Read(0), std::nullopt);
  EXPECT_FALSE(bytes.is_open());
  first.reset();
  EXPECT_EQ(bytes.Read(0), std::nullopt);
}

class EndlessMessageTest : public ::testing::Test {
 protected:
  using Verdict = EndlessMessage::Verdict;
  EndlessMessageTest() {
    message.Connect(fd(), 0);
    EXPECT_EQ(message.Check(0), Verdict::kNone);
  }
  int fd() const { return connection.own.get(); }
  Connection connection;
  EndlessMessage message{1000};
};

TEST_F(EndlessMessageTest, IsFoundWhenTheSocketWasEmptyAfterTheLimit) {
  connection.Send(1000);
  message.NoteEmpty();
  EXPECT_EQ(message.Check(0), Verdict::kNone);
  connection.Send(1);
  message.NoteEmpty();  // does not count: Check has not found the limit exceeded yet
  EXPECT_EQ(message.Check(0), Verdict::kLook);
  EXPECT_EQ(message.Check(0), Verdict::kLook);  // the owner has not called NoteEmpty since then
  message.NoteEmpty();
  EXPECT_EQ(message.Check(0), Verdict::kEndless);
}

TEST_F(EndlessMessageTest, UnreceivedMessagesAreNotAnEndlessMessage) {
  connection.Send(5000);
  EXPECT_EQ(message.Check(0), Verdict::kLook);
  message.NoteMessage(fd());
  message.NoteEmpty();
  EXPECT_EQ(message.Check(0), Verdict::kNone);
}

TEST_F(EndlessMessageTest, AMessageOfAnotherPeerDoesNotClearTheSuspect) {
  Connection other;
  message.Connect(other.own.get(), 0);
  connection.Send(5000);
  EXPECT_EQ(message.Check(0), Verdict::kLook);
  message.NoteMessage(other.own.get());
  message.NoteEmpty();
  EXPECT_EQ(message.Check(0), Verdict::kEndless);
  message.Disconnect(fd());
  message.NoteMessage(EndlessMessage::kUnknown);
  EXPECT_EQ(message.Check(0), Verdict::kEndless);  // until Clear
  message.Clear();
  EXPECT_EQ(message.Check(0), Verdict::kNone);
}

// libzmq's I/O thread copies at most about the size of this buffer at once, so that a large frame
// does not delay the messages of other sources. Linux doubles the size for its own data.
TEST(LiveSocket, HasASmallReceiveBuffer) {
  const Listener listener;
  Socket monitor;  // must be closed after its socket
  Socket live = MakeLiveSocket(Context::Create(), listener.endpoint(), {}).value();
  monitor = live.Monitor(ZMQ_EVENT_CONNECTED).value();
  ASSERT_TRUE(live.Connect(listener.endpoint()).ok());
  std::optional<MonitorEvent> connected;
  ASSERT_TRUE(Eventually([&] { return (connected = ReceiveMonitorEvent(monitor)).has_value(); }));
  int size = 0;
  socklen_t length = sizeof(size);
  const auto descriptor = static_cast<int>(connected->value);
  ASSERT_EQ(getsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, &length), 0);
  int max_size = 0;
  std::ifstream("/proc/sys/net/core/rmem_max") >> max_size;
  EXPECT_EQ(size, 2 * std::min(256 << 10, max_size));
}

// An address at which no publisher listens must not cost a packet every 100 ms.
TEST(LiveSocket, WaitsLongerAfterEachFailureToConnect) {
  const std::string endpoint = "tcp://127.0.0.1:1";
  Socket monitor;  // must be closed after its socket
  Socket live = MakeLiveSocket(Context::Create(), endpoint, {}).value();
  monitor = live.Monitor(ZMQ_EVENT_CONNECT_RETRIED).value();
  ASSERT_TRUE(live.Connect(endpoint).ok());
  uint32_t longest_ms = 0;
  ASSERT_TRUE(Eventually([&] {
    const std::optional<MonitorEvent> retried = ReceiveMonitorEvent(monitor);
    if (retried) longest_ms = std::max(longest_ms, retried->value);
    return longest_ms >= 1000;
  }));
  EXPECT_LT(longest_ms, 1200u);
}

// The event of a connection that the listener has accepted.
MonitorEvent Accepted(const Connection& connection, const Listener& listener) {
  return {ZMQ_EVENT_ACCEPTED, static_cast<uint32_t>(connection.own.get()), listener.endpoint()};
}

// Waits until the limit has ended a connection with too many bytes. The same check has read the
// other connections.
void EndAnother(ReceiveLimit& limit) {
  const uint64_t ended = limit.ended();
  Connection hostile;
  hostile.Send(5000);
  limit.OnEvent(Accepted(hostile, hostile.listener));
  EXPECT_TRUE(Eventually([&] { return limit.ended() == ended + 1; }));
}

// A connection was closed before its monitor event was read. A new, innocent connection has the
// descriptor of the closed connection.
TEST(ReceiveLimit, AnotherConnectionWithTheSameDescriptorStays) {
  ReceiveLimit limit(1000);
  Connection innocent;
  innocent.Send(5000);
  limit.OnEvent(Accepted(innocent, Listener()));
  limit.NoteMessage(innocent.own.get());
  EndAnother(limit);
  innocent.Send(5000);
  EndAnother(limit);
  innocent.Send(1);
}

TEST(ReceiveLimit, AMessageMayBeReceivedBeforeTheEventOfItsConnection) {
  ReceiveLimit limit(1000);
  Connection client;
  client.Send(5000);
  limit.NoteMessage(client.own.get());
  limit.OnEvent(Accepted(client, client.listener));
  EndAnother(limit);
  client.Send(1);
  EXPECT_EQ(limit.ended(), 1u);
}

// A publisher, and a subscriber that follows it without a gap.
struct Followed {
  explicit Followed(const PublisherConfig& config = TestPublisherConfig())
      : publisher(MakePublisher(config)) {}
  void Follow() {
    PublishUpTo(*publisher, 10);
    ASSERT_TRUE(AddSource(*subscriber, sink,
                          {kGood, publisher->endpoint(), publisher->replay_endpoint(), ""})
                    .ok());
    ASSERT_TRUE(sink.WaitFor(10));
    ASSERT_TRUE(
        Eventually([&] { return subscriber->status(kGood).state == SourceState::kSynced; }));
  }
  void ExpectNoGap() {
    const uint64_t end = publisher->next_seq().value + 10;
    PublishUpTo(*publisher, end);
    ASSERT_TRUE(sink.WaitFor(end));
    EXPECT_EQ(sink.deliveries(), Batches(0, end));
    EXPECT_EQ(subscriber->status(kGood).state, SourceState::kSynced);
  }
  bool Ended(uint64_t peers) const { return publisher->counters().flooding_peers >= peers; }

  std::unique_ptr<Publisher> publisher;
  RecordingSink sink;
  std::unique_ptr<Subscriber> subscriber = Subscriber::Create({}).value();
};

constexpr int kMaxTopics = 10'000'000;

// Subscribes to new topics until the server ends the connection. Returns the number of topics.
int SubscribeWithoutEnd(ZmtpPeer& peer) {
  for (int i = 0; i < kMaxTopics; ++i) {
    if (!peer.Subscribe("a topic that nothing has " + std::to_string(i)).ok()) return i;
  }
  return kMaxTopics;
}

// Row S4 of tests/RELIABILITY.md: a peer that subscribes without end.
TEST(Flood, ASubscriberWithTooManySubscriptionsIsDisconnected) {
  Followed followed;
  followed.Follow();
  auto peer = ZmtpPeer::Connect(followed.publisher->endpoint());
  ASSERT_TRUE(peer.ok() && peer->Handshake("SUB").ok());
  // A socket takes subscriptions only while it sends.
  std::atomic<bool> done{false};
  std::thread publishing([&] {
    while (!done) {
      PublishUpTo(*followed.publisher, followed.publisher->next_seq().value + 1);
      followed.sink.WaitFor(followed.publisher->next_seq().value);
    }
  });
  EXPECT_LT(SubscribeWithoutEnd(*peer), kMaxTopics);
  done = true;
  publishing.join();
  EXPECT_EQ(followed.publisher->counters().flooding_peers, 1u);
  followed.ExpectNoGap();
}

// A dashboard may subscribe to a thousand topics, and change them from time to time.
TEST(Flood, AThousandTopicsAreAllowed) {
  Followed followed;
  auto peer = ZmtpPeer::Connect(followed.publisher->endpoint());
  ASSERT_TRUE(peer.ok() && peer->Handshake("SUB").ok());
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(peer->Subscribe("kv@worker-0@model.gpu.group" + std::to_string(i)).ok());
  }
  auto hostile = ZmtpPeer::Connect(followed.publisher->endpoint());
  ASSERT_TRUE(hostile.ok() && hostile->Handshake("SUB").ok());
  SubscribeWithoutEnd(*hostile);
  // The limits were checked at least once after the thousand topics.
  EXPECT_TRUE(peer->Fence().ok());
  EXPECT_EQ(followed.publisher->counters().flooding_peers, 1u);
}

TEST(Flood, AnAdmittedSubscriberIsDisconnectedToo) {
  const CurveKeyPair client = NewKeys();
  const TestServer server(Line(kAllRoles, client));
  PublisherConfig config = TestPublisherConfig();
  config.curve = server.server();
  Followed followed(config);
  Socket sub = Socket::Create(Context::Create(), ZMQ_SUB).value();
  sub.Secure(CurveClient{client, server.key()});
  ASSERT_TRUE(sub.Connect(followed.publisher->endpoint()).ok());
  const std::string topic(1000, 't');
  for (int i = 0; i < 1000; ++i) sub.Subscribe(topic + std::to_string(i));
  EXPECT_TRUE(Eventually([&] {
    sub.ProcessCommands();  // a new connection gets the subscriptions in this call
    return followed.Ended(2);
  }));
}

// Like EndlessPart, but within 4 KiB, the longest frame that a publisher accepts from a subscriber.
std::string ShortEndlessPart() {
  std::string part("\x03\0\0\0\0\0\0\x0f\xa0", 9);
  return part + std::string(4000, 'x');
}

// Sends the bytes repeatedly. True: the server has ended the connection.
bool EndsConnection(ZmtpPeer& peer, const std::string& bytes) {
  for (size_t sent = 0; sent < kFloodBytes; sent += bytes.size()) {
    if (!peer.Send(bytes).ok()) return true;
  }
  return false;
}

TEST(Flood, PartsWithoutEndToAPublisher) {
  Followed followed;
  followed.Follow();
  auto subscriber = ZmtpPeer::Connect(followed.publisher->endpoint());
  ASSERT_TRUE(subscriber.ok() && subscriber->Handshake("SUB").ok());
  EXPECT_TRUE(EndsConnection(*subscriber, ShortEndlessPart()));
  auto client = ZmtpPeer::Connect(followed.publisher->replay_endpoint());
  ASSERT_TRUE(client.ok() && client->Handshake("DEALER").ok());
  EXPECT_TRUE(EndsConnection(*client, EndlessPart()));
  EXPECT_EQ(followed.publisher->counters().flooding_peers, 2u);
  followed.ExpectNoGap();
}

TEST(Flood, AFrameAboveTheLimitEndsTheConnection) {
  Followed followed;
  const std::string live = followed.publisher->endpoint();
  const std::string replay = followed.publisher->replay_endpoint();
  EXPECT_FALSE(EndsConnectionOfFrame(live, "SUB", 4 << 10));
  EXPECT_TRUE(EndsConnectionOfFrame(live, "SUB", (4 << 10) + 1));
  EXPECT_FALSE(EndsConnectionOfFrame(replay, "DEALER", 64 << 10));
  EXPECT_TRUE(EndsConnectionOfFrame(replay, "DEALER", (64 << 10) + 1));
}

// Whole requests are counted and refused by other limits.
TEST(Flood, AClientWithManyRequestsStaysConnected) {
  Followed followed;
  auto client = ZmtpPeer::Connect(followed.publisher->replay_endpoint());
  ASSERT_TRUE(client.ok() && client->Handshake("DEALER").ok());
  const std::string bad_request(1000, 'x');
  for (uint64_t sent = 1; sent <= 2000; ++sent) {
    ASSERT_TRUE(client->SendMessage({bad_request}).ok());
    if (sent % 100 > 0) continue;
    ASSERT_TRUE(Eventually([&] { return followed.publisher->counters().replay_rejects == sent; }));
  }
  auto hostile = ZmtpPeer::Connect(followed.publisher->replay_endpoint());
  ASSERT_TRUE(hostile.ok() && hostile->Handshake("DEALER").ok());
  EXPECT_TRUE(EndsConnection(*hostile, EndlessPart()));
  EXPECT_TRUE(client->Fence().ok());
  EXPECT_EQ(followed.publisher->counters().flooding_peers, 1u);
}

SubscriberConfig SmallFrames() {
  SubscriberConfig config;
  config.max_frame_bytes = 1 << 20;
  return config;
}

TEST(Flood, PartsWithoutEndFromAnEngine) {
  Followed followed;
  followed.subscriber = Subscriber::Create(SmallFrames()).value();
  followed.Follow();
  HostileEngine engine("PUB");
  RecordingSink hostile;
  ASSERT_TRUE(AddSource(*followed.subscriber, hostile, {kHostile, engine.endpoint(), "", ""}).ok());
  // The subscriber connects again.
  EXPECT_TRUE(Eventually([&] { return engine.ended() >= 3 || engine.failed(); }));
  EXPECT_FALSE(engine.failed());
  EXPECT_TRUE(Eventually([&] { return followed.subscriber->status(kHostile).bad_messages >= 2; }));
  followed.ExpectNoGap();
}

TEST(Flood, PartsWithoutEndInAReply) {
  Followed followed;
  followed.subscriber = Subscriber::Create(SmallFrames()).value();
  followed.Follow();
  HostileEngine engine("ROUTER");
  const auto live = MakePublisher(TestPublisherConfig());
  RecordingSink hostile;
  ASSERT_TRUE(
      AddSource(*followed.subscriber, hostile, {kHostile, live->endpoint(), engine.endpoint(), ""})
          .ok());
  EXPECT_TRUE(Eventually([&] { return engine.ended() >= 2 || engine.failed(); }));
  EXPECT_FALSE(engine.failed());
  followed.ExpectNoGap();
}

TEST(Flood, PartsWithoutEndToABoundSource) {
  const auto subscriber = Subscriber::Create(SmallFrames()).value();
  const kvcast::testing::ReservedPort port;
  RecordingSink sink;
  ASSERT_TRUE(
      AddSource(*subscriber, sink, {kHostile, port.endpoint(), "", "", /*bind=*/true}).ok());
  auto peer = ZmtpPeer::Connect(port.endpoint());
  ASSERT_TRUE(peer.ok() && peer->Handshake("PUB").ok());
  EXPECT_TRUE(EndsConnection(*peer, EndlessPart()));
  EXPECT_TRUE(Eventually([&] { return subscriber->status(kHostile).bad_messages > 0; }));
}

}  // namespace
}  // namespace kvcast::stream
