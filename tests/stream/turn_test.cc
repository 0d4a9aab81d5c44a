// A source that floods the subscriber delays the other sources by a bounded number of messages and
// bytes, and by a bounded time. As in the loop of the subscriber, the sources get their turns one
// after the other.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/stream/follow/source_pump.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

// Messages that have already arrived.
class QueueTransport final : public SourceTransport {
 public:
  bool OpenLive() override { return true; }
  void EndLive() override {}
  std::optional<LiveEvent> NextLiveEvent() override {
    return std::exchange(connected, true) ? std::nullopt : std::optional(LiveEvent::kConnected);
  }
  std::optional<Frames> ReceiveLive() override {
    if (sizes.empty()) return std::nullopt;
    payload_.assign(sizes.front(), 0);
    sizes.pop_front();
    seq_ = EncodeSeq(next_++);
    frames_ = {Frame{}, Frame(seq_), Frame(payload_)};
    return Frames(frames_);
  }
  void OpenRequest(Frame) override { ++requests; }
  void CloseRequest() override {}
  std::optional<Frames> ReceiveReply() override {
    if (replies.empty()) return std::nullopt;
    reply_ = std::move(replies.front());
    replies.pop_front();
    reply_frames_.assign(reply_.begin(), reply_.end());
    return Frames(reply_frames_);
  }
  bool TakeReplyCut() override { return false; }

  bool connected = false;
  std::deque<size_t> sizes;  // bytes of each message
  std::deque<std::vector<Bytes>> replies;
  int requests = 0;

 private:
  std::vector<Bytes> reply_;
  std::vector<Frame> reply_frames_;
  uint64_t next_ = 0;
  SeqFrame seq_{};
  Bytes payload_;
  std::array<Frame, 3> frames_;
};

// A source whose batches take a given time to apply.
struct TimedSource final : ReplicaSink {
  TimedSource(int64_t& clock_us, RequestTurns& turns, bool can_replay = false,
              bool extension = false)
      : clock(clock_us),
        pump({.limits = {.extension = extension},
              .can_replay = can_replay,
              .turn = {.now_us = [this] { return clock; }}},
             network, turns, *this) {}
  BatchResult Apply(Seq, std::span<const uint8_t>) override {
    clock += cost_us;
    ++applied;
    return BatchResult::kApplied;
  }
  void Reset(ResetReason) override {}

  int64_t& clock;
  int64_t cost_us = 10;
  int applied = 0;
  QueueTransport network;
  SourcePump pump;
};

class TurnTest : public ::testing::Test {
 protected:
  static constexpr int kGood = 8;
  TurnTest() {
    for (int i = 0; i < kGood + 1; ++i) {
      sources.push_back(std::make_unique<TimedSource>(clock_us, turns));
    }
    Round();
  }
  TimedSource& hostile() { return *sources[0]; }
  // Calls Work once for each source.
  void Round() {
    for (const auto& source : sources) source->pump.Work(now_ms);
  }

  int64_t clock_us = 0;
  int64_t now_ms = 1000;
  RequestTurns turns{FairPermits(1), FairPermits(1)};
  std::vector<std::unique_ptr<TimedSource>> sources;
};

TEST_F(TurnTest, AFloodOfSlowBatchesDelaysOthersByOneTurn) {
  hostile().cost_us = 125;
  hostile().network.sizes.assign(1000, 10);
  for (int round = 0; round < 10; ++round) {
    for (int i = 1; i <= kGood; ++i) sources[static_cast<size_t>(i)]->network.sizes.push_back(10);
    const int64_t begin_us = clock_us;
    const int before = hostile().applied;
    Round();
    EXPECT_EQ(hostile().applied - before, 4) << "a turn of 0.5 ms";
    EXPECT_LE(clock_us - begin_us, 500 + 10 * kGood);
    for (int i = 1; i <= kGood; ++i) EXPECT_EQ(sources[static_cast<size_t>(i)]->applied, round + 1);
  }
  EXPECT_EQ(hostile().pump.pauses(), 0u);
}

TEST_F(TurnTest, AFloodOfLargeBatchesEndsItsTurnAtAMebibyte) {
  hostile().cost_us = 0;
  hostile().network.sizes.assign(1000, size_t{1} << 18);
  Round();
  EXPECT_EQ(hostile().applied, 4);
  Round();
  EXPECT_EQ(hostile().applied, 8);
}

TEST_F(TurnTest, EveryBatchIsAppliedInTheEnd) {
  hostile().cost_us = 300;
  hostile().network.sizes.assign(100, 10);
  int rounds = 0;
  do {
    Round();
    ++rounds;
  } while (hostile().pump.deadline_ms() == kAtOnce);
  EXPECT_EQ(hostile().applied, 100);
  EXPECT_EQ(rounds, 50 + 1) << "two batches per turn, and a last turn without a batch";
}

// A single batch cannot be interrupted. The pause after the batch limits the source's share of the
// thread's time.
TEST_F(TurnTest, ASourceOfVerySlowBatchesPauses) {
  hostile().cost_us = 40'000;
  hostile().network.sizes.assign(100, 10);
  Round();
  EXPECT_EQ(hostile().applied, 1);
  const int64_t pause_ms = TurnBudget::kPauseFactor * 40;
  EXPECT_EQ(hostile().pump.deadline_ms(), now_ms + pause_ms);
  for (const int64_t passed_ms : {int64_t{0}, int64_t{1}, pause_ms - 1}) {
    now_ms = 1000 + passed_ms;
    sources[1]->network.sizes.push_back(10);
    Round();
    EXPECT_EQ(hostile().applied, 1);
    EXPECT_EQ(sources[1]->network.sizes.size(), 0u);
  }
  now_ms = 1000 + pause_ms;
  Round();
  EXPECT_EQ(hostile().applied, 2);
  EXPECT_EQ(hostile().pump.pauses(), 2u);
}

TEST_F(TurnTest, ASourceIsSlowForATimeAfterASlowTurn) {
  hostile().cost_us = 2000;
  hostile().network.sizes.assign(2, 10);
  Round();
  EXPECT_EQ(hostile().pump.next_turn(now_ms), TurnLength::kShort);
  hostile().cost_us = 5000;
  Round();
  const int64_t until_ms = now_ms + TurnBudget::kSlowFactor * 5;
  EXPECT_EQ(hostile().pump.next_turn(until_ms - 1), TurnLength::kSlow);
  EXPECT_EQ(hostile().pump.next_turn(until_ms), TurnLength::kShort);
  EXPECT_EQ(sources[1]->pump.next_turn(now_ms), TurnLength::kShort);
}

TEST_F(TurnTest, AVerySlowTurnIsLong) {
  hostile().cost_us = 21'000;
  hostile().network.sizes.assign(2, 10);
  Round();
  const int64_t until_ms = now_ms + TurnBudget::kSlowFactor * 21;
  EXPECT_EQ(hostile().pump.next_turn(until_ms - 1), TurnLength::kLong);
  EXPECT_EQ(hostile().pump.next_turn(until_ms), TurnLength::kShort);
  // A turn that is slow, but not very slow, does not extend the time in which the next turns are
  // long.
  hostile().cost_us = 19'000;
  now_ms = until_ms - 1;
  Round();
  EXPECT_EQ(hostile().pump.next_turn(until_ms), TurnLength::kSlow);
}

TEST_F(TurnTest, APauseEndsIfTheClockIsSetBack) {
  hostile().cost_us = 1'000'000;
  hostile().network.sizes.assign(2, 10);
  Round();
  EXPECT_EQ(hostile().pump.deadline_ms(), now_ms + TurnBudget::kMaxPauseMs);
  now_ms = 10;
  Round();
  EXPECT_EQ(hostile().applied, 2);
}

// Returns a reply with a batch.
std::vector<Bytes> ReplyOf(uint64_t number) {
  const SeqFrame seq = EncodeSeq(number);
  return {Bytes(), Bytes(seq.begin(), seq.end()), Bytes(8, 0)};
}

// Here a turn is the permit for one request (see SourcePump). Two sources share one permit for
// replays and one permit for status requests. The first source makes its request before the second
// source.
class SharedTurnTest : public ::testing::Test {
 protected:
  explicit SharedTurnTest(bool extension)
      : hostile(clock_us, turns, /*can_replay=*/true, extension),
        good(clock_us, turns, /*can_replay=*/true, extension) {
    hostile.pump.Work(now_ms);
    good.pump.Work(now_ms);
    EXPECT_EQ(hostile.network.requests, 1);
    EXPECT_EQ(good.network.requests, 0) << "the second source must wait for its turn";
  }

  int64_t clock_us = 0;
  int64_t now_ms = 1000;
  RequestTurns turns{FairPermits(1), FairPermits(1)};
  TimedSource hostile;
  TimedSource good;
};

// The first requests are replays.
class ReplayTurnTest : public SharedTurnTest {
 protected:
  ReplayTurnTest() : SharedTurnTest(/*extension=*/false) {}
  // Returns the seconds until the second source makes its request. Until this request, the first
  // source gets a reply each second.
  int SecondsUntilTheOtherRequest(const std::function<std::vector<Bytes>(uint64_t)>& reply) {
    for (int second = 0; second < 1000; ++second) {
      if (good.network.requests > 0) return second;
      now_ms += 1000;
      hostile.network.replies.push_back(reply(next_++));
      hostile.pump.Work(now_ms);
      good.pump.Work(now_ms);
    }
    return 1000;
  }

 private:
  uint64_t next_ = 0;
};

TEST_F(ReplayTurnTest, MalformedRepliesDoNotKeepARequestOpen) {
  const int seconds =
      SecondsUntilTheOtherRequest([](uint64_t) { return std::vector<Bytes>{Bytes(1, 0)}; });
  EXPECT_LE(seconds, 3);
}

TEST_F(ReplayTurnTest, ASlowReplayLosesItsTurn) {
  const int seconds = SecondsUntilTheOtherRequest(ReplyOf);
  EXPECT_GE(seconds, SourcePump::kTurnMs / 1000);
  EXPECT_LE(seconds, SourcePump::kTurnMs / 1000 + 1);
  EXPECT_GT(hostile.applied, 0) << "the batches of the turn must be applied";
}

TEST_F(ReplayTurnTest, AFastReplayKeepsItsTurnForAMinute) {
  const int seconds = SecondsUntilTheOtherRequest([](uint64_t number) {
    auto reply = ReplyOf(number);
    reply[2].assign(size_t{2} << 20, 0);
    return reply;
  });
  EXPECT_GE(seconds, SourcePump::kMaxTurnMs / 1000);
  EXPECT_LE(seconds, SourcePump::kMaxTurnMs / 1000 + 1);
}

TEST_F(ReplayTurnTest, AReplayKeepsItsTurnIfNoSourceWaits) {
  // The other source gives up its wait.
  turns.long_answers.Leave(&good.pump);
  for (int second = 0; second < 30; ++second) {
    now_ms += 1000;
    hostile.network.replies.push_back(ReplyOf(static_cast<uint64_t>(second)));
    hostile.pump.Work(now_ms);
  }
  EXPECT_EQ(hostile.network.requests, 1);
}

// The first requests are for a status.
class StatusTurnTest : public SharedTurnTest {
 protected:
  StatusTurnTest() : SharedTurnTest(/*extension=*/true) {}
};

TEST_F(StatusTurnTest, AStatusThatDoesNotComeDelaysTheNextRequestUntilItsTimeout) {
  const int64_t timeout_ms = SourceLimits().replay_timeout_ms;
  now_ms += timeout_ms - 1;
  hostile.pump.Work(now_ms);
  good.pump.Work(now_ms);
  EXPECT_EQ(good.network.requests, 0);
  now_ms += 1;
  hostile.pump.Work(now_ms);
  EXPECT_EQ(good.pump.deadline_ms(), kAtOnce);
  good.pump.Work(now_ms);
  EXPECT_EQ(good.network.requests, 1);
  EXPECT_EQ(hostile.network.requests, 1) << "the first source is now last in the queue";
}

// The publisher reports that it holds many blocks, so the first part of its snapshot may take a
// minute.
TEST_F(StatusTurnTest, ASnapshotThatDoesNotComeLosesItsTurn) {
  turns.short_answers.Leave(&good.pump);
  residency::PublisherStatus status;
  status.first_held = status.next_seq = 5;
  status.has_digests = true;
  status.groups.push_back({{Tier::kGpu, 0, {.high = 0, .low = 0, .copies = 20'000'000}}, {}});
  const SeqFrame end = EncodeSeq(kEndSeq);
  const std::vector<Bytes> reply = {Bytes(), Bytes(end.begin(), end.end()),
                                    residency::EncodeStatus(status)};
  hostile.network.replies.push_back(reply);
  hostile.pump.Work(now_ms);  // the epoch is new, so the source connects again
  hostile.network.replies.push_back(reply);
  hostile.network.connected = false;
  hostile.pump.Work(now_ms);
  ASSERT_TRUE(hostile.pump.has_turn());
  const int64_t begin_ms = now_ms;
  now_ms += LookSchedule::kSettleMs;
  hostile.pump.Work(now_ms);
  EXPECT_GT(hostile.pump.deadline_ms(), begin_ms + SourcePump::kTurnMs) << "no source waits";
  TimedSource waiting{clock_us, turns, /*can_replay=*/true};
  waiting.pump.Work(now_ms);
  EXPECT_EQ(waiting.network.requests, 0);
  EXPECT_EQ(hostile.pump.deadline_ms(), begin_ms + SourcePump::kTurnMs);
  now_ms = begin_ms + SourcePump::kTurnMs;
  hostile.pump.Work(now_ms);
  waiting.pump.Work(now_ms);
  EXPECT_EQ(waiting.network.requests, 1);
}

TEST_F(StatusTurnTest, ReplaysDoNotWaitForStatusRequests) {
  TimedSource replays{clock_us, turns, /*can_replay=*/true};
  replays.pump.Work(now_ms);
  EXPECT_EQ(replays.network.requests, 1);
}

}  // namespace
}  // namespace kvcast::stream
