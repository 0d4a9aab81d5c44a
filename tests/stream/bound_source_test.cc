// A source can bind its endpoint, and publishers connect to this endpoint.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "apps/conformance/frames/zmtp_peer.h"
#include "tests/support/lossy_publisher.h"

namespace kvcast::stream {
namespace {

constexpr WorkerId kBound(0);

struct BoundSource : ::testing::Test {
  BoundSource() { subscriber = Subscriber::Create({}).value(); }

  // Adds the source on a port that a probe socket has just released.
  void Follow(const std::string& replay_endpoint = "") {
    Status added;
    for (int attempt = 0; attempt < 10; ++attempt) {
      Socket socket = Socket::Create(context, ZMQ_PUB).value();
      ASSERT_TRUE(socket.Bind("tcp://127.0.0.1:0").ok());
      endpoint = socket.last_endpoint();
      ASSERT_TRUE(zmq_unbind(socket.get(), endpoint.c_str()) == 0);
      added = Status();
      if (Eventually([&] { return (added = Add(replay_endpoint)).ok(); })) break;
    }
    ASSERT_TRUE(added.ok()) << added.ToString();
  }
  Status Add(const std::string& replay_endpoint) {
    return AddSource(*subscriber, sink, {kBound, endpoint, replay_endpoint, "", /*bind=*/true});
  }
  LossyPublisher::Config Connecting(int epoch = 0) const {
    LossyPublisher::Config config;
    config.endpoint = endpoint;
    config.connects = true;
    config.epoch = epoch;
    return config;
  }
  SourceStatus status() const { return subscriber->status(kBound); }
  void SendUntilSeen(LossyPublisher& publisher, const std::string& text) {
    EXPECT_TRUE(Eventually([&] {
      publisher.Send();
      const auto all = sink.deliveries();
      return std::any_of(all.begin(), all.end(),
                         [&](const std::string& one) { return one.starts_with(text); });
    })) << text;
  }

  std::shared_ptr<Context> context = Context::Create();
  RecordingSink sink;
  std::unique_ptr<Subscriber> subscriber;
  std::string endpoint;
};

TEST_F(BoundSource, ReceivesBatchesOfAPublisherThatConnects) {
  std::string replay_endpoint;
  {
    const LossyPublisher port;
    replay_endpoint = port.source().replay_endpoint;
  }
  Follow(replay_endpoint);
  LossyPublisher::Config config = Connecting();
  config.replay_endpoint = replay_endpoint;
  LossyPublisher publisher(config);
  for (int i = 0; i < 5; ++i) publisher.Send();
  ASSERT_TRUE(sink.WaitFor(5));
  publisher.Lose();
  publisher.Send();
  ASSERT_TRUE(sink.WaitFor(7));
  EXPECT_EQ(sink.deliveries(), Batches(0, 7));
  EXPECT_TRUE(Eventually([&] { return status().state == SourceState::kSynced; }));
  EXPECT_TRUE(status().bound);
}

TEST_F(BoundSource, FollowsTheNextPublisherWhenTheFirstHasGone) {
  Follow();
  {
    LossyPublisher first(Connecting(0));
    SendUntilSeen(first, "0.");
  }
  EXPECT_TRUE(Eventually([&] { return status().state == SourceState::kStale; }));
  LossyPublisher second(Connecting(1));
  SendUntilSeen(second, "1.");
  EXPECT_TRUE(Eventually([&] { return status().reconnects == 1; }));
}

// Any order of the messages is allowed, but between two resets the sink must get batches of only
// one publisher.
TEST_F(BoundSource, TwoPublishersAreNeverMixed) {
  Follow();
  {
    LossyPublisher first(Connecting(0));
    SendUntilSeen(first, "0.");
    LossyPublisher second(Connecting(1));
    EXPECT_TRUE(Eventually([&] {
      first.Send();
      second.Send();
      return status().reconnects >= 3;
    }));
  }
  LossyPublisher third(Connecting(2));
  SendUntilSeen(third, "2.");
  char epoch = 0;
  for (const std::string& delivery : sink.deliveries()) {
    if (delivery.starts_with("reset")) {
      epoch = 0;
    } else {
      EXPECT_TRUE(epoch == 0 || epoch == delivery[0])
          << delivery << " is a batch of another publisher";
      epoch = delivery[0];
    }
  }
}

TEST_F(BoundSource, StrangersChangeNothing) {
  Follow();
  LossyPublisher publisher(Connecting());
  SendUntilSeen(publisher, "0.");
  {
    auto silent = tools::ZmtpPeer::Connect(endpoint);
    ASSERT_TRUE(silent.ok());
    auto web = tools::ZmtpPeer::Connect(endpoint);
    ASSERT_TRUE(web.ok());
    ASSERT_TRUE(web->Send("GET / HTTP/1.1\r\n\r\n").ok());
  }
  auto stranger = tools::ZmtpPeer::Connect(endpoint);
  ASSERT_TRUE(stranger.ok());
  // A greeting with an unknown security mechanism: the subscriber closes the connection.
  std::string greeting =
      "\xff" + std::string(8, '\0') + "\x7f\x03" + std::string(1, '\0') + "BOGUS";
  greeting.resize(64, '\0');
  ASSERT_TRUE(stranger->Send(greeting).ok());
  EXPECT_FALSE(stranger->ReceiveAtLeast(1 << 20).ok());
  const uint64_t next = publisher.next_seq();
  publisher.Send();
  EXPECT_TRUE(Eventually([&] { return status().next_seq == next + 1; }));
  EXPECT_EQ(status().reconnects, 0u);
  EXPECT_EQ(status().resets, 0u);
}

TEST_F(BoundSource, EndpointThatCannotBeBoundIsAnError) {
  Socket taken = Socket::Create(context, ZMQ_PUB).value();
  ASSERT_TRUE(taken.Bind("tcp://127.0.0.1:0").ok());
  endpoint = taken.last_endpoint();
  EXPECT_EQ(Add("").message(), "cannot bind " + endpoint + ": Address already in use");
  EXPECT_EQ(Add("").code(), StatusCode::kUnavailable);
  for (const auto& [bad, why] :
       {std::pair("ipc:///tmp/kvcast-bound", "bind needs a tcp endpoint"),
        std::pair("tcp://127.0.0.1:*", "bind needs a fixed port"),
        std::pair("tcp://127.0.0.1:0", "bind needs a fixed port"),
        std::pair("tcp://localhost:5557", "needs an address of this machine, not a name"),
        std::pair("tcp://127.0.0.1:port", "Invalid argument")}) {
    endpoint = bad;
    EXPECT_EQ(Add("").message(), "cannot bind " + endpoint + ": " + why);
    EXPECT_EQ(Add("").code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kvcast::stream
