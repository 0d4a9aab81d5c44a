// Tests publishers and subscribers with CURVE over real sockets: which clients are admitted, which
// clients are refused and counted, and how a client loses its access.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "apps/conformance/frames/zmtp_peer.h"
#include "src/base/sanitizers.h"
#include "src/residency/extension.h"
#include "src/stream/follow/source_sockets.h"
#include "src/stream/net/frames.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

using tools::ZmtpPeer;

constexpr WorkerId kWorker(0);

std::unique_ptr<Publisher> SecurePublisher(const TestServer& server) {
  PublisherConfig config = TestPublisherConfig();
  config.curve = server.server();
  return MakePublisher(config);
}

// A subscriber with keys of its own, and its sink.
struct Follower {
  explicit Follower(const std::optional<CurveKeyPair>& keys) {
    SubscriberConfig config;
    config.curve_keys = keys;
    subscriber = Subscriber::Create(config).value();
  }
  Status Follow(const Publisher& publisher, const std::string& server_key) {
    return AddSource(*subscriber, sink,
                     {kWorker, publisher.endpoint(), publisher.replay_endpoint(), "",
                      /*bind=*/false, server_key});
  }
  SourceStatus status() const { return subscriber->status(kWorker); }
  bool Has(uint64_t batches) const { return status().next_seq == batches; }

  RecordingSink sink;
  std::unique_ptr<Subscriber> subscriber;
};

// Publishes until `condition` holds.
bool PublishUntil(Publisher& publisher, const std::function<bool()>& condition) {
  return Eventually([&] {
    PublishUpTo(publisher, publisher.next_seq().value + 1);
    return condition();
  });
}

TEST(Curve, AClientOnTheListFollows) {
  const CurveKeyPair client = NewKeys();
  const TestServer server(Line(kAllRoles, client));
  const auto publisher = SecurePublisher(server);
  PublishUpTo(*publisher, 100);
  Follower follower(client);
  ASSERT_TRUE(follower.Follow(*publisher, server.key()).ok());
  ASSERT_TRUE(follower.sink.WaitFor(100));
  PublishUpTo(*publisher, 110);
  ASSERT_TRUE(follower.sink.WaitFor(110));
  EXPECT_EQ(follower.sink.deliveries(), Batches(0, 110));
  EXPECT_TRUE(Eventually([&] { return follower.status().state == SourceState::kSynced; }));
  EXPECT_EQ(follower.status().failed_handshakes, 0u);
  EXPECT_EQ(publisher->counters().refused.no_key, 0u);
  EXPECT_EQ(publisher->counters().refused.wrong_server_key, 0u);
  EXPECT_EQ(publisher->counters().refused.not_allowed, 0u);
  EXPECT_EQ(publisher->counters().replay_denied, 0u);
}

struct CurveRefusal : ::testing::Test {
  // Expects that the follower gets nothing, and that a valid client is not affected.
  void ExpectRefused(Follower& refused, const std::string& server_key,
                     uint64_t RefusedConnections::*counter) {
    Follower valid(client);
    ASSERT_TRUE(valid.Follow(*publisher, server.key()).ok());
    ASSERT_TRUE(refused.Follow(*publisher, server_key).ok());
    EXPECT_TRUE(PublishUntil(*publisher, [&] {
      return publisher->counters().refused.*counter >= 4 && valid.sink.deliveries().size() > 100;
    }));
    const RefusedConnections counts = publisher->counters().refused;
    EXPECT_EQ(counts.total() - counts.broken, counts.*counter);
    EXPECT_EQ(refused.sink.deliveries(), Texts());
    EXPECT_EQ(refused.status().state, SourceState::kConnecting);
    EXPECT_TRUE(Eventually([&] { return refused.status().failed_handshakes > 0; }));
    const std::vector<std::string> all = valid.sink.deliveries();
    EXPECT_EQ(all, Batches(0, all.size()));
    EXPECT_EQ(valid.status().reconnects, 0u);
  }

  const CurveKeyPair client = NewKeys();
  const TestServer server{Line(kAllRoles, client)};
  const std::unique_ptr<Publisher> publisher = SecurePublisher(server);
};

TEST_F(CurveRefusal, AClientThatIsNotOnTheList) {
  Follower stranger(NewKeys());
  ExpectRefused(stranger, server.key(), &RefusedConnections::not_allowed);
}

TEST_F(CurveRefusal, AClientWithAnotherServerKey) {
  Follower misled(client);
  ExpectRefused(misled, NewKeys().public_key, &RefusedConnections::wrong_server_key);
}

TEST_F(CurveRefusal, AClientWithoutAKey) {
  Follower plain(std::nullopt);
  ExpectRefused(plain, "", &RefusedConnections::no_key);
}

TEST_F(CurveRefusal, ASourceWithWrongKeysIsAnError) {
  Follower keyless(std::nullopt);
  EXPECT_EQ(keyless.Follow(*publisher, server.key()).message(),
            "server_key is set, but the subscriber has no curve_keys");
  Follower follower(client);
  EXPECT_EQ(follower.Follow(*publisher, "short").message(),
            "server_key: a key has 40 characters, not 5");
}

// The publisher has no CURVE, and the subscriber expects a key of the publisher.
TEST(Curve, ASubscriberDoesNotTrustAServerWithoutTheKey) {
  const auto publisher = MakePublisher(TestPublisherConfig());
  Follower follower(NewKeys());
  ASSERT_TRUE(follower.Follow(*publisher, NewKeys().public_key).ok());
  EXPECT_TRUE(PublishUntil(*publisher, [&] { return follower.status().failed_handshakes >= 3; }));
  EXPECT_EQ(follower.sink.deliveries(), Texts());
}

TEST(Curve, ARevokedClientIsCutOffAndTheOthersGoOn) {
  const CurveKeyPair stays = NewKeys();
  const CurveKeyPair leaves = NewKeys();
  const TestServer server(Line(kAllRoles, stays) + Line(kAllRoles, leaves));
  const auto publisher = SecurePublisher(server);
  Follower valid(stays);
  Follower revoked(leaves);
  ASSERT_TRUE(valid.Follow(*publisher, server.key()).ok());
  ASSERT_TRUE(revoked.Follow(*publisher, server.key()).ok());
  ASSERT_TRUE(PublishUntil(*publisher, [&] {
    return valid.sink.deliveries().size() > 10 && revoked.sink.deliveries().size() > 10;
  }));
  server.SetList(Line(kAllRoles, stays));
  // The revoked client was cut off from both sockets, and was refused when it connected again.
  ASSERT_TRUE(Eventually([&] { return publisher->counters().refused.not_allowed > 0; }));
  ASSERT_TRUE(Eventually([&] { return revoked.status().failed_handshakes > 0; }));
  const std::vector<std::string> before = revoked.sink.deliveries();
  const uint64_t end = publisher->next_seq().value + 100;
  PublishUpTo(*publisher, end);
  EXPECT_TRUE(Eventually([&] { return valid.Has(end); }));
  EXPECT_EQ(valid.sink.deliveries(), Batches(0, end));
  EXPECT_EQ(revoked.sink.deliveries(), before);
  server.SetList(Line(kAllRoles, stays) + Line(kAllRoles, leaves));
  EXPECT_TRUE(Eventually([&] { return revoked.Has(end); }));
}

// A DEALER of a client. Ask sends a request. It returns the number of batches before the next END,
// and whether END has a status.
class Requester {
 public:
  Requester(const Publisher& publisher, const CurveKeyPair& keys, const std::string& server_key)
      : socket_(MakeReplaySocket(Context::Create(), publisher.replay_endpoint(),
                                 {.topic = "",
                                  .recv_hwm = 0,
                                  .max_frame_bytes = 1 << 20,
                                  .curve = CurveClient{keys, server_key}})
                    .value()) {
    EXPECT_TRUE(socket_.Connect(publisher.replay_endpoint()).ok());
  }
  struct Answer {
    int batches = 0;
    bool status = false;  // END has a status
  };
  void Send(Frame start) {
    socket_.Send({}, /*more=*/true);
    socket_.Send(start, /*more=*/false);
  }
  Answer Ask(Frame start) {
    Send(start);
    Answer answer;
    EXPECT_TRUE(Eventually([&] {
      while (socket_.Receive(message_) == RecvResult::kMessage) {
        const Reply reply = ParseReply(message_.frames());
        if (reply.kind == ReplyKind::kBatch) ++answer.batches;
        answer.status = !reply.batch.payload.empty();
        if (reply.kind == ReplyKind::kEnd) return true;
      }
      return false;
    }));
    return answer;
  }

 private:
  Socket socket_;
  Multipart message_;
};

TEST(Curve, EachRequestNeedsItsRole) {
  const CurveKeyPair replays = NewKeys();
  const CurveKeyPair snapshots = NewKeys();
  const TestServer server(Line("replay", replays) + Line("snapshot", snapshots));
  const auto publisher = SecurePublisher(server);
  PublishUpTo(*publisher, 3);
  const auto status = residency::EncodeRequest({.verb = residency::Verb::kStatus});
  const auto snapshot =
      residency::EncodeRequest({.verb = residency::Verb::kSnapshot, .argument = UINT64_MAX});
  const auto replay = residency::EncodeRequest({.verb = residency::Verb::kReplay});
  Requester replay_requester(*publisher, replays, server.key());
  EXPECT_EQ(replay_requester.Ask(EncodeSeq(0)).batches, 3);
  EXPECT_EQ(replay_requester.Ask(replay).batches, 3);
  EXPECT_TRUE(replay_requester.Ask(status).status);
  EXPECT_FALSE(replay_requester.Ask(snapshot).status);
  EXPECT_EQ(publisher->counters().replay_denied, 1u);
  Requester snapshot_requester(*publisher, snapshots, server.key());
  EXPECT_EQ(snapshot_requester.Ask(EncodeSeq(0)).batches, 0);
  EXPECT_EQ(snapshot_requester.Ask(replay).batches, 0);
  EXPECT_TRUE(snapshot_requester.Ask(status).status);
  EXPECT_TRUE(snapshot_requester.Ask(snapshot).status);
  EXPECT_EQ(publisher->counters().replay_denied, 3u);
}

// Without a rate, the answers fill the memory of the publisher if the client does not read.
TEST(Curve, DeniedRequestsCountForTheRateOfTheirClient) {
  const CurveKeyPair client = NewKeys();
  const TestServer server(Line("snapshot", client));
  PublisherConfig config = TestPublisherConfig();
  config.curve = server.server();
  config.replay_requests_per_s = 1;
  const auto publisher = MakePublisher(config);
  Requester flooding(*publisher, client, server.key());
  for (int i = 0; i < 500; ++i) flooding.Send(EncodeSeq(0));
  ASSERT_TRUE(Eventually([&] { return publisher->counters().replay_denied >= 500; }));
  EXPECT_TRUE(Eventually([&] {
    flooding.Send(EncodeSeq(0));
    return publisher->counters().replay_delays > 0 && publisher->counters().replay_dropped > 0;
  }));
}

// The greeting of a CURVE client: signature, version, mechanism, not a server, filler.
std::string CurveGreeting() {
  std::string greeting("\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE", 17);
  greeting.resize(64);
  return greeting;
}

// Strangers (clients that are not on the access list) connect and do not complete the handshake:
// they send nothing, a part of the greeting, or the greeting alone.
TEST(Curve, HalfOpenConnectionsStopNoClientAndAreClosed) {
  const CurveKeyPair client = NewKeys();
  const TestServer server(Line(kAllRoles, client));
  const auto publisher = SecurePublisher(server);
  Follower early(client);
  ASSERT_TRUE(early.Follow(*publisher, server.key()).ok());
  PublishUpTo(*publisher, 10);
  ASSERT_TRUE(early.sink.WaitFor(10));
  std::vector<ZmtpPeer> strangers;
  for (int i = 0; i < 200; ++i) {
    for (const std::string& endpoint : {publisher->endpoint(), publisher->replay_endpoint()}) {
      auto stranger = ZmtpPeer::Connect(endpoint, /*timeout_ms=*/60000);
      ASSERT_TRUE(stranger.ok()) << stranger.status().ToString();
      const size_t sent[] = {0, 11, 64};
      ASSERT_TRUE(stranger->Send(CurveGreeting().substr(0, sent[i % 3])).ok());
      strangers.push_back(std::move(stranger).value());
    }
  }
  PublishUpTo(*publisher, 500);
  ASSERT_TRUE(early.sink.WaitFor(500));
  Follower late(client);
  ASSERT_TRUE(late.Follow(*publisher, server.key()).ok());
  ASSERT_TRUE(late.sink.WaitFor(500));
  EXPECT_EQ(early.sink.deliveries(), Batches(0, 500));
  EXPECT_EQ(late.sink.deliveries(), Batches(0, 500));
  EXPECT_EQ(early.status().reconnects, 0u);
  // A server that kept a connection would let the read time out.
  for (ZmtpPeer& stranger : strangers) {
    const std::string end = stranger.ReceiveAtLeast(1 << 20).message();
    ASSERT_NE(end, "the server sent no more bytes in time");
    EXPECT_LE(stranger.received().size(), 64u) << "a stranger gets the greeting at most";
  }
}

// The publisher connects and the subscriber binds. The publisher is still the CURVE server.
TEST(Curve, APublisherThatConnectsIsTheServer) {
  const CurveKeyPair client = NewKeys();
  const TestServer server(Line(kAllRoles, client));
  Socket probe = Socket::Create(Context::Create(), ZMQ_PUB).value();
  ASSERT_TRUE(probe.Bind("tcp://127.0.0.1:0").ok());
  const std::string port = probe.last_endpoint().substr(std::string("tcp://127.0.0.1").size());
  // A publisher connects to an endpoint with a host name, and binds a numeric loopback address.
  PublisherConfig config = TestPublisherConfig();
  config.endpoint = "tcp://localhost" + port;
  config.replay_endpoint.clear();
  config.curve = server.server();
  const auto publisher = MakePublisher(config);
  // The probe has no keys, so the handshake fails, and libzmq gives up the connection.
  ASSERT_TRUE(Eventually([&] { return publisher->counters().refused.no_key > 0; }));
  probe.Close();
  Follower follower(client);
  Status added;
  ASSERT_TRUE(Eventually([&] {
    added = AddSource(*follower.subscriber, follower.sink,
                      {kWorker, "tcp://127.0.0.1" + port, "", "", /*bind=*/true, server.key()});
    return added.ok();
  })) << added.ToString();
  EXPECT_TRUE(PublishUntil(*publisher, [&] { return !follower.sink.deliveries().empty(); }));
}

// Sends the bytes over one connection after the other, until the server has taken `total` bytes or
// has closed `closes` connections.
void Flood(const std::string& endpoint, const std::string& greeting, const std::string& bytes,
           size_t total, int closes) {
  size_t sent = 0;
  for (int i = 0; i < closes && sent < total; ++i) {
    Result<ZmtpPeer> peer = ZmtpPeer::Connect(endpoint);
    if (!peer.ok() || !peer->Send(greeting).ok()) continue;
    while (sent < total && peer->Send(bytes).ok()) sent += bytes.size();
  }
}

std::string Greeting(const std::string& mechanism) {
  std::string greeting = "\xff" + std::string(8, '\0') + "\x7f\x03" + std::string(1, '\1');
  greeting += mechanism;
  greeting.resize(64, '\0');
  return greeting;
}

// A part of a message that never ends: 60 kB, with the flags "more" and "long".
std::string EndlessPart() {
  std::string part("\x03\0\0\0\0\0\0\xea\x60", 9);
  return part + std::string(60000, 'x');
}

constexpr size_t kFloodBytes = 300 << 20;
constexpr size_t kMaxGrowth = 100 << 20;  // a third of the flood

TEST(CurveFlood, PeersWithoutAKeyDoNotFillTheMemory) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps freed memory";
  const CurveKeyPair client = NewKeys();
  const TestServer server(Line(kAllRoles, client));
  const auto publisher = SecurePublisher(server);
  PublishUpTo(*publisher, 1);
  const size_t before = ResidentBytes();
  for (const std::string& endpoint : {publisher->endpoint(), publisher->replay_endpoint()}) {
    for (const std::string& mechanism : {std::string("NULL"), std::string("CURVE")}) {
      Flood(endpoint, Greeting(mechanism), EndlessPart(), kFloodBytes, /*closes=*/50);
    }
    // One frame of 300 MiB.
    Flood(endpoint, Greeting("CURVE") + std::string("\x02\0\0\0\0\x12\xc0\0\0", 9),
          std::string(1 << 20, 'x'), kFloodBytes, /*closes=*/2);
  }
  EXPECT_LT(ResidentBytes(), before + kMaxGrowth);
  EXPECT_GT(publisher->counters().refused.total(), 0u);
  Follower valid(client);
  ASSERT_TRUE(valid.Follow(*publisher, server.key()).ok());
  EXPECT_TRUE(valid.sink.WaitFor(1));
}

// The size of one frame is also limited without CURVE.
TEST(CurveFlood, AnOversizedSubscriptionEndsItsConnection) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps freed memory";
  const auto publisher = MakePublisher(TestPublisherConfig());
  auto peer = ZmtpPeer::Connect(publisher->endpoint());
  ASSERT_TRUE(peer.ok() && peer->Handshake("SUB").ok());
  const size_t before = ResidentBytes();
  ASSERT_TRUE(peer->Send(std::string("\x02\0\0\0\0\x12\xc0\0\0", 9)).ok());
  size_t sent = 0;
  while (sent < kFloodBytes && peer->Send(std::string(1 << 20, '\1')).ok()) sent += 1 << 20;
  EXPECT_LT(sent, kFloodBytes);
  EXPECT_LT(ResidentBytes(), before + kMaxGrowth);
}

}  // namespace
}  // namespace kvcast::stream
