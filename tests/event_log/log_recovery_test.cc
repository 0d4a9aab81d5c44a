// A relay that is started again goes on with the state of its log. The readers of the log do not
// notice the restart.
// SPDX-License-Identifier: Apache-2.0
#include "src/event_log/log_recovery.h"

#include <gtest/gtest.h>

#include "tests/event_log/relay_harness.h"

namespace kvcast::event_log {
namespace {

struct LogRecoveryTest : LogTest {
  // The next relay of the engine, with the state of the log.
  std::unique_ptr<TestRelay> Recover() {
    MemoryLog log(server);
    const auto recovery = ReadRecovery(log);
    EXPECT_TRUE(recovery.ok() && *recovery);
    auto next = std::make_unique<TestRelay>(*relay);
    next->sink = stream::RelaySink::Create(RelayPublisherConfig(), **recovery).value();
    next->sink->NoteState(SourceState::kSynced);
    mark = (*recovery)->mark;
    return next;
  }
  void Feed(LogReplica& replica) {
    for (auto next = server.messages.upper_bound(last_read); next != server.messages.end();
         ++next) {
      last_read = next->first;
      replica.Apply(LogMessage(next->second));
    }
  }

  std::optional<EngineMark> mark;
  uint64_t last_read = 0;
};

TEST_F(LogRecoveryTest, ARelayGoesOnAndAReaderKeepsItsState) {
  for (const uint64_t snapshot_bytes : {uint64_t{2000}, uint64_t{1} << 20}) {
    server = MemoryServer();
    relay = std::make_unique<TestRelay>();
    last_read = 0;
    auto writer = std::make_unique<TestWriter>(*relay, server, now, 1, snapshot_bytes);
    relay->PublishMany(20);
    Claim(*writer);
    MirrorTarget target;
    LogReplica replica(target);
    for (uint64_t run = 2; run < 6; ++run) {
      relay->PublishMany(30);
      writer->Run();
      Feed(replica);
      const PublisherStatus before = relay->Status();
      auto next = Recover();
      EXPECT_EQ(mark->next_seq, relay->next_seq);
      writer.reset();
      relay = std::move(next);
      EXPECT_NE(relay->Status().epoch, before.epoch);
      EXPECT_EQ(relay->Status().next_seq, before.next_seq);
      EXPECT_EQ(relay->Status().Totals(), before.Totals());
      relay->PublishMany(10);  // before the relay may write
      writer = std::make_unique<TestWriter>(*relay, server, now, run, snapshot_bytes);
      now += 2 * WriterClaim::kClaimMs;
      Claim(*writer);
      Feed(replica);
      EXPECT_EQ(target.totals(), relay->Status().Totals());
      EXPECT_EQ(replica.next(), relay->Status().next_seq);
      EXPECT_EQ(replica.counters().adoptions, run - 1);
      EXPECT_EQ(replica.counters().snapshots, 1u);
      ExpectEqual("after a recovery");
    }
  }
}

TEST_F(LogRecoveryTest, AnUnfinishedEpochDoesNotReplaceTheStateOfTheEarlierEpoch) {
  auto writer = std::make_unique<TestWriter>(*relay, server, now);
  relay->PublishMany(300);
  Claim(*writer);
  const PublisherStatus before = relay->Status();
  auto next = Recover();
  writer = std::make_unique<TestWriter>(*next, server, now, 2);
  now += 2 * WriterClaim::kClaimMs;
  server.ends_after = 2;  // a part of the snapshot
  Claim(*writer);
  EXPECT_FALSE(server.up);
  server.up = true;
  server.announcement.reset();
  next = Recover();
  EXPECT_EQ(next->Status().Totals(), before.Totals());
}

TEST_F(LogRecoveryTest, APublisherRefusesAStateThatContradictsItself) {
  relay->PublishMany(300);
  PublishedSnapshot snapshot = relay->sink->SnapshotOf(relay->Status().epoch)->content;
  while (snapshot.Write()) {
  }
  PublishedState state = std::move(snapshot.state);
  ASSERT_GE(state.parts.size(), 1u);
  PublisherConfig config = RelayPublisherConfig();
  config.resume = std::make_shared<const PublishedState>(state);
  EXPECT_TRUE(Publisher::Create(config).ok());
  state.parts.pop_back();
  config.resume = std::make_shared<const PublishedState>(state);
  EXPECT_EQ(Publisher::Create(config).status().code(), StatusCode::kInvalidArgument);
  config.replay_endpoint.clear();
  EXPECT_EQ(Publisher::Create(config).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(LogRecoveryTest, ARelayGoesOnWithoutDigestsIfTheLogHasTooManyBlocks) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(30);
  Claim(writer);
  relay->PublishMany(5);
  writer.Run();
  MemoryLog log(server);
  const auto recovery = ReadRecovery(log);
  ASSERT_TRUE(recovery.ok() && *recovery);
  PublisherConfig config = RelayPublisherConfig();
  config.max_blocks = 10;
  const auto next = stream::RelaySink::Create(config, **recovery);
  ASSERT_TRUE(next.ok()) << next.status().message();
  const auto status = (*next)->StatusOf((*next)->view()->epoch);
  ASSERT_TRUE(status);
  EXPECT_FALSE(status->has_digests);
  EXPECT_EQ(status->next_seq, relay->Status().next_seq);
}

// The log has more batches than the ring of the relay holds.
TEST_F(LogRecoveryTest, ARelayKeepsItsDigestsIfTheLogHasManyBatches) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(3);
  Claim(writer);
  relay->PublishMany(500);
  writer.Run();
  MemoryLog log(server);
  const auto recovery = ReadRecovery(log);
  ASSERT_TRUE(recovery.ok() && *recovery);
  ASSERT_EQ((*recovery)->batches.size(), 500u);
  PublisherConfig config = RelayPublisherConfig();
  config.ring_batches = 4;
  config.ring_bytes = 2000;
  const auto next = stream::RelaySink::Create(config, **recovery);
  ASSERT_TRUE(next.ok()) << next.status().message();
  const auto status = (*next)->StatusOf((*next)->view()->epoch);
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->has_digests);
  EXPECT_EQ(status->Totals(), relay->Status().Totals());
  const auto first = (*next)->FirstStateOf(status->epoch);
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->state.parts.empty());
}

TEST_F(LogRecoveryTest, ASnapshotAfterAMissingBatchIsUsed) {
  TestWriter writer(*relay, server, now, 1, /*snapshot_bytes=*/2000);
  relay->PublishMany(20);
  Claim(writer);
  relay->Publish();
  writer.Run();
  server.messages.erase(server.last);
  while (writer.writer.status().snapshots < 2) {
    relay->Publish();
    writer.Run();
  }
  relay->PublishMany(3);
  writer.Run();
  MemoryLog log(server);
  const auto recovery = ReadRecovery(log);
  ASSERT_TRUE(recovery.ok() && *recovery);
  EXPECT_EQ(Recover()->Status().Totals(), relay->Status().Totals());
  EXPECT_EQ(mark->next_seq, relay->next_seq);
}

// No complete snapshot follows the missing batch.
TEST_F(LogRecoveryTest, TheStateBeforeAMissingBatchIsUsed) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(20);
  Claim(writer);
  relay->PublishMany(5);
  writer.Run();
  const PublisherStatus before = relay->Status();
  relay->Publish();
  writer.Run();
  server.messages.erase(server.last);
  relay->PublishMany(5);
  writer.Run();
  MemoryLog log(server);
  const auto recovery = ReadRecovery(log);
  ASSERT_TRUE(recovery.ok() && *recovery);
  const PublisherStatus after = Recover()->Status();
  EXPECT_EQ(after.Totals(), before.Totals());
  EXPECT_EQ(after.next_seq, before.next_seq);
  EXPECT_EQ(mark->next_seq, 25u) << "the number of the missing batch of the engine";
}

TEST_F(LogRecoveryTest, ALogThatReturnsNoMessagesIsUnavailable) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(5);
  Claim(writer);
  MemoryLog log(server);
  log.read_messages = 0;
  EXPECT_EQ(ReadRecovery(log).status().code(), StatusCode::kUnavailable);
  log.read_messages = 1;
  auto recovery = ReadRecovery(log);
  ASSERT_TRUE(recovery.ok());
  EXPECT_TRUE(*recovery);
  server.DeleteAll();
  recovery = ReadRecovery(log);
  ASSERT_TRUE(recovery.ok()) << "the reader must not wait for deleted messages";
  EXPECT_FALSE(*recovery);
}

TEST_F(LogRecoveryTest, ALogWithoutAStateGivesNone) {
  MemoryLog log(server);
  auto recovery = ReadRecovery(log);
  ASSERT_TRUE(recovery.ok());
  EXPECT_FALSE(*recovery);
  server.up = false;
  EXPECT_EQ(ReadRecovery(log).status().message(), "down");
}

}  // namespace
}  // namespace kvcast::event_log
