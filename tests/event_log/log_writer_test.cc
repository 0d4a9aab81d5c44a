// The log has exactly the batches and the state of the relay, after every fault of the server, of
// the ring and of another writer.
// SPDX-License-Identifier: Apache-2.0
#include "src/event_log/log_writer.h"

#include <gtest/gtest.h>

#include "tests/event_log/relay_harness.h"

namespace kvcast::event_log {
namespace {

using LogWriterTest = LogTest;

std::optional<LogRecord> RecordAt(const MemoryServer& server, uint64_t position) {
  const auto it = server.messages.find(position);
  if (it == server.messages.end()) return std::nullopt;
  return ParseRecord(it->second.header);
}

TEST_F(LogWriterTest, TheLogHasTheStateOfTheRelay) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(20);
  writer.Run();
  EXPECT_EQ(writer.writer.status().state, WriterState::kWaiting);
  EXPECT_EQ(server.last, 0u);
  now += WriterClaim::kClaimMs;
  writer.Run();
  EXPECT_EQ(writer.writer.status().state, WriterState::kWriting);
  ExpectEqual("after the claim");
  relay->PublishMany(1000);
  writer.Run();
  ExpectEqual("later batches");
  EXPECT_EQ(writer.writer.status().batches, 1000u);
  EXPECT_EQ(writer.writer.status().snapshots, 1u);
}

// While the batches are written, the relay loses its engine.
TEST_F(LogWriterTest, AnAnnouncementHasTheStateOfTheRelayAfterTheWrite) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(3);
  Claim(writer);
  for (const SourceState state : {SourceState::kSynced, SourceState::kStale}) {
    relay->Publish();
    now += LogWriter::kAnnounceMs;
    const uint64_t before = server.announcements;
    writer.log.on_append = [&] { relay->sink->NoteState(state); };
    writer.writer.Step();
    ASSERT_EQ(server.announcements, before + 1);
    const auto record = ParseRecord(server.announcement->header);
    EXPECT_EQ(record->index, state == SourceState::kSynced ? 1u : 0u);
    EXPECT_EQ(record->next, relay->next_seq) << "the batch is written";
  }
}

// While the batches are written, the relay begins an epoch.
TEST_F(LogWriterTest, AnEpochThatHasEndedIsNotAnnounced) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(3);
  Claim(writer);
  relay->Publish();
  now += LogWriter::kAnnounceMs;
  const uint64_t before = server.announcements;
  writer.log.on_append = [&] { relay->Restart(); };
  writer.writer.Step();
  EXPECT_EQ(server.announcements, before);
  relay->Publish();
  writer.Run();
  ExpectEqual("the second epoch");
  EXPECT_GT(server.announcements, before);
}

TEST_F(LogWriterTest, AnEpochBeginsWithASnapshotAndReplacesTheEarlierEpoch) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(20);
  Claim(writer);
  const uint64_t before = server.last;
  relay->Restart();
  relay->sink->NoteState(SourceState::kConnecting);
  writer.Run();
  EXPECT_EQ(server.last, before) << "the relay does not know the engine's state";
  relay->sink->NoteState(SourceState::kSynced);
  relay->PublishMany(5);
  writer.Run();
  ExpectEqual("the second epoch");
  EXPECT_EQ(RecordAt(server, server.messages.begin()->first)->kind, RecordKind::kBegin);
  EXPECT_EQ(RecordAt(server, server.messages.begin()->first)->epoch, relay->Status().epoch);
}

TEST_F(LogWriterTest, SnapshotsBoundTheLog) {
  TestWriter writer(*relay, server, now, 1, /*snapshot_bytes=*/5000);
  Claim(writer);
  for (int i = 0; i < 100; ++i) {
    relay->PublishMany(10);
    writer.Run();
    ExpectEqual("round " + std::to_string(i));
    size_t snapshots = 0;
    size_t bytes = 0;  // of batches
    for (const auto& [position, message] : server.messages) {
      const RecordKind kind = ParseRecord(message.header)->kind;
      snapshots += kind == RecordKind::kEnd;
      bytes += kind == RecordKind::kBatch ? message.payload.size() : 0;
    }
    ASSERT_LE(snapshots, 2u);
    ASSERT_LT(bytes, 15'000u);
  }
  EXPECT_GT(writer.writer.status().snapshots, 10u);
}

// The server ends after each possible number of stored messages, and is started again.
TEST_F(LogWriterTest, NoBatchIsLostOrRepeatedIfTheServerEnds) {
  for (size_t ends_after = 0; ends_after < 40; ++ends_after) {
    server = MemoryServer();
    relay = std::make_unique<TestRelay>();
    TestWriter writer(*relay, server, now, 1, /*snapshot_bytes=*/1500);
    relay->PublishMany(3);
    Claim(writer);
    server.ends_after = ends_after;
    for (int i = 0; i < 6; ++i) {
      relay->Publish(i == 2 ? 500 : 3);
      writer.Run();
    }
    writer.Run();
    if (!server.up) {
      EXPECT_EQ(writer.writer.status().state, WriterState::kUnreachable);
    }
    server.up = true;
    server.ends_after.reset();
    relay->PublishMany(2);
    writer.Run();
    ExpectEqual("the server ended after " + std::to_string(ends_after) + " messages");
    EXPECT_EQ(writer.writer.status().claims_lost, 0u);
    EXPECT_EQ(writer.writer.status().overflows, 0u);
  }
}

TEST_F(LogWriterTest, ASnapshotReplacesBatchesThatLeftTheRing) {
  PublisherConfig config = RelayPublisherConfig();
  config.ring_batches = 4;
  relay = std::make_unique<TestRelay>(config);
  TestWriter writer(*relay, server, now);
  relay->PublishMany(2);
  Claim(writer);
  server.up = false;
  relay->PublishMany(30);
  writer.Run();
  server.up = true;
  writer.Run();
  EXPECT_GE(writer.writer.status().overflows, 1u);
  ExpectEqual("after the overflow");
}

TEST_F(LogWriterTest, AnEpochThatBeginsLateHasNoDigests) {
  TestWriter writer(*relay, server, now);
  relay->next_seq = 5;
  relay->PublishMany(3);
  Claim(writer);
  relay->PublishMany(3);
  writer.Run();
  ExpectEqual("without digests");
  EXPECT_FALSE(relay->Status().has_digests);
}

TEST_F(LogWriterTest, ALargeBatchIsDividedIntoPieces) {
  TestWriter writer(*relay, server, now);
  Claim(writer);
  relay->Publish(1000);
  relay->Publish();
  writer.Run();
  EXPECT_GT(server.last, 7u);
  for (const auto& [position, message] : server.messages) {
    EXPECT_LE(message.payload.size(), server.max_payload);
  }
  ExpectEqual("pieces");
}

TEST_F(LogWriterTest, ASecondWriterStandsBy) {
  TestWriter first(*relay, server, now);
  relay->PublishMany(3);
  Claim(first);
  TestRelay other;
  TestWriter second(other, server, now, 2);
  other.PublishMany(7);
  for (int i = 0; i < 20; ++i) {
    now += LogWriter::kAnnounceMs;
    relay->Publish();
    first.Run();
    second.Run();
    ExpectEqual("the first relay writes");
  }
  EXPECT_EQ(second.writer.status().state, WriterState::kStandby);
  EXPECT_EQ(first.writer.status().state, WriterState::kWriting);
  EXPECT_EQ(first.writer.status().claims_lost, 0u);
  now += WriterClaim::kClaimMs;  // the first relay has ended
  second.Run();
  EXPECT_EQ(second.writer.status().state, WriterState::kWriting);
  std::swap(*relay, other);
  ExpectEqual("the second relay writes");
  std::swap(*relay, other);
}

// The history of a relay. Each step of a later snapshot takes a long time.
class SlowHistory final : public RelayHistory {
 public:
  explicit SlowHistory(RelayHistory& history) : history_(history) {}

  std::optional<RelayView> view() override { return history_.view(); }
  std::optional<RelayBatches> Read(const Epoch& epoch, uint64_t start, size_t limit) override {
    return history_.Read(epoch, start, limit);
  }
  std::optional<PublisherStatus> StatusOf(const Epoch& epoch) override {
    return history_.StatusOf(epoch);
  }
  std::optional<RelaySnapshot> SnapshotOf(const Epoch& epoch) override {
    std::optional<RelaySnapshot> snapshot = history_.SnapshotOf(epoch);
    if (!snapshot || !on_step) return snapshot;
    snapshot->content.step = [this, step = std::move(snapshot->content.step),
                              left = 8](std::vector<PublishedPayload>& parts) mutable {
      on_step();
      return --left > 0 || (step && step(parts));
    };
    return snapshot;
  }
  std::optional<RelayState> FirstStateOf(const Epoch& epoch) override {
    return history_.FirstStateOf(epoch);
  }

  std::function<void()> on_step;  // empty: the steps are those of the relay

 private:
  RelayHistory& history_;
};

TEST_F(LogWriterTest, ALongSnapshotDelaysNeitherAnnouncementsNorBatches) {
  SlowHistory history(*relay->sink);
  TestWriter first(history, server, now, 1, /*snapshot_bytes=*/8000);
  relay->PublishMany(3);
  Claim(first);
  TestRelay other;
  TestWriter second(other, server, now, 2);
  uint64_t announced = 0;  // the latest number that a reader can reach
  int steps = 0;
  history.on_step = [&] {
    now += LogWriter::kAnnounceMs;
    const LogRecord record = *ParseRecord(server.announcement->header);
    if (record.begun) announced = record.next;
    second.Run();
    EXPECT_EQ(second.writer.status().state, WriterState::kStandby) << steps;
    // A batch is announced in the second step after its own step at the latest.
    EXPECT_GE(announced + 3, relay->next_seq) << steps;
    relay->Publish();
    ++steps;
  };
  for (int snapshots = 1; snapshots < 4; ++snapshots) {
    EXPECT_EQ(first.writer.status().snapshots, static_cast<uint64_t>(snapshots));
    relay->Publish(1000);
    first.Run();
    ExpectEqual("after a long snapshot");
  }
  EXPECT_GE(steps, 24);
  EXPECT_EQ(first.writer.status().state, WriterState::kWriting);
  EXPECT_EQ(first.writer.status().claims_lost, 0u);
}

// Neither of the two relays receives the announcements of the other relay.
TEST_F(LogWriterTest, TheLogRefusesOneOfTwoWriters) {
  TestWriter first(*relay, server, now);
  relay->PublishMany(3);
  Claim(first);
  TestRelay other;
  TestWriter second(other, server, now, 2);
  server.announcement.reset();
  other.PublishMany(7);
  Claim(second);
  EXPECT_EQ(second.writer.status().state, WriterState::kWriting);
  server.announcement.reset();
  relay->Publish();
  first.Run();
  EXPECT_EQ(first.writer.status().claims_lost, 1u);
  EXPECT_NE(first.writer.status().state, WriterState::kWriting);
  const uint64_t end = server.last;
  first.Run();
  EXPECT_EQ(server.last, end) << "the first relay has no claim";
  std::swap(*relay, other);
  ExpectEqual("the log has the state of the second relay");
  std::swap(*relay, other);
}

TEST_F(LogWriterTest, AWriterBeginsAgainIfItsMessagesWereDeleted) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(3);
  Claim(writer);
  server.DeleteAll();
  server.last += 5;  // the next message is out of place, so the writer looks at the log
  relay->Publish();
  writer.Run();
  ExpectEqual("a new snapshot");
}

// Another program stores messages that are no records, or damaged records.
TEST_F(LogWriterTest, AForeignMessageDoesNoHarm) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(3);
  Claim(writer);
  for (const std::string& header :
       {std::string("nonsense"), std::string(), server.messages.rbegin()->second.header + " 1"}) {
    ++server.last;
    server.messages[server.last] = {server.last, header, {1, 2, 3}};
    relay->PublishMany(2);
    writer.Run();
    ExpectEqual("after '" + header + "'");
    EXPECT_EQ(writer.writer.status().state, WriterState::kWriting);
    EXPECT_EQ(writer.writer.status().claims_lost, 0u);
  }
}

TEST_F(LogWriterTest, TheRecordsNameThePlaceInTheStreamOfTheEngine) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(3);
  Claim(writer);
  MirrorTarget at_snapshot;
  LogReplica first(at_snapshot);
  ReadAll(writer.log, first);
  ASSERT_TRUE(at_snapshot.mark());
  EXPECT_EQ(at_snapshot.mark()->next_seq, 3u);
  relay->PublishMany(2);
  writer.Run();
  MirrorTarget later;
  LogReplica second(later);
  ReadAll(writer.log, second);
  EXPECT_EQ(later.mark()->next_seq, 5u);
  EXPECT_NE(later.mark()->hash, at_snapshot.mark()->hash);
}

TEST_F(LogWriterTest, TheAnnouncedStatusIsThatOfTheWrittenBatches) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(3);
  Claim(writer);
  ASSERT_TRUE(server.announcement);
  EXPECT_TRUE(ParseRecord(server.announcement->header)->begun);
  EXPECT_EQ(ParseRecord(server.announcement->header)->next, 3u);
  now += LogWriter::kAnnounceMs;
  relay->Publish();
  writer.Run();
  const auto record = ParseRecord(server.announcement->header);
  EXPECT_TRUE(record->begun);
  EXPECT_EQ(record->next, 4u);
  EXPECT_EQ(record->index, 1u);
  relay->PublishMany(1000);
  now += LogWriter::kAnnounceMs;
  writer.writer.Step();
  EXPECT_FALSE(ParseRecord(server.announcement->header)->begun) << "not all batches are written";
  writer.Run();
  now += LogWriter::kAnnounceMs;
  writer.Run();
  EXPECT_EQ(ParseRecord(server.announcement->header)->next, 1004u);
  relay->sink->NoteState(SourceState::kStale);
  now += LogWriter::kAnnounceMs;
  writer.Run();
  EXPECT_EQ(ParseRecord(server.announcement->header)->index, 0u);
}

}  // namespace
}  // namespace kvcast::event_log
