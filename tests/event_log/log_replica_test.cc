// A replica takes only a complete snapshot and the batches after the snapshot, without a gap. This
// holds for any part of the log that the replica reads.
// SPDX-License-Identifier: Apache-2.0
#include "src/event_log/log_replica.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/event_log/relay_harness.h"

namespace kvcast::event_log {
namespace {

struct LogReplicaTest : LogTest {
  // Writes two snapshots of one epoch with batches before, between and after their parts. Nothing
  // is deleted from `all`.
  void WriteLog() {
    server.max_payload = 4000;
    TestWriter writer(*relay, server, now, 1, /*snapshot_bytes=*/9000);
    Claim(writer);
    for (int i = 0; i < 60; ++i) {
      relay->Publish(i == 20 ? 9000 : 20);
      std::map<uint64_t, LogMessage> kept = server.messages;
      while (writer.writer.Step()) kept.insert(server.messages.begin(), server.messages.end());
      kept.insert(server.messages.begin(), server.messages.end());
      all.insert(kept.begin(), kept.end());
    }
    retained = server.messages.begin()->first;
    ASSERT_GT(retained, 1u);
  }
  void Apply(LogReplica& replica, uint64_t position) {
    LogMessage message = all.at(position);
    replica.Apply(std::move(message));
  }
  void ApplyFrom(LogReplica& replica, uint64_t begin) {
    for (auto next = all.lower_bound(begin); next != all.end(); ++next) Apply(replica, next->first);
  }
  // Applies the messages up to `last`, except those at the missing positions.
  void ApplyWithout(LogReplica& replica, const std::set<uint64_t>& missing, uint64_t last) {
    for (auto next = all.begin(); next != all.upper_bound(last); ++next) {
      if (!missing.contains(next->first)) Apply(replica, next->first);
    }
  }
  // The first position at which a snapshot with batch `seq` is complete and a later batch has
  // arrived. nullopt: none.
  std::optional<uint64_t> FilledAt(uint64_t seq) const {
    uint64_t index = 0;
    bool filled = false;
    bool later = false;
    for (const auto& [position, message] : all) {
      const LogRecord record = *ParseRecord(message.header);
      if (record.kind == RecordKind::kBegin) index = record.index;
      filled = filled || (record.kind == RecordKind::kEnd && index > seq);
      later = later || (record.kind == RecordKind::kBatch && !record.more && record.next > seq + 1);
      if (filled && later) return position;
    }
    return std::nullopt;
  }
  // If the replica is valid, it must have the state of the relay.
  void ExpectRelayStateIfValid(const LogReplica& replica, const MirrorTarget& target,
                               uint64_t begin) {
    if (!replica.valid()) return;
    ++valid_replicas;
    EXPECT_EQ(replica.next(), relay->Status().next_seq) << begin;
    EXPECT_EQ(target.totals(), relay->Status().Totals()) << begin;
  }

  std::map<uint64_t, LogMessage> all;
  uint64_t retained = 0;  // the first position that the writer did not delete
  int valid_replicas = 0;
};

// Whenever the messages before a position are deleted, a reader that begins there has the whole
// state, or waits for the next snapshot.
TEST_F(LogReplicaTest, AReaderMayBeginAtEachMessage) {
  WriteLog();
  for (const auto& [begin, message] : all) {
    MirrorTarget target;
    LogReplica replica(target);
    ApplyFrom(replica, begin);
    if (begin <= retained) {
      EXPECT_TRUE(replica.valid()) << begin;
    }
    EXPECT_FALSE(replica.lost()) << begin;
    ExpectRelayStateIfValid(replica, target, begin);
  }
  EXPECT_GT(valid_replicas, 10);
}

// The first state is too large.
struct SmallTarget final : MirrorTarget {
  bool Begin(RelayState state) override {
    ++begins;
    return MirrorTarget::Begin(std::move(state));
  }
  bool LacksState() const override { return begins == 1; }

  int begins = 0;
};

TEST_F(LogReplicaTest, TheNextSnapshotReplacesAStateThatWasTooLarge) {
  WriteLog();
  std::vector<LogMessage> messages;
  for (const auto& [position, message] : all) messages.push_back(message);
  const auto is_kind = [](RecordKind kind) {
    return [kind](const LogMessage& message) { return ParseRecord(message.header)->kind == kind; };
  };
  // Another writer could write batches before the end of the second snapshot.
  const auto first_end = std::ranges::find_if(messages, is_kind(RecordKind::kEnd));
  const auto begin = std::find_if(first_end, messages.end(), is_kind(RecordKind::kBegin));
  const auto end = std::find_if(begin, messages.end(), is_kind(RecordKind::kEnd));
  const auto batch = std::find_if(end, messages.end(), is_kind(RecordKind::kBatch));
  // The state of the snapshot includes the first of these batches, but not the second.
  ASSERT_GT(messages.end() - batch, 2);
  std::rotate(begin + 1, batch, batch + 2);
  SmallTarget target;
  LogReplica replica(target);
  for (size_t i = 0; i < messages.size(); ++i) {
    messages[i].position = i + 1;
    replica.Apply(std::move(messages[i]));
  }
  EXPECT_EQ(target.begins, 2);
  EXPECT_EQ(replica.counters().gaps, 0u);
  ExpectRelayStateIfValid(replica, target, 1);
  EXPECT_EQ(valid_replicas, 1);
}

// Messages are deleted while a reader reads.
TEST_F(LogReplicaTest, AReaderThatMissesMessagesReadsAgain) {
  WriteLog();
  for (uint64_t cut = 1; cut + 2 < retained; cut += 3) {
    MirrorTarget target;
    LogReplica replica(target);
    for (uint64_t position = 1; position <= cut; ++position) Apply(replica, position);
    ApplyFrom(replica, retained);
    if (replica.lost()) {
      replica.Restart();
      ApplyFrom(replica, retained);
    }
    EXPECT_TRUE(replica.valid()) << cut;
    ExpectRelayStateIfValid(replica, target, cut);
  }
}

TEST_F(LogReplicaTest, AMissingMessageIsNeverOverlooked) {
  WriteLog();
  for (const auto& [missing, message] : all) {
    if (missing < retained) continue;
    MirrorTarget target;
    LogReplica replica(target);
    for (auto next = all.lower_bound(retained); next != all.end(); ++next) {
      if (next->first != missing) Apply(replica, next->first);
    }
    if (replica.valid() && missing != all.rbegin()->first) {
      EXPECT_EQ(target.totals(), relay->Status().Totals()) << missing << ' ' << message.header;
    }
  }
}

// Another reading of the log does not return the missing message either.
TEST_F(LogReplicaTest, ASnapshotReplacesABatchThatTheLogLacks) {
  WriteLog();
  const uint64_t last = all.rbegin()->first;
  for (const auto& [missing, message] : all) {
    const LogRecord record = *ParseRecord(message.header);
    if (record.kind != RecordKind::kBatch) continue;
    const auto filled = FilledAt(record.more ? record.next : record.next - 1);
    if (!filled) continue;
    MirrorTarget target;
    LogReplica replica(target);
    ApplyWithout(replica, {missing}, last);
    ASSERT_TRUE(replica.lost()) << missing;
    replica.Restart();
    ApplyWithout(replica, {missing}, *filled);
    EXPECT_TRUE(replica.valid()) << missing;
    replica.Restart();
    ApplyWithout(replica, {missing}, last);
    EXPECT_FALSE(replica.lost()) << missing;
    EXPECT_TRUE(replica.valid()) << missing;
    ExpectRelayStateIfValid(replica, target, missing);
  }
  EXPECT_GT(valid_replicas, 20);
}

TEST_F(LogReplicaTest, EachBatchThatTheLogLacksNeedsOneMoreReading) {
  WriteLog();
  const uint64_t last = all.rbegin()->first;
  uint64_t first_batch = 0;
  uint64_t latest_batch = 0;  // before the latest snapshot
  uint64_t batch = 0;
  for (const auto& [position, message] : all) {
    const RecordKind kind = ParseRecord(message.header)->kind;
    if (kind == RecordKind::kBatch) batch = position;
    if (kind == RecordKind::kBatch && first_batch == 0) first_batch = position;
    if (kind == RecordKind::kBegin) latest_batch = batch;
  }
  MirrorTarget target;
  LogReplica replica(target);
  ApplyWithout(replica, {first_batch, latest_batch}, last);
  for (int restarts = 0; restarts < 2; ++restarts) {
    ASSERT_TRUE(replica.lost()) << restarts;
    replica.Restart();
    ApplyWithout(replica, {first_batch, latest_batch}, last);
  }
  EXPECT_FALSE(replica.lost());
  EXPECT_TRUE(replica.valid());
  ExpectRelayStateIfValid(replica, target, 0);
}

TEST_F(LogReplicaTest, BatchesThatArriveTwiceAreTakenOnce) {
  WriteLog();
  MirrorTarget target;
  LogReplica replica(target);
  for (auto next = all.lower_bound(retained); next != all.end(); ++next) {
    Apply(replica, next->first);
    if (!ParseRecord(next->second.header)->more) Apply(replica, next->first);
  }
  ASSERT_TRUE(replica.valid());
  ExpectRelayStateIfValid(replica, target, 0);
}

TEST_F(LogReplicaTest, APartThatIsDamagedMakesTheSnapshotUnusable) {
  WriteLog();
  uint64_t latest = 0;  // position of the latest complete snapshot
  for (uint64_t begin = 0; const auto& [position, message] : all) {
    const RecordKind kind = ParseRecord(message.header)->kind;
    if (kind == RecordKind::kBegin) begin = position;
    if (kind == RecordKind::kEnd) latest = begin;
  }
  size_t parts = 0;
  for (auto& [position, message] : all) {
    if (position < latest || ParseRecord(message.header)->kind != RecordKind::kPart) continue;
    LogMessage damaged = message;
    damaged.payload.resize(damaged.payload.size() / 2);
    std::swap(message, damaged);
    MirrorTarget target;
    LogReplica replica(target);
    ApplyFrom(replica, latest);
    EXPECT_FALSE(replica.valid());
    EXPECT_GE(replica.counters().bad_records, 1u);
    std::swap(message, damaged);
    ++parts;
  }
  EXPECT_GT(parts, 1u);
}

TEST_F(LogReplicaTest, AnotherEpochWithTheSameStateIsAdopted) {
  TestWriter writer(*relay, server, now);
  relay->PublishMany(5);
  Claim(writer);
  MirrorTarget target;
  LogReplica replica(target);
  for (auto& [position, message] : server.messages) replica.Apply(LogMessage(message));
  uint64_t read = server.last;
  // A relay whose engine sent the same blocks.
  TestRelay same;
  same.PublishMany(5);
  TestWriter second(same, server, now, 2);
  now += 2 * WriterClaim::kClaimMs;
  Claim(second);
  same.Publish();
  second.Run();
  const uint64_t batches = target.batches();
  for (auto next = server.messages.upper_bound(read); next != server.messages.end(); ++next)
    replica.Apply(LogMessage(next->second));
  EXPECT_EQ(replica.counters().adoptions, 1u);
  EXPECT_EQ(replica.counters().snapshots, 1u);
  EXPECT_EQ(target.batches(), batches + 1);
  EXPECT_EQ(target.totals(), same.Status().Totals());
}

TEST(LogRecordTest, ARecordIsReadAsItWasWritten) {
  LogRecord record{.kind = RecordKind::kBatch,
                   .epoch = {~uint64_t{0}, 7},
                   .writer = 0xABCDEF,
                   .next = 9'000'000'000,
                   .begun = true,
                   .index = 3,
                   .piece = 2,
                   .more = true,
                   .mark = EngineMark{77, {1, ~uint64_t{0}}}};
  EXPECT_EQ(ParseRecord(EncodeRecord(record)), record);
  record.mark.reset();
  EXPECT_EQ(ParseRecord(EncodeRecord(record)), record);
  const std::string text = EncodeRecord(record);
  for (size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(ParseRecord(text.substr(0, size)));
  EXPECT_FALSE(ParseRecord(text + " "));
  EXPECT_FALSE(ParseRecord("nonsense" + text));
}

}  // namespace
}  // namespace kvcast::event_log
