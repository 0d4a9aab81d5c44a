// Tests the answers of a publisher to a replay client. The answers follow the recorded protocol,
// and no loss is silent.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <thread>

#include "src/base/sanitizers.h"
#include "src/stream/publish/replay_server.h"
#include "tests/stream/peer_test_util.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

using tools::ZmtpPeer;

const FrameTexts kEndMarker = {"", "", SeqText(kEndSeq), ""};

ZmtpPeer Connect(const Publisher& publisher, const std::string& type = "DEALER") {
  Result<ZmtpPeer> peer = ZmtpPeer::Connect(publisher.replay_endpoint());
  EXPECT_TRUE(peer.ok()) << peer.status().ToString();
  EXPECT_TRUE(peer->Handshake(type).ok());
  return std::move(peer).value();
}

void Request(ZmtpPeer& peer, uint64_t start) {
  ASSERT_TRUE(peer.SendMessage({"", SeqText(start)}).ok());
}

// Expects the replies begin..end-1 and the end marker, with payloads as published.
void ExpectReplay(ZmtpPeer& peer, uint64_t begin, uint64_t end, size_t size = 0) {
  for (uint64_t seq = begin; seq < end; ++seq) {
    const Bytes payload = TestPayload(seq, 0, size);
    const FrameTexts expected = {"", "topic", SeqText(seq), {payload.begin(), payload.end()}};
    ASSERT_EQ(Receive(peer), expected) << seq;
  }
  ASSERT_EQ(Receive(peer), kEndMarker);
}

PublisherConfig ReplayConfig() {
  PublisherConfig config = TestPublisherConfig();
  config.topic = "topic";
  return config;
}

TEST(PublisherReplay, GivesAllBatchesFromTheRequestedStart) {
  const auto publisher = MakePublisher(ReplayConfig());
  PublishUpTo(*publisher, 19);
  ZmtpPeer peer = Connect(*publisher);
  Request(peer, 10);
  ExpectReplay(peer, 10, 19);
  EXPECT_EQ(publisher->counters().replay_requests, 1u);
  EXPECT_EQ(publisher->counters().replay_batches, 9u);
}

TEST(PublisherReplay, StartOlderThanTheRingGivesTheOldestHeld) {
  PublisherConfig config = ReplayConfig();
  config.ring_batches = 100;
  const auto publisher = MakePublisher(config);
  PublishUpTo(*publisher, 110);
  ZmtpPeer peer = Connect(*publisher);
  Request(peer, 0);
  ExpectReplay(peer, 10, 110);
}

TEST(PublisherReplay, StartBeyondTheNewestGivesTheEndMarkerOnly) {
  const auto publisher = MakePublisher(ReplayConfig());
  PublishUpTo(*publisher, 3);
  ZmtpPeer peer = Connect(*publisher);
  for (const uint64_t start : {uint64_t{3}, uint64_t{100}, UINT64_MAX}) {
    Request(peer, start);
    EXPECT_EQ(Receive(peer), kEndMarker);
  }
}

TEST(PublisherReplay, OldLayoutHasNoTopicFrame) {
  PublisherConfig config = ReplayConfig();
  config.replay_layout = ReplayLayout::kSeqPayload;
  const auto publisher = MakePublisher(config);
  PublishUpTo(*publisher, 1);
  ZmtpPeer peer = Connect(*publisher);
  Request(peer, 0);
  EXPECT_EQ(Receive(peer), (FrameTexts{"", SeqText(0), "0.0"}));
  EXPECT_EQ(Receive(peer), (FrameTexts{"", SeqText(kEndSeq), ""}));
}

TEST(PublisherReplay, MalformedRequestsGetNoAnswerAndTheNextOneWorks) {
  const auto publisher = MakePublisher(ReplayConfig());
  PublishUpTo(*publisher, 2);
  ZmtpPeer peer = Connect(*publisher);
  const FrameTexts many(1000, "x");
  const std::vector<FrameTexts> malformed = {
      {SeqText(0)}, {"", "topic", SeqText(0)}, {"x", SeqText(0)}, {""}, {"", "", "", "", ""}, many};
  for (const FrameTexts& request : malformed) ASSERT_TRUE(peer.SendMessage(request).ok());
  Request(peer, 0);
  ExpectReplay(peer, 0, 2);
  EXPECT_EQ(publisher->counters().replay_rejects, malformed.size());
}

TEST(PublisherReplay, RequestsOfOneClientAreAnsweredInOrder) {
  const auto publisher = MakePublisher(ReplayConfig());
  PublishUpTo(*publisher, 600);
  ZmtpPeer peer = Connect(*publisher);
  for (const uint64_t start : {0, 599, 300}) Request(peer, start);
  for (const uint64_t start : {0, 599, 300}) ExpectReplay(peer, start, 600);
}

TEST(PublisherReplay, ReqClientGetsOneUsableReply) {
  const auto publisher = MakePublisher(ReplayConfig());
  PublishUpTo(*publisher, 2);
  ZmtpPeer peer = Connect(*publisher, "REQ");
  Request(peer, 1);
  EXPECT_EQ(Receive(peer), (FrameTexts{"", "topic", SeqText(1), "0.1"}));
}

TEST(PublisherReplay, ClientThatDoesNotReadIsPausedAndLosesNothing) {
  constexpr uint64_t kBatches = 600;
  constexpr size_t kSize = 64 << 10;
  const auto publisher = MakePublisher(ReplayConfig());
  PublishUpTo(*publisher, kBatches, /*epoch=*/0, kSize);
  ZmtpPeer stalled = Connect(*publisher);
  ZmtpPeer reading = Connect(*publisher);
  Request(stalled, 0);
  Request(reading, 0);
  ExpectReplay(reading, 0, kBatches, kSize);
  // The batches sent to the stalled client are bounded by its credit and by the TCP buffers.
  EXPECT_LT(publisher->counters().replay_batches, 2 * kBatches);
  ExpectReplay(stalled, 0, kBatches, kSize);
  EXPECT_EQ(publisher->counters().replay_batches, 2 * kBatches);
  EXPECT_EQ(publisher->counters().replay_dropped, 0u);
}

TEST(PublisherReplay, ClientThatGoesAwayIsForgotten) {
  const auto publisher = MakePublisher(ReplayConfig());
  PublishUpTo(*publisher, 1000, /*epoch=*/0, /*size=*/64 << 10);
  {
    ZmtpPeer gone = Connect(*publisher);
    Request(gone, 0);
    EXPECT_EQ(Receive(gone).size(), 4u);
  }
  EXPECT_TRUE(Eventually([&] { return publisher->counters().replay_dropped == 1; }));
}

TEST(PublisherReplay, FloodOfRequestsIsBounded) {
  constexpr int kRequests = 5000;
  const auto publisher = MakePublisher(ReplayConfig());
  PublishUpTo(*publisher, 300, /*epoch=*/0, /*size=*/64 << 10);
  ZmtpPeer flooding = Connect(*publisher);
  for (int i = 0; i < kRequests; ++i) Request(flooding, 0);
  EXPECT_TRUE(Eventually([&] { return publisher->counters().replay_requests == kRequests; }));
  EXPECT_GT(publisher->counters().replay_dropped, 0u);
  ZmtpPeer other = Connect(*publisher);
  Request(other, 299);
  ExpectReplay(other, 299, 300, 64 << 10);
}

TEST(PublisherReplay, MoreClientsThanPlacesDropTheLongestStalled) {
  const auto publisher = MakePublisher(ReplayConfig());
  PublishUpTo(*publisher, 600, /*epoch=*/0, /*size=*/64 << 10);
  std::vector<ZmtpPeer> stalled;
  for (size_t i = 0; i < ReplayScheduler::kMaxClients; ++i) {
    stalled.push_back(Connect(*publisher));
    Request(stalled.back(), 0);
  }
  ASSERT_TRUE(Eventually(
      [&] { return publisher->counters().replay_requests == ReplayScheduler::kMaxClients; }));
  ZmtpPeer one_more = Connect(*publisher);
  Request(one_more, 598);
  ExpectReplay(one_more, 598, 600, 64 << 10);
  EXPECT_EQ(publisher->counters().replay_dropped, 1u);
}

TEST(PublisherReplay, ClientThatAsksTooOftenWaitsAndOthersDoNot) {
  PublisherConfig config = ReplayConfig();
  config.replay_requests_per_s = 1;
  const auto publisher = MakePublisher(config);
  PublishUpTo(*publisher, 10);
  ZmtpPeer busy = Connect(*publisher);
  for (int i = 0; i < 6; ++i) Request(busy, 9);
  ASSERT_TRUE(Eventually([&] { return publisher->counters().replay_delays > 0; }));
  EXPECT_GE(publisher->counters().replay_batches, 4u);
  ZmtpPeer other = Connect(*publisher);
  Request(other, 5);
  ExpectReplay(other, 5, 10);
  for (int i = 0; i < 6; ++i) ExpectReplay(busy, 9, 10);
  EXPECT_EQ(publisher->counters().replay_dropped, 0u);
}

TEST(PublisherReplay, WithoutRatesNoClientWaits) {
  PublisherConfig config = ReplayConfig();
  config.replay_requests_per_s = config.replay_bytes_per_s = 0;
  const auto publisher = MakePublisher(config);
  PublishUpTo(*publisher, 10);
  ZmtpPeer busy = Connect(*publisher);
  for (int i = 0; i < 1000; ++i) {
    Request(busy, 9);
    ExpectReplay(busy, 9, 10);
  }
  EXPECT_EQ(publisher->counters().replay_delays, 0u);
}

TEST(PublisherReplay, BatchesCanBeReplayedBeforeTheyAreSentLive) {
  const auto publisher = MakePublisher(ReplayConfig());
  ZmtpPeer peer = Connect(*publisher);
  for (uint64_t end = 1; end <= 200; ++end) {
    PublishUpTo(*publisher, end);
    Request(peer, end - 1);
    ExpectReplay(peer, end - 1, end);
  }
}

// Returns the descriptor of the connection that this process accepted at a local endpoint. -1:
// there is no such connection.
int AcceptedAt(const std::string& endpoint) {
  const int port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    if (address.sin_family != AF_INET || ntohs(address.sin_port) != port) continue;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) return fd;
  }
  return -1;
}

// Returns true if the kernel accepts no more bytes for the connection, and the peer accepts no more
// bytes from the kernel.
bool IsFull(int connection) {
  pollfd item{connection, POLLOUT, 0};
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(connection, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return poll(&item, 1, 0) == 0 && info.tcpi_unacked == 0;
}

// After the first bytes the client reads nothing, so the kernel's buffers fill up, mostly in the
// middle of a reply. Then the client closes its connection, and the kernel resets the connection.
// The delays cover the time from the start of the destructor until the socket is closed.
TEST(PublisherReplay, ConnectionThatBreaksDuringDestructionDoesNotEndTheProcess) {
  constexpr uint64_t kBatches = 30000;
  for (int round = 0; round < (kSanitized ? 10 : 60); ++round) {
    PublisherConfig config = ReplayConfig();
    config.ring_batches = kBatches;
    config.replay_requests_per_s = config.replay_bytes_per_s = 0;
    auto publisher = MakePublisher(config);
    PublishUpTo(*publisher, kBatches, 0, 400);
    std::optional<ZmtpPeer> peer = Connect(*publisher);
    Request(*peer, 0);
    ASSERT_TRUE(peer->ReceiveAtLeast(1).ok());
    const int connection = AcceptedAt(publisher->replay_endpoint());
    ASSERT_GE(connection, 0);
    ASSERT_TRUE(Eventually([&] { return IsFull(connection); }));
    std::thread destruction([&publisher] { publisher.reset(); });
    std::this_thread::sleep_for(std::chrono::microseconds(round % 20 * 10));
    peer.reset();
    destruction.join();
  }
}

}  // namespace
}  // namespace kvcast::stream
