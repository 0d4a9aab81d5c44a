// LoadSharing publishes once per period and soon after a change, and connects again to its peers.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/load/load_sharing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "router/service/load/peer_link.h"
#include "tests/support/curve_test_util.h"
#include "tests/support/frame_limit.h"
#include "tests/support/hostile_engine.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::stream::Eventually;
using kvcast::stream::TemporaryFolder;

constexpr int64_t kPeriodMs = 100;

struct LoadSharingTest : ::testing::Test {
  void Start(std::vector<LoadPeer> peers = {}, const std::string& endpoint = "") {
    LoadSharingConfig config;
    config.endpoint = endpoint.empty() ? EndpointOf("self") : endpoint;
    config.peers = std::move(peers);
    config.period_ms = kPeriodMs;
    config.name = "self";
    config.epoch = 1;
    config.now_us = [this] {
      ++clock_reads;
      return now_us += clock_step_us;
    };
    auto created = LoadSharing::Create(
        config, {.own = [this] { return Own(); },
                 .set_others =
                     [this](const OriginLoad& sum) {
                       ++applied;
                       prompts = sum.workers.empty() ? 0 : sum.workers[0].load.prompts;
                     },
                 .set_view = [this](const PeerView& view) { routers = view.routers; }});
    ASSERT_TRUE(created.ok()) << created.status().ToString();
    sharing = std::move(created).value();
  }
  OriginLoad Own() const {
    OriginLoad own;
    for (size_t i = 0; i < workers; ++i) {
      own.workers.push_back({std::to_string(100000 + i), {.prompts = 1, .prompt_tokens = 5}});
    }
    return own;
  }
  std::string EndpointOf(const std::string& name) const { return "ipc://" + folder.File(name); }
  bool HasSent(uint64_t messages) const {
    return Eventually([&] { return sharing->counters().sent == messages; });
  }

  const TemporaryFolder folder;
  std::atomic<int64_t> now_us{5'000'000};
  std::atomic<int64_t> clock_step_us{0};  // time that passes at each read of the clock
  // Reads of the clock: one in each round of the thread, and one after each message.
  std::atomic<int> clock_reads{0};
  std::atomic<size_t> workers{1};
  std::atomic<int> applied{0};  // sums given to the selector
  std::atomic<int64_t> prompts{0};
  std::atomic<size_t> routers{0};
  std::unique_ptr<LoadSharing> sharing;  // uses the other members
};

TEST_F(LoadSharingTest, AFrameAboveTheLimitEndsTheConnection) {
  Start({}, "tcp://127.0.0.1:0");
  EXPECT_FALSE(kvcast::testing::EndsConnectionOfFrame(sharing->endpoint(), "SUB", 4 << 10));
  EXPECT_TRUE(kvcast::testing::EndsConnectionOfFrame(sharing->endpoint(), "SUB", (4 << 10) + 1));
}

TEST_F(LoadSharingTest, PublishesOncePerPeriodWithoutAChange) {
  Start();
  ASSERT_TRUE(HasSent(1));
  for (uint64_t messages = 2; messages < 6; ++messages) {
    now_us += kPeriodMs * 1000;
    ASSERT_TRUE(HasSent(messages));
  }
  EXPECT_EQ(sharing->counters().received, 0u);
}

TEST_F(LoadSharingTest, PublishesTenChangesPerPeriodAtMost) {
  Start();
  ASSERT_TRUE(HasSent(1));
  for (int i = 0; i < 1000; ++i) sharing->NoteChange();
  ASSERT_TRUE(Eventually([&, before = clock_reads.load()] { return clock_reads >= before + 2; }));
  EXPECT_EQ(sharing->counters().sent, 1u) << "no message is due";
  now_us += kPeriodMs * 100;
  ASSERT_TRUE(HasSent(2)) << "the changes are one message";
  now_us += kPeriodMs * 100;
  sharing->NoteChange();
  ASSERT_TRUE(HasSent(3)) << "a message is due, and needs no further time";
  now_us += kPeriodMs * 1000;
  ASSERT_TRUE(HasSent(4));
}

// The sum may have the load of a worker that the selector did not know before.
TEST_F(LoadSharingTest, GivesTheSelectorTheSumOncePerPeriodWithoutAChange) {
  Start();
  for (int sums = 1; sums < 5; ++sums) {
    now_us += kPeriodMs * 1000;
    ASSERT_TRUE(Eventually([&] { return applied == sums; }));
  }
}

TEST_F(LoadSharingTest, ALoadThatIsTooLargeIsCounted) {
  workers = kMaxGaugeWorkers + 1;
  Start();
  ASSERT_TRUE(Eventually([&] { return sharing->counters().unsent == 1; }));
  EXPECT_EQ(sharing->counters().sent, 0u);
  workers = 1;
  now_us += kPeriodMs * 1000;
  EXPECT_TRUE(HasSent(1));
}

// libzmq keeps each subscription, so the router ends the connection of such a peer.
TEST_F(LoadSharingTest, ASubscriberWithTooManySubscriptionsIsDisconnected) {
  Start({}, "tcp://127.0.0.1:0");
  zmq::context_t context;
  zmq::socket_t hostile(context, zmq::socket_type::sub);
  hostile.set(zmq::sockopt::linger, 0);
  hostile.connect(sharing->endpoint());
  const std::string topic(1000, 't');
  for (int i = 0; i < 1000; ++i) {
    hostile.set(zmq::sockopt::subscribe, topic + std::to_string(i));
  }
  EXPECT_TRUE(Eventually([&] { return sharing->counters().flooding_peers >= 1; }));
}

TEST_F(LoadSharingTest, NoteChangeMayFollowStop) {
  Start();
  sharing->Stop();
  sharing->NoteChange();
  sharing->Stop();
}

struct PeerTest : LoadSharingTest {
  PeerTest() : pub(context, zmq::socket_type::pub) {
    pub.set(zmq::sockopt::linger, 0);
    pub.bind(EndpointOf("peer"));
  }
  void Send(int64_t waiting) {
    const auto bytes =
        EncodeGauge({.origin = "peer",
                     .epoch = 1,
                     .seq = ++seq,
                     .period_ms = kPeriodMs,
                     .load = {.workers = {{"w", {.prompts = waiting, .prompt_tokens = 1}}}}});
    pub.send(zmq::buffer(*bytes), zmq::send_flags::none);
  }
  // Sends messages until a message arrives. The first messages may precede the subscription. The
  // clock advances, because the selector gets a new sum only some time after a message.
  bool Arrives(int64_t waiting) {
    return Eventually([&] {
      Send(waiting);
      now_us += kPeriodMs * 50;
      return prompts == waiting && routers == 1;
    });
  }

  zmq::context_t context;
  zmq::socket_t pub;
  uint64_t seq = 0;
};

TEST_F(PeerTest, TheLoadOfAPeerIsGivenToTheSelectorUntilThePeerIsSilent) {
  Start({{.endpoint = EndpointOf("peer"), .server_key = ""}});
  ASSERT_TRUE(Arrives(3));
  ASSERT_TRUE(Arrives(2));
  EXPECT_TRUE(Eventually([&] {  // a late message also shows that the peer runs
    now_us += kPeriodMs * 100;
    return prompts == 0 && routers == 0;
  }));
}

// Each read of the clock advances the clock by one period. So the load is due in each round of the
// thread, and the time limit of a read ends after each message.
TEST_F(PeerTest, ManyMessagesOfPeersDoNotDelayTheOwnLoad) {
  constexpr size_t kPeers = 8;
  Start(std::vector<LoadPeer>(kPeers, {.endpoint = EndpointOf("peer"), .server_key = ""}));
  ASSERT_TRUE(Arrives(3));
  clock_step_us = kPeriodMs * 1000;
  const LoadSharingCounters before = sharing->counters();
  ASSERT_TRUE(Eventually([&] {
    for (int i = 0; i < 200; ++i) Send(3);
    return sharing->counters().received >= before.received + 500;
  }));
  const LoadSharingCounters after = sharing->counters();
  // The read in progress may take one message before the next load is sent.
  EXPECT_LE(after.received - before.received, after.sent - before.sent + 1);
}

// If a frame is too long, libzmq ends the connection and does not connect again.
TEST_F(PeerTest, APeerThatWasCutOffIsConnectedAgain) {
  Start({{.endpoint = EndpointOf("peer"), .server_key = ""}});
  ASSERT_TRUE(Arrives(3));
  pub.send(zmq::message_t(kMaxGaugeBytes + 1), zmq::send_flags::none);
  ASSERT_TRUE(Eventually([&] {
    now_us += kPeriodMs * 100;
    return routers == 0;
  }));
  now_us += PeerLink::kReopenMs * 1000;
  EXPECT_TRUE(Arrives(4));
}

// The message of the peer does not end. The test stops the clock before the link connects again to
// a silent peer.
TEST_F(LoadSharingTest, TheConnectionOfAnEndlessMessageIsEnded) {
  const stream::HostileEngine peer("PUB");
  Start({{.endpoint = peer.endpoint(), .server_key = ""}});
  const int64_t stop_us = now_us + (PeerLink::kReopenMs - 500) * 1000;
  EXPECT_TRUE(Eventually([&] {
    if (now_us < stop_us) now_us += 1000;
    return peer.ended() > 0 || peer.failed();
  }));
  EXPECT_FALSE(peer.failed());
}

}  // namespace
}  // namespace kvcast::router
