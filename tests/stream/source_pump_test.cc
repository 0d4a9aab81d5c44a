// Tests the loop around a source with a scripted network: the order in which the loop handles its
// inputs, when the loop makes a new live connection, and which messages it leaves to another
// thread.
// SPDX-License-Identifier: Apache-2.0
#include "src/stream/follow/source_pump.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

const size_t kLarge = TurnLimits().large_bytes + 1;

// A network that records the requests. All its messages have already arrived.
class ScriptedTransport final : public SourceTransport {
 public:
  bool OpenLive() override {
    log.push_back("open live");
    events.clear();
    live.clear();
    return can_open;
  }
  void EndLive() override { log.push_back("end live"); }
  std::optional<LiveEvent> NextLiveEvent() override {
    if (events.empty()) return std::nullopt;
    const LiveEvent event = events.front();
    events.pop_front();
    return event;
  }
  std::optional<Frames> ReceiveLive() override { return Next(live, "live"); }
  void OpenRequest(Frame) override { log.push_back("request"); }
  void CloseRequest() override { log.push_back("close"); }
  std::optional<Frames> ReceiveReply() override { return Next(replies, "reply"); }
  bool TakeReplyCut() override { return false; }

  Texts Log() { return std::exchange(log, {}); }

  bool can_open = true;
  std::deque<LiveEvent> events;
  std::deque<uint64_t> live;
  std::deque<uint64_t> replies;      // kEndSeq: an END
  std::map<uint64_t, size_t> bytes;  // of all frames of a message, by its number
  Texts log;

 private:
  std::optional<Frames> Next(std::deque<uint64_t>& queue, const char* name) {
    if (queue.empty()) return std::nullopt;
    const uint64_t number = queue.front();
    queue.pop_front();
    log.emplace_back(name);
    seq_ = EncodeSeq(number);
    payload_ = number == kEndSeq ? Bytes() : TestPayload(number, 0);
    if (bytes.contains(number)) payload_.resize(bytes[number] - sizeof(seq_));
    frames_ = {Frame{}, Frame(seq_), Frame(payload_)};
    return Frames(frames_);
  }

  SeqFrame seq_{};
  Bytes payload_;
  std::array<Frame, 3> frames_;
};

class SourcePumpTest : public ::testing::Test, private ReplicaSink {
 protected:
  explicit SourcePumpTest(bool bound = false)
      : pump({.limits = {}, .can_replay = true, .bound = bound, .turn = {.messages = 4}}, network,
             turns, *this) {}

  // Connects. The publisher answers that it has not published any batch.
  void Join() {
    network.events = {LiveEvent::kConnected};
    pump.Work(1000);
    network.replies = {kEndSeq};
    pump.Work(1000);
    network.Log();
  }
  SourceState state() const { return pump.source().status(1000).state; }

  ScriptedTransport network;
  RequestTurns turns{FairPermits(1), FairPermits(1)};
  std::vector<uint64_t> applied;
  SourcePump pump;

 private:
  BatchResult Apply(Seq seq, Frame) override {
    applied.push_back(seq.value);
    return BatchResult::kApplied;
  }
  void Reset(ResetReason) override {}
};

class BoundPumpTest : public SourcePumpTest {
 protected:
  BoundPumpTest() : SourcePumpTest(/*bound=*/true) {}
};

TEST_F(SourcePumpTest, LiveMessagesComeBeforeReplies) {
  network.events = {LiveEvent::kConnected};
  network.live = {0, 1};
  network.replies = {kEndSeq};
  pump.Work(1000);
  EXPECT_EQ(network.Log(), (Texts{"request", "live", "live", "reply", "close"}));
  EXPECT_EQ(applied, (std::vector<uint64_t>{0, 1}));
}

TEST_F(SourcePumpTest, AFullTurnAsksForAnother) {
  Join();
  network.live = {0, 1, 2, 3, 4};
  pump.Work(1000);
  EXPECT_EQ(applied.size(), 4u);
  EXPECT_EQ(pump.deadline_ms(), kAtOnce);
  pump.Work(1000);
  EXPECT_EQ(applied.size(), 5u);
  EXPECT_GT(pump.deadline_ms(), 1000);
}

TEST_F(SourcePumpTest, ALargeMessageWaitsForACallThatTakesLargeMessages) {
  Join();
  network.bytes = {{1, kLarge}};
  network.live = {0, 1, 2};
  pump.Work(1000, /*takes_large=*/false);
  EXPECT_EQ(applied, (std::vector<uint64_t>{0}));
  EXPECT_TRUE(pump.keeps_large());
  EXPECT_EQ(pump.next_turn(1000), TurnLength::kLong);
  EXPECT_EQ(pump.deadline_ms(), kAtOnce);
  network.replies = {7};
  pump.Work(1000, /*takes_large=*/false);
  EXPECT_EQ(network.Log(), (Texts{"live", "live"})) << "no message may be received meanwhile";
  pump.Work(1000);
  EXPECT_EQ(applied, (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(pump.next_turn(1000), TurnLength::kShort);
  EXPECT_EQ(pump.deadline_ms(), kAtOnce) << "batch 2 still waits";
  pump.Work(1000, /*takes_large=*/false);
  EXPECT_EQ(applied, (std::vector<uint64_t>{0, 1, 2}));
}

TEST_F(SourcePumpTest, AMessageThatIsNotLargeIsHandledAtOnce) {
  Join();
  network.bytes = {{0, kLarge - 1}};
  network.live = {0};
  pump.Work(1000, /*takes_large=*/false);
  EXPECT_EQ(applied, (std::vector<uint64_t>{0}));
}

TEST_F(SourcePumpTest, TimersRunWhileALargeMessageWaits) {
  Join();
  network.bytes = {{0, kLarge}};
  network.live = {0};
  pump.Work(1000, /*takes_large=*/false);
  EXPECT_EQ(pump.source().status(1000).state, SourceState::kSynced);
  pump.Work(60'000, /*takes_large=*/false);
  EXPECT_EQ(pump.source().status(60'000).state, SourceState::kStale);
  EXPECT_EQ(network.Log(), (Texts{"live", "request"})) << "a probe must be sent";
  pump.Work(60'000);
  EXPECT_EQ(applied, (std::vector<uint64_t>{0}));
}

TEST_F(SourcePumpTest, ALargeMessageOfAnEndedConnectionIsDropped) {
  Join();
  network.bytes = {{0, kLarge}};
  network.live = {0};
  pump.Work(1000, /*takes_large=*/false);
  pump.ScheduleRenewal();
  pump.Work(2000);
  EXPECT_FALSE(pump.renewal_scheduled());
  EXPECT_FALSE(pump.keeps_large());
  EXPECT_TRUE(applied.empty());
}

TEST_F(SourcePumpTest, ALargeReplyWaitsToo) {
  network.events = {LiveEvent::kConnected};
  pump.Work(1000);
  network.bytes = {{0, kLarge}};
  network.replies = {0, kEndSeq};
  pump.Work(1000, /*takes_large=*/false);
  EXPECT_TRUE(applied.empty());
  EXPECT_TRUE(pump.keeps_large());
  network.live = {1};
  pump.Work(1000);
  EXPECT_EQ(applied, (std::vector<uint64_t>{0}));
  EXPECT_EQ(network.Log(), (Texts{"request", "reply", "reply", "close"}));
  pump.Work(1000);
  EXPECT_EQ(applied, (std::vector<uint64_t>{0, 1}));
}

// The next message that the pump receives would overwrite the large message.
TEST_F(SourcePumpTest, RepliesWaitBehindALargeMessage) {
  network.events = {LiveEvent::kConnected};
  pump.Work(1000);
  network.Log();
  network.bytes = {{0, kLarge}};
  network.live = {0};
  network.replies = {kEndSeq};
  pump.Work(1000, /*takes_large=*/false);
  EXPECT_EQ(network.Log(), (Texts{"live"}));
  pump.Work(1000);
  EXPECT_EQ(network.Log(), (Texts{"reply", "close"}));
  EXPECT_EQ(applied, (std::vector<uint64_t>{0}));
}

TEST_F(SourcePumpTest, ALargeReplyOfAnEndedRequestIsDropped) {
  network.events = {LiveEvent::kConnected};
  pump.Work(1000);
  network.bytes = {{0, kLarge}};
  network.replies = {0};
  pump.Work(1000, /*takes_large=*/false);
  network.Log();
  // No reply was handled in time, so the request is made again.
  pump.Work(60'000, /*takes_large=*/false);
  EXPECT_EQ(network.Log(), (Texts{"close", "request"}));
  pump.Work(60'000);
  EXPECT_TRUE(applied.empty());
  EXPECT_FALSE(pump.keeps_large());
}

TEST_F(SourcePumpTest, AMutedPumpDropsALargeMessage) {
  Join();
  network.bytes = {{0, kLarge}};
  network.live = {0};
  pump.Work(1000, /*takes_large=*/false);
  pump.Mute();
  pump.Work(1000);
  EXPECT_TRUE(applied.empty());
}

TEST_F(SourcePumpTest, ADisconnectIsHandledAfterTheMessagesBeforeTheDisconnect) {
  Join();
  network.live = {0};
  network.events = {LiveEvent::kDisconnected};
  pump.Work(1000);
  EXPECT_EQ(applied, (std::vector<uint64_t>{0}));
  EXPECT_TRUE(pump.renewal_scheduled());
  EXPECT_EQ(state(), SourceState::kStale);
  pump.Work(2000);
  EXPECT_FALSE(pump.renewal_scheduled());
  EXPECT_EQ(network.Log(), (Texts{"live", "end live", "open live"}));
}

TEST_F(SourcePumpTest, MessagesOfTwoConnectionsAreDropped) {
  Join();
  network.live = {0, 0};
  network.events = {LiveEvent::kDisconnected, LiveEvent::kConnected};
  pump.Work(1000);
  EXPECT_TRUE(applied.empty());
  EXPECT_TRUE(pump.renewal_scheduled());
}

TEST_F(SourcePumpTest, AConnectionThatCannotBeMadeIsTriedAgainLater) {
  Join();
  network.events = {LiveEvent::kDisconnected};
  network.can_open = false;
  pump.Work(1000);
  pump.Work(1000);
  EXPECT_TRUE(pump.renewal_scheduled());
  EXPECT_EQ(pump.deadline_ms(), 1000 + SourcePump::kRetryMs);
  network.can_open = true;
  pump.Work(1000 + SourcePump::kRetryMs);
  EXPECT_FALSE(pump.renewal_scheduled());
}

TEST_F(BoundPumpTest, AStrangerIsNotThePublisher) {
  Join();
  network.events = {LiveEvent::kHandshakeFailed, LiveEvent::kDisconnected};
  pump.Work(1000);
  EXPECT_FALSE(pump.renewal_scheduled());
  EXPECT_EQ(state(), SourceState::kSynced);
}

TEST_F(BoundPumpTest, ASecondPublisherEndsTheConnection) {
  Join();
  network.events = {LiveEvent::kConnected};
  pump.Work(1000);
  EXPECT_TRUE(pump.renewal_scheduled());
  EXPECT_EQ(state(), SourceState::kStale);
}

}  // namespace
}  // namespace kvcast::stream
