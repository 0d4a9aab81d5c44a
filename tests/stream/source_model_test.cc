// Runs random histories of one source with a model of the publisher, the network and the replay
// server.
//
// The histories have losses, delays, restarts and overruns. Between two resets, batches of two
// epochs are never mixed, and no batch is applied twice or out of order. A source in state kSynced
// has applied all batches from 0 up to its next number.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "src/stream/follow/source.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {
namespace {

struct Faults {
  int drop_live = 0;      // percent
  int drop_reply = 0;     // percent of single replies and end markers
  int skip = 0;           // percent of numbers without a batch
  int restart = 0;        // per mille of steps
  int reconnect = 0;      // per mille of steps
  size_t ring = 1000000;  // batches
  size_t hold_back = 1000000;
  bool can_replay = true;
};

struct BatchId {
  int epoch = 0;
  uint64_t seq = 0;
  friend bool operator==(const BatchId&, const BatchId&) = default;
};

// Publisher, network and index around one Source. All random values come from one generator.
class World final : private ReplicaSink, private SourceNetwork {
 public:
  World(uint32_t seed, const Faults& faults)
      : random_(seed), faults_(faults), source_(Limits(), faults.can_replay, *this, *this) {
    ConnectLive();
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !failed(); ++i) Step();
  }

  // Without further faults, the source must reach a final state.
  void Settle() {
    faults_ = {.ring = faults_.ring};
    for (int round = 0; round < 40 && !failed(); ++round) {
      if (!live_up_) ConnectLive();
      while (Serve() || DeliverReply() || DeliverLive()) {
      }
      now_ms_ =
          std::max(now_ms_, source_.deadline_ms() == kNever ? now_ms_ : source_.deadline_ms());
      source_.OnTimer(now_ms_);
      CheckSyncedState();
    }
  }

  void CheckSettled(bool must_be_synced) {
    const SourceStatus status = source_.status(now_ms_);
    EXPECT_EQ(status.next_seq, visible_end()) << SourceStateName(status.state);
    for (const BatchId& id : applied_) EXPECT_EQ(id.epoch, epoch_);
    if (status.next_seq > 0) {
      ASSERT_FALSE(applied_.empty());
      EXPECT_EQ(applied_.back(), (BatchId{epoch_, status.next_seq - 1}));
    }
    if (must_be_synced) {
      EXPECT_EQ(SourceStateName(status.state), SourceStateName(SourceState::kSynced));
    } else {
      EXPECT_NE(SourceStateName(status.state), SourceStateName(SourceState::kConnecting));
    }
  }

  bool skipped_any() const { return !skipped_.empty(); }
  static bool failed() { return testing::Test::HasFailure(); }

 private:
  SourceLimits Limits() const {
    SourceLimits limits;
    limits.hold_back_batches = faults_.hold_back;
    return limits;
  }

  BatchResult Apply(Seq seq, Frame payload) override {
    Check({seq.value, payload});
    return BatchResult::kApplied;
  }
  void Reset(ResetReason) override { applied_.clear(); }
  bool TakeTurn(AnswerLength) override { return true; }
  void Request(Frame start) override {
    request_ = ParseStart(start);
    replies_.clear();
    ++request_number_;
  }
  void CloseRequest() override {
    request_.reset();
    replies_.clear();
    ++request_number_;
  }

  void Check(const Batch& batch) {
    const std::string text(batch.payload.begin(), batch.payload.end());
    const size_t dot = text.find('.');
    const BatchId id{std::stoi(text.substr(0, dot)), std::stoull(text.substr(dot + 1))};
    EXPECT_EQ(id.seq, batch.seq);
    if (!applied_.empty()) {
      EXPECT_EQ(id, (BatchId{applied_.back().epoch, applied_.back().seq + 1}));
    }
    applied_.push_back(id);
  }

  void CheckSyncedState() {
    if (source_.status(now_ms_).state != SourceState::kSynced) return;
    EXPECT_EQ(applied_.size(), source_.status(now_ms_).next_seq);
    if (!applied_.empty()) {
      EXPECT_EQ(applied_.front().seq, 0u);
    }
  }

  int RandomBelow(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random_); }
  bool Percent(int percent) { return RandomBelow(100) < percent; }

  void Step() {
    if (RandomBelow(1000) < faults_.restart) Restart();
    if (RandomBelow(1000) < faults_.reconnect) Disconnect();
    switch (RandomBelow(6)) {
      case 0:
      case 1:
        Publish();
        break;
      case 2:
        DeliverLive();
        break;
      case 3:
        DeliverReply();
        break;
      case 4:
        RandomBelow(2) == 0 ? static_cast<void>(Serve()) : DeliverEvents();
        break;
      case 5:
        if (!live_up_) ConnectLive();
        now_ms_ += RandomBelow(200);
        source_.OnTimer(now_ms_);
        break;
    }
    CheckSyncedState();
  }

  void Publish() {
    const uint64_t seq = next_++;
    if (Percent(faults_.skip)) {
      skipped_.insert(seq);
      return;
    }
    ring_.push_back(seq);
    if (ring_.size() > faults_.ring) ring_.pop_front();
    if (live_up_ && !Percent(faults_.drop_live)) live_.push_back({epoch_, seq});
  }

  void Restart() {
    Disconnect();
    ++epoch_;
    next_ = 0;
    ring_.clear();
    skipped_.clear();
  }

  void Disconnect() {
    if (live_up_) events_.push_back(false);
    live_up_ = false;
  }

  void ConnectLive() {
    live_up_ = true;
    events_.push_back(true);
  }

  void RenewLive() override {
    live_.clear();
    events_.clear();
    live_up_ = ended_ = false;
  }

  // Same rule as SourcePump: messages that arrived before the end of a connection are delivered.
  // Later messages are dropped.
  void DeliverEvents() {
    while (!events_.empty()) {
      const bool connected = events_.front();
      events_.pop_front();
      if (connected && ended_) return RenewLive();
      ended_ = !connected;
      connected ? source_.OnConnected(now_ms_) : source_.OnDisconnected();
    }
  }

  bool DeliverLive() {
    DeliverEvents();
    if (live_.empty() && ended_) RenewLive();
    if (live_.empty()) return false;
    const BatchId id = live_.front();
    live_.pop_front();
    const Bytes payload = TestPayload(id.seq, id.epoch);
    source_.OnLive({id.seq, payload}, now_ms_);
    return true;
  }

  // The server answers with the current batches of its ring.
  bool Serve() {
    if (!request_) return false;
    for (const uint64_t seq : ring_) {
      if (seq >= *request_ && !Percent(faults_.drop_reply)) replies_.push_back({epoch_, seq});
    }
    request_.reset();
    if (!Percent(faults_.drop_reply)) replies_.push_back({epoch_, kEndSeq});
    return true;
  }

  bool DeliverReply() {
    if (replies_.empty()) return false;
    const uint64_t request = request_number_;
    const BatchId id = replies_.front();
    replies_.pop_front();
    DeliverEvents();
    if (request_number_ != request) return true;
    const Bytes payload = TestPayload(id.seq, id.epoch);
    const ReplyKind kind = id.seq == kEndSeq ? ReplyKind::kEnd : ReplyKind::kBatch;
    source_.OnReply({kind, {id.seq, payload}}, now_ms_);
    return true;
  }

  // Returns the number after the highest number that a subscriber can receive.
  uint64_t visible_end() const { return ring_.empty() ? 0 : ring_.back() + 1; }

  std::mt19937 random_;
  Faults faults_;
  int64_t now_ms_ = 0;

  int epoch_ = 0;
  uint64_t next_ = 0;
  std::deque<uint64_t> ring_;
  std::set<uint64_t> skipped_;

  bool live_up_ = false;
  bool ended_ = false;        // the subscriber has seen the end of its connection
  std::deque<BatchId> live_;  // sent but not received, in order
  std::deque<bool> events_;   // of the socket monitor; true: connected, false: disconnected
  std::optional<uint64_t> request_;
  std::deque<BatchId> replies_;
  uint64_t request_number_ = 0;

  std::vector<BatchId> applied_;  // since the latest reset
  Source source_;
};

void RunWorlds(const Faults& faults, uint32_t seeds, bool must_be_synced) {
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, faults);
    world.Run(/*steps=*/400);
    world.Settle();
    world.CheckSettled(must_be_synced && !world.skipped_any());
    if (World::failed()) return;
  }
}

constexpr uint32_t kSeeds = 2000;

TEST(SourceModel, LossyLiveStream) {
  RunWorlds({.drop_live = 20}, kSeeds, /*must_be_synced=*/true);
}

TEST(SourceModel, LossyLiveStreamAndReconnects) {
  RunWorlds({.drop_live = 10, .reconnect = 20}, kSeeds, /*must_be_synced=*/true);
}

TEST(SourceModel, Restarts) {
  RunWorlds({.drop_live = 10, .restart = 20, .reconnect = 10}, kSeeds, /*must_be_synced=*/true);
}

TEST(SourceModel, SmallHoldBack) {
  RunWorlds({.drop_live = 30, .restart = 5, .hold_back = 3}, kSeeds, /*must_be_synced=*/true);
}

TEST(SourceModel, NumbersWithoutABatch) {
  RunWorlds({.drop_live = 10, .skip = 5, .restart = 10, .reconnect = 10}, kSeeds,
            /*must_be_synced=*/true);
}

TEST(SourceModel, OverrunRing) {
  RunWorlds({.drop_live = 30, .restart = 10, .reconnect = 10, .ring = 8}, kSeeds,
            /*must_be_synced=*/false);
}

TEST(SourceModel, LossyReplayServer) {
  RunWorlds({.drop_live = 10, .drop_reply = 30, .skip = 2, .restart = 10, .reconnect = 10}, kSeeds,
            /*must_be_synced=*/false);
}

TEST(SourceModel, WithoutReplay) {
  Faults faults{.drop_live = 10, .skip = 2, .restart = 10, .reconnect = 10};
  faults.can_replay = false;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, faults);
    world.Run(/*steps=*/400);
    if (World::failed()) return;
  }
}

}  // namespace
}  // namespace kvcast::stream
