// A subscriber of a bridge has the state of the relay, and is synced only while the relay is alive
// and its batches arrive.
// SPDX-License-Identifier: Apache-2.0
#include "src/event_log/log_bridge.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <mutex>

#include "src/base/clock.h"
#include "tests/event_log/relay_harness.h"

namespace kvcast::event_log {
namespace {

constexpr WorkerId kWorker{1};

// Applies the batches of a subscriber to a mirror.
class MirrorSink final : public ReplicaSink {
 public:
  explicit MirrorSink(bool refreshes) : refreshes_(refreshes) {}

  BatchResult Apply(Seq, std::span<const uint8_t> payload) override {
    const std::lock_guard lock(mutex_);
    Add(payload, *mirror_);
    return BatchResult::kApplied;
  }
  void Reset(ResetReason) override {
    const std::lock_guard lock(mutex_);
    mirror_->Clear();
    ++resets_;
  }
  bool TakesSnapshots() const override { return true; }
  void BeginSnapshot() override { hidden_ = std::make_unique<residency::Mirror>(refreshes_); }
  bool AddToSnapshot(std::span<const uint8_t> payload) override { return Add(payload, *hidden_); }
  bool CommitSnapshot(const PublisherStatus& status) override {
    if (hidden_->digest().Totals() != status.Totals()) return false;
    const std::lock_guard lock(mutex_);
    mirror_ = std::move(hidden_);
    return true;
  }
  DigestVerdict Compare(const PublisherStatus&) override { return DigestVerdict::kUnknown; }

  ResidencyTotals totals() const {
    const std::lock_guard lock(mutex_);
    return mirror_->digest().Totals();
  }
  int resets() const {
    const std::lock_guard lock(mutex_);
    return resets_;
  }

 private:
  static bool Add(std::span<const uint8_t> payload, residency::Mirror& mirror) {
    EventBatch batch;
    DecodeCounts counts;
    if (!DecodeBatch(payload, WireLimits(), batch, counts).ok()) return false;
    mirror.Apply(batch);
    return true;
  }

  const bool refreshes_;
  mutable std::mutex mutex_;
  std::unique_ptr<residency::Mirror> mirror_ = std::make_unique<residency::Mirror>(refreshes_);
  std::unique_ptr<residency::Mirror> hidden_;
  int resets_ = 0;
};

struct LogBridgeTest : LogTest {
  explicit LogBridgeTest(bool repeats_are_refreshes = false)
      : LogTest(repeats_are_refreshes), refreshes(repeats_are_refreshes) {
    std::string path = ::testing::TempDir() + "bridgeXXXXXX";
    folder = mkdtemp(path.data());
    writer = std::make_unique<TestWriter>(*relay, server, now, 1, /*snapshot_bytes=*/20'000);
  }
  ~LogBridgeTest() override {
    subscriber.reset();
    bridge.reset();
    std::filesystem::remove_all(folder);
  }

  // `resume`: the position that belongs to the state of the sink.
  void Follow(const std::optional<SavedPosition>& resume = std::nullopt) {
    const std::string live = "ipc://" + folder + "/live";
    const std::string replay = "ipc://" + folder + "/replay";
    bridge = std::make_unique<LogBridge>(LogBridgeConfig{.endpoint = live,
                                                         .replay_endpoint = replay,
                                                         .repeats_are_refreshes = refreshes,
                                                         .max_blocks = max_blocks,
                                                         .now_ms = [this] { return now.load(); }},
                                         reader);
    subscriber =
        Subscriber::Create({.replay_timeout_ms = 200, .probe_interval_ms = 50, .stale_ms = 400})
            .value();
    const SourceConfig source = {
        .worker = kWorker, .endpoint = live, .replay_endpoint = replay, .resume = resume};
    ASSERT_TRUE(subscriber->Add(source, sink).ok());
  }
  SavedPosition Position() const {
    SavedPosition position;
    subscriber->BetweenTurns([&position](const std::vector<FollowedPosition>& positions) {
      if (!positions.empty()) position = positions.front().position;
    });
    return position;
  }
  // Advances the clock. Then the writer announces its state, and the bridge reads the announcement.
  void Turn() {
    now += LogWriter::kAnnounceMs;
    writer->Run();
    bridge->Step(0);
  }
  SourceState state() const { return subscriber->status(kWorker).state; }
  void ExpectState(SourceState wanted, const std::string& phase) {
    EXPECT_TRUE(stream::Eventually([&] {
      bridge->Step(0);
      return state() == wanted;
    })) << phase
        << ": " << SourceStateName(state());
  }
  void ExpectSynced(const std::string& phase) {
    const ResidencyTotals totals = relay->Status().Totals();
    EXPECT_TRUE(stream::Eventually([&] {
      Turn();
      return state() == SourceState::kSynced && sink->totals() == totals;
    })) << phase
        << ": " << SourceStateName(state());
  }

  const bool refreshes;
  uint64_t max_blocks = LogBridgeConfig().max_blocks;
  std::string folder;
  std::unique_ptr<TestWriter> writer;
  MemoryLog reader{server};
  std::shared_ptr<MirrorSink> sink = std::make_shared<MirrorSink>(refreshes);
  std::unique_ptr<LogBridge> bridge;
  std::unique_ptr<Subscriber> subscriber;
};

TEST_F(LogBridgeTest, ASubscriberHasTheStateOfTheRelay) {
  relay->PublishMany(30);
  Claim(*writer);
  relay->PublishMany(100);
  Follow();
  ExpectSynced("a late join");
  relay->PublishMany(300);
  ExpectSynced("later batches");
  EXPECT_EQ(sink->resets(), 0);
  EXPECT_EQ(bridge->status().replica.gaps, 0u);
  EXPECT_EQ(bridge->status().rewinds, 0u);
  EXPECT_EQ(bridge->status().mismatches, 0u);
  EXPECT_EQ(bridge->status().replica.snapshots, 1u);
}

TEST_F(LogBridgeTest, ASavedStateIsProvenByAnotherBridgeOfTheLog) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  relay->PublishMany(100);
  ExpectSynced("the first bridge");
  const SavedPosition saved = Position();
  EXPECT_EQ(saved.epoch, relay->Status().epoch);
  subscriber.reset();
  bridge.reset();
  relay->PublishMany(20);
  Follow(saved);
  ExpectSynced("the second bridge");
  EXPECT_EQ(sink->resets(), 0);
  EXPECT_EQ(subscriber->status(kWorker).snapshots, 0u);
}

TEST_F(LogBridgeTest, AnEndpointThatCannotBeBoundIsNamed) {
  relay->PublishMany(30);
  Claim(*writer);
  std::filesystem::create_directories(folder + "/live/folder");
  Follow();
  bridge->Step(0);
  EXPECT_EQ(bridge->status().state, BridgeState::kReading);
  EXPECT_NE(bridge->status().error.find(folder + "/live"), std::string::npos)
      << bridge->status().error;
}

TEST_F(LogBridgeTest, ABridgeThatBindsLaterHasTheEpochOfTheLog) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  ExpectSynced("the first bridge");
  const SavedPosition saved = Position();
  subscriber.reset();
  bridge.reset();
  const std::string live = folder + "/live";
  std::filesystem::remove_all(live);
  std::filesystem::create_directories(live + "/folder");
  Follow(saved);
  bridge->Step(0);
  EXPECT_EQ(bridge->status().state, BridgeState::kReading);
  std::filesystem::remove_all(live);
  ExpectSynced("the second bridge");
  EXPECT_EQ(Position().epoch, saved.epoch);
  EXPECT_EQ(sink->resets(), 0);
}

struct RefreshedLogBridgeTest : LogBridgeTest {
  RefreshedLogBridgeTest() : LogBridgeTest(/*repeats_are_refreshes=*/true) {}
};

// The digests of the relay, of the bridge and of the subscriber count a repeated block once.
TEST_F(RefreshedLogBridgeTest, RepeatedBlocksAreNoCopies) {
  relay->PublishMany(30);
  relay->last_hash -= 30;
  relay->PublishMany(10);  // stores the last blocks again
  Claim(*writer);
  Follow();
  ExpectSynced("a late join");
  relay->last_hash -= 30;
  relay->PublishMany(30);
  ExpectSynced("later batches");
  for (const GroupTierDigest& group : relay->Status().Totals()) {
    EXPECT_EQ(group.total.copies, relay->last_hash - relay->last_removed);
  }
  EXPECT_EQ(bridge->status().mismatches, 0u);
  EXPECT_EQ(sink->resets(), 0);
}

TEST_F(LogBridgeTest, ASilentRelayIsNeverSynced) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  ExpectSynced("the relay is alive");
  now += LogBridge::kAliveMs + 1;
  ExpectState(SourceState::kStale, "the relay has ended");
  EXPECT_EQ(bridge->status().state, BridgeState::kSilent);
  ExpectSynced("the relay is alive again");
  relay->sink->NoteState(SourceState::kStale);
  Turn();
  ExpectState(SourceState::kStale, "the relay does not know the engine's state");
  relay->sink->NoteState(SourceState::kSynced);
  ExpectSynced("the engine answers again");
}

TEST_F(LogBridgeTest, ALogWithoutALivingRelayGivesNoSyncedState) {
  relay->PublishMany(30);
  Claim(*writer);
  server.announcement.reset();
  Follow();
  const int64_t end_ms = SteadyMs() + 500;
  while (SteadyMs() < end_ms) {
    bridge->Step(0);
    ASSERT_NE(state(), SourceState::kSynced);
  }
  EXPECT_EQ(bridge->status().state, BridgeState::kSilent);
  ExpectSynced("the relay is alive");
}

// The batches of a log show neither that the relay is alive, nor that they are its latest batches.
TEST_F(LogBridgeTest, BatchesWithoutAnAnnouncementGiveNoSyncedState) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  ExpectSynced("the server runs");
  server.up = false;
  ExpectState(SourceState::kStale, "the server has ended");
  server.up = true;
  relay->PublishMany(10);
  writer->Run();
  server.announcement.reset();
  const SourceStatus before = subscriber->status(kWorker);
  bridge->Step(0);
  EXPECT_EQ(bridge->status().state, BridgeState::kSilent);
  EXPECT_TRUE(stream::Eventually([&] {
    bridge->Step(0);
    EXPECT_NE(state(), SourceState::kSynced);
    return subscriber->status(kWorker).replay_timeouts >= before.replay_timeouts + 2;
  }));
  EXPECT_EQ(subscriber->status(kWorker).batches, before.batches);
  ExpectSynced("the relay is alive");
  EXPECT_EQ(sink->resets(), 0);
}

TEST_F(LogBridgeTest, AnUnreachableLogMakesTheStateStaleAndLosesNothing) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  ExpectSynced("the server runs");
  server.up = false;
  relay->PublishMany(10);
  ExpectState(SourceState::kStale, "the server has ended");
  EXPECT_EQ(bridge->status().state, BridgeState::kUnreachable);
  EXPECT_EQ(bridge->status().error, "down");
  server.up = true;
  ExpectSynced("the server runs again");
  EXPECT_EQ(sink->resets(), 0);
}

TEST_F(LogBridgeTest, ABridgeIsSilentWhileALogBlocks) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  ExpectSynced("the log answers");
  bool stale = false;
  reader.on_read = [&] {
    now += LogBridge::kAliveMs;
    stale = stream::Eventually([&] { return state() == SourceState::kStale; });
  };
  bridge->Step(0);
  EXPECT_TRUE(stale) << SourceStateName(state());
  ExpectSynced("the log answers again");
  EXPECT_EQ(sink->resets(), 0);
}

// The announcement arrived before the log blocked, or while it blocked.
TEST_F(LogBridgeTest, AnAnnouncementThatMayBeOldDoesNotEndTheSilence) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  ExpectSynced("the log answers");
  now += LogWriter::kAnnounceMs;
  writer->Run();
  reader.on_read = [&] { now += LogBridge::kAliveMs; };
  bridge->Step(0);
  EXPECT_EQ(bridge->status().state, BridgeState::kSilent);
  ExpectSynced("the next announcement");
}

// The relay has digests of more blocks than the bridge may hold.
TEST_F(LogBridgeTest, AStateThatIsTooLargeIsFollowedWithoutDigests) {
  relay->PublishMany(30);
  Claim(*writer);
  max_blocks = 20;
  Follow();
  const auto expect_cleared = [&](const std::string& phase) {
    EXPECT_TRUE(stream::Eventually([&] {
      Turn();
      return state() == SourceState::kCleared &&
             subscriber->status(kWorker).next_seq == relay->Status().next_seq;
    })) << phase
        << ": " << SourceStateName(state());
    EXPECT_EQ(bridge->status().state, BridgeState::kFollowing);
  };
  expect_cleared("the snapshot is too large");
  relay->PublishMany(10);
  expect_cleared("later batches");
  EXPECT_TRUE(relay->Status().has_digests);
  EXPECT_EQ(bridge->status().rewinds, 0u);
  EXPECT_EQ(bridge->status().mismatches, 0u);
}

struct LargeLogTest : LogBridgeTest {
  // Publishes a batch that removes the block with this number. An earlier batch may already have
  // removed the block.
  void PublishRemoved(uint64_t number) {
    BlockRemoved event;
    event.block_hashes = {BlockHash::FromUnsigned(kFirstHash + number)};
    event.medium = kMediumGpu;
    event.group_idx = 0;
    EventBatch batch;
    batch.ts = 1 + static_cast<double>(relay->next_seq);
    batch.events.emplace_back(std::move(event));
    relay->Publish(batch);
  }
  void FollowLargeState(uint64_t limit) {
    max_blocks = limit;
    relay->PublishMany(30);
    Claim(*writer);
    Follow();
    EXPECT_TRUE(stream::Eventually([&] {
      Turn();
      return state() == SourceState::kCleared;
    }));
  }
  // The log grows by more than snapshot_bytes. The bridge reads each message before the writer
  // deletes it.
  void WriteSnapshot() {
    const uint64_t before = writer->writer.status().snapshots;
    for (int i = 0; writer->writer.status().snapshots == before; ++i) {
      ASSERT_LT(i, 10000);
      PublishRemoved(relay->last_removed);
      if (i % 10 == 0) Turn();
    }
    EXPECT_EQ(bridge->status().rewinds, 0u);
  }
};

TEST_F(LargeLogTest, AStateThatIsSmallAgainIsTakenFromTheNextSnapshot) {
  FollowLargeState(40);
  while (relay->last_removed + 20 < relay->last_hash) PublishRemoved(++relay->last_removed);
  WriteSnapshot();
  ExpectSynced("the snapshot is small enough");
}

// To take a later snapshot, the bridge starts a new publisher, and the subscriber then drops its
// blocks. So the bridge ignores a later snapshot that is also too large.
TEST_F(LargeLogTest, ASnapshotThatIsTooLargeIsNotTaken) {
  FollowLargeState(20);
  const int resets = sink->resets();
  WriteSnapshot();
  Turn();
  EXPECT_EQ(bridge->status().replica.snapshots, 1u);
  EXPECT_EQ(sink->resets(), resets);
}

// The log has batches that do not arrive at the bridge.
TEST_F(LogBridgeTest, ABridgeThatLagsIsNeverSynced) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  ExpectSynced("the batches arrive");
  reader.read_messages = 0;
  relay->PublishMany(10);
  now += LogWriter::kAnnounceMs;
  writer->Run();
  now += LogBridge::kAliveMs;
  ExpectState(SourceState::kStale, "batches do not arrive");
  reader.read_messages = 1000;
  ExpectSynced("the batches arrive again");
}

TEST_F(LogBridgeTest, ASecondRelayWithTheSameStateCausesNoReset) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  ExpectSynced("the first relay");
  auto other = std::make_unique<TestRelay>();
  other->PublishMany(30);
  std::swap(relay, other);
  writer = std::make_unique<TestWriter>(*relay, server, now, 2);
  now += 2 * WriterClaim::kClaimMs;
  Claim(*writer);
  relay->PublishMany(10);
  ExpectSynced("the second relay");
  EXPECT_EQ(sink->resets(), 0);
  EXPECT_EQ(bridge->status().replica.adoptions, 1u);
}

TEST_F(LogBridgeTest, ARestartOfTheEngineReplacesTheState) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  ExpectSynced("the first epoch");
  relay->Restart();
  relay->PublishMany(4);
  ExpectSynced("the second epoch");
}

// The states before and after the restart are both empty, but their groups and names may differ.
TEST_F(LogBridgeTest, ARestartOfAnEngineWithoutBlocksReplacesTheState) {
  relay->PublishMany(2);
  Claim(*writer);
  Follow();
  ExpectSynced("blocks");
  relay->PublishClear();
  ExpectSynced("no blocks");
  EXPECT_EQ(sink->resets(), 0);
  relay->Restart();
  Turn();
  relay->Publish();
  ExpectSynced("the second epoch");
  EXPECT_GE(sink->resets(), 1);
  EXPECT_EQ(bridge->status().replica.adoptions, 0u);
}

TEST_F(LogBridgeTest, AStateThatDiffersFromTheAnnouncedDigestsIsReadAgain) {
  relay->PublishMany(30);
  Claim(*writer);
  Follow();
  ExpectSynced("the first state");
  const SavedPosition saved = Position();
  // The bridge gets another batch than the log stores.
  TestRelay wrong;
  wrong.Publish(1);
  relay->Publish();
  writer->Run();
  std::vector<uint8_t>& stored = server.messages.at(server.last).payload;
  const std::vector<uint8_t> right = stored;
  stored = *wrong.sink->Read(wrong.Status().epoch, 0, 1)->batches[0].payload;
  bridge->Step(0);
  stored = right;
  ExpectSynced("the right state");
  EXPECT_EQ(bridge->status().mismatches, 1u);
  EXPECT_NE(Position().epoch, saved.epoch) << "a subscriber with the wrong state must notice";
}

}  // namespace
}  // namespace kvcast::event_log
