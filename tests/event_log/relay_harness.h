// An engine without sockets, the relay that publishes its batches, and the writer of the relay's
// log.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "kvcast/wire/wire.h"
#include "src/event_log/log_writer.h"
#include "src/stream/relay/relay_sink.h"
#include "tests/event_log/memory_log.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::event_log {

inline PublisherConfig RelayPublisherConfig(bool repeats_are_refreshes = false) {
  PublisherConfig config = stream::TestPublisherConfig();
  config.repeats_are_refreshes = repeats_are_refreshes;
  config.heartbeat_ms = 0;
  return config;
}

constexpr uint64_t kFirstHash = uint64_t{1} << 62;  // each encoded hash has 9 bytes

struct TestRelay {
  explicit TestRelay(const PublisherConfig& config = RelayPublisherConfig())
      : sink(stream::RelaySink::Create(config).value()) {
    sink->NoteState(SourceState::kSynced);
  }

  // A batch that stores `blocks` new blocks, and removes one old block if there is one.
  void Publish(size_t blocks = 3) {
    EventBatch batch;
    batch.ts = 1 + static_cast<double>(next_seq);
    BlockStored stored;
    for (size_t i = 0; i < blocks; ++i) {
      stored.block_hashes.push_back(BlockHash::FromUnsigned(kFirstHash + ++last_hash));
    }
    stored.block_size = 16;
    stored.medium = kMediumGpu;
    stored.group_idx = 0;
    batch.events.emplace_back(stored);
    if (last_hash > 10) {
      BlockRemoved removed;
      removed.block_hashes = {BlockHash::FromUnsigned(kFirstHash + ++last_removed)};
      removed.medium = kMediumGpu;
      removed.group_idx = 0;
      batch.events.emplace_back(removed);
    }
    Publish(batch);
  }
  void Publish(const EventBatch& batch) {
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    sink->Apply(Seq(next_seq++), payload);
  }
  // A batch that removes all blocks.
  void PublishClear() {
    EventBatch batch;
    batch.ts = 1 + static_cast<double>(next_seq);
    batch.events.emplace_back(AllBlocksCleared());
    Publish(batch);
  }
  void PublishMany(int batches) {
    for (int i = 0; i < batches; ++i) Publish();
  }
  // The engine restarts with an empty cache.
  void Restart() {
    sink->Reset(ResetReason::kRestart);
    next_seq = 0;
  }
  PublisherStatus Status() { return *sink->StatusOf(sink->view()->epoch); }

  std::shared_ptr<stream::RelaySink> sink;
  uint64_t next_seq = 0;  // of the engine
  uint64_t last_hash = 0;
  uint64_t last_removed = 0;
};

struct TestWriter {
  TestWriter(TestRelay& relay, MemoryServer& server, const std::atomic<int64_t>& now,
             uint64_t id = 1, uint64_t snapshot_bytes = 1 << 20)
      : TestWriter(*relay.sink, server, now, id, snapshot_bytes) {}
  TestWriter(RelayHistory& history, MemoryServer& server, const std::atomic<int64_t>& now,
             uint64_t id, uint64_t snapshot_bytes)
      : log(server),
        writer({.source = "m/w",
                .writer = id,
                .snapshot_bytes = snapshot_bytes,
                .now_ms = [&now] { return now.load(); }},
               history, log) {}

  // Calls Step until nothing can be written immediately. After a failure, one Step writes nothing,
  // and the next Step looks at the log. So the loop ends only after three calls in a row that write
  // nothing.
  void Run() {
    for (int idle = 0; idle < 3;) idle = writer.Step() ? 0 : idle + 1;
  }

  MemoryLog log;
  LogWriter writer;
};

// A relay, its log, and a clock.
struct LogTest : ::testing::Test {
  explicit LogTest(bool repeats_are_refreshes = false)
      : relay(std::make_unique<TestRelay>(RelayPublisherConfig(repeats_are_refreshes))) {}
  void Claim(TestWriter& writer) {
    writer.Run();
    now += WriterClaim::kClaimMs;
    writer.Run();
  }
  // Expects that a reader that begins now gets the state of the relay.
  void ExpectEqual(const std::string& phase) {
    MirrorTarget target;
    LogReplica replica(target);
    MemoryLog log(server);
    ReadAll(log, replica);
    const PublisherStatus status = relay->Status();
    ASSERT_TRUE(replica.valid()) << phase;
    EXPECT_FALSE(replica.lost()) << phase;
    EXPECT_EQ(replica.epoch(), status.epoch) << phase;
    EXPECT_EQ(replica.next(), status.next_seq) << phase;
    EXPECT_EQ(target.known(), status.has_digests) << phase;
    if (status.has_digests) {
      EXPECT_EQ(target.totals(), status.Totals()) << phase;
    }
  }

  std::atomic<int64_t> now = 1'000'000;  // in ms; threads of a bridge read the clock
  MemoryServer server;
  std::unique_ptr<TestRelay> relay;
};

}  // namespace kvcast::event_log
