// Many clients request snapshots and replays. The work and the memory of the publisher stay
// bounded, also when clients are dropped and ask again. Other requests do not wait until a snapshot
// is written.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/residency/extension.h"
#include "src/residency/snapshot_reader.h"
#include "src/stream/publish/replay_scheduler.h"

namespace kvcast::stream {
namespace {

struct Sent {
  std::string client;
  bool end = false;
  bool status = false;  // END with a status
  Payload payload;
};

class Channel final : public ReplyChannel {
 public:
  bool Send(const std::string& client, uint64_t seq, Payload payload,
            std::shared_ptr<void> charge) override {
    sent.push_back({client, seq == kEndSeq, seq == kEndSeq && !payload->empty(), payload});
    if (keeps_charges) charges.push_back(std::move(charge));
    return true;
  }
  size_t Ends() const {
    return static_cast<size_t>(
        std::count_if(sent.begin(), sent.end(), [](const Sent& each) { return each.end; }));
  }
  size_t EndsOf(const std::string& client) const {
    return static_cast<size_t>(std::count_if(sent.begin(), sent.end(), [&](const Sent& each) {
      return each.end && each.client == client;
    }));
  }
  std::vector<Sent> sent;
  bool keeps_charges = false;  // clients do not read
  std::vector<std::shared_ptr<void>> charges;
};

Frame AsFrame(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void AskReplay(ReplayScheduler& scheduler, const std::string& client) {
  scheduler.AddRequest(AsFrame(client), EncodeSeq(0));
}

constexpr size_t kMoreClientsThanPlaces = ReplayScheduler::kMaxClients + 1;

struct ReplaySnapshots : ::testing::Test {
  ReplaySnapshots() { Store(); }
  // The hashes are uniform, like those of an engine.
  void Store(uint64_t blocks = 100) {
    BlockStored stored;
    for (uint64_t i = 0; i < blocks; ++i) {
      stored.block_hashes.push_back(BlockHash(next_hash++ * 0x9E3779B97F4A7C15));
    }
    stored.block_size = 16;
    stored.medium = "GPU";
    EventBatch batch;
    batch.events.emplace_back(std::move(stored));
    ring.Append(std::move(batch));
  }
  void Ask(const std::string& client, residency::Verb verb, uint64_t argument = UINT64_MAX) {
    const auto request = residency::EncodeRequest({.verb = verb, .argument = argument});
    scheduler.AddRequest(AsFrame(client), request);
  }
  void AskSnapshot(int client, uint64_t argument = UINT64_MAX) {
    Ask("s" + std::to_string(client), residency::Verb::kSnapshot, argument);
  }
  void StoreMany() {
    for (int i = 0; i < 100; ++i) Store(1000);
  }
  uint64_t snapshots() const { return scheduler.counters().snapshots; }
  // Calls Serve until `ends` requests are answered, with at least `step_us` between two calls.
  void ServeUntil(size_t ends, int64_t step_us = 1) {
    for (int i = 0; i < 10000 && channel.Ends() < ends; ++i) {
      scheduler.Serve(now_us);
      now_us += std::max(step_us, 1000 * scheduler.WaitMs(now_us));
    }
    EXPECT_EQ(channel.Ends(), ends);
  }

  uint64_t next_hash = 1;
  int64_t now_us = 0;
  ReplayRing ring{1000, SIZE_MAX};
  PublisherState state{residency::Epoch(), ring, kDefaultDialect, /*data_parallel_rank=*/0};
  Channel channel;
  ReplayScheduler scheduler{
      {.rate = {}, .credit = {.replies = 1, .bytes = SIZE_MAX}}, ring, &state, channel, [] {}};
};

TEST_F(ReplaySnapshots, ClientsThatAskBeforeTheSnapshotIsMadeShareOneSnapshot) {
  for (int i = 0; i < 48; ++i) AskSnapshot(i);
  ServeUntil(48);
  for (const Sent& each : channel.sent) EXPECT_EQ(each.end, each.status);
  EXPECT_EQ(snapshots(), 1u);
}

// A client that asks later may already have batches that the snapshot does not contain.
TEST_F(ReplaySnapshots, ALaterRequestGetsANewSnapshot) {
  AskSnapshot(0);
  scheduler.Serve(0);
  Store();
  AskSnapshot(1);
  ServeUntil(2);
  EXPECT_EQ(snapshots(), 2u);
}

TEST_F(ReplaySnapshots, OtherRequestsAreAnsweredWhileASnapshotIsWritten) {
  StoreMany();
  AskSnapshot(0);
  scheduler.Serve(0);
  int statuses = 0;
  bool part_before_status = false;
  Ask("replay", residency::Verb::kReplay, 100);
  while (channel.EndsOf("s0") == 0 && statuses < 10000) {
    part_before_status = channel.sent.size() > 0 && channel.sent.back().client == "s0";
    Ask("status", residency::Verb::kStatus, 0);
    scheduler.Serve(++statuses);
    ASSERT_EQ(channel.EndsOf("status"), static_cast<size_t>(statuses));
  }
  EXPECT_GT(statuses, 20);
  EXPECT_TRUE(part_before_status) << "a part must be sent before all parts are written";
  EXPECT_EQ(channel.EndsOf("replay"), 1u);
  EXPECT_EQ(snapshots(), 1u);
}

TEST_F(ReplaySnapshots, EachReaderOfASharedSnapshotGetsAllItsParts) {
  StoreMany();
  for (int i = 0; i < 3; ++i) AskSnapshot(i);
  scheduler.Serve(0);
  Store();  // after the snapshot
  ServeUntil(3);
  for (const char* client : {"s0", "s1", "s2"}) {
    residency::SnapshotReader reader;
    EventBatch batch;
    for (const Sent& each : channel.sent) {
      if (each.client != client) continue;
      if (!each.end) {
        ASSERT_TRUE(reader.Read(*each.payload, batch).ok());
        continue;
      }
      const auto status = residency::ParseStatus(*each.payload);
      ASSERT_TRUE(status.ok());
      EXPECT_EQ(status->next_seq, 101u);
      EXPECT_TRUE(reader.Finish(status->Totals()).ok());
    }
    EXPECT_EQ(reader.copies(), 100'100u);
  }
}

TEST_F(ReplaySnapshots, ASnapshotIsWrittenWhileItsReaderIsPaused) {
  StoreMany();
  channel.keeps_charges = true;
  AskSnapshot(0);
  int calls = 0;
  do {
    scheduler.Serve(++calls);
  } while (scheduler.WaitMs(calls) == 0 && calls < 10000);
  EXPECT_EQ(scheduler.WaitMs(calls), -1) << "Serve must not run in a busy loop";
  EXPECT_EQ(channel.sent.size(), 1u);
  channel.keeps_charges = false;
  channel.charges.clear();
  scheduler.Resume();
  scheduler.Serve(++calls);
  EXPECT_GT(channel.sent.size(), 20u) << "all parts must be written by now";
}

// A reader counts as slow only after all parts of its snapshot are written.
TEST_F(ReplaySnapshots, AReaderIsNotDroppedWhileItsSnapshotIsWritten) {
  StoreMany();
  for (int i = 0; i < 5; ++i) AskSnapshot(i, ~(uint64_t{1} << i));
  ServeUntil(5, /*step_us=*/ReplayScheduler::kSnapshotHoldUs / 8);
  EXPECT_EQ(snapshots(), 5u);
  EXPECT_EQ(scheduler.counters().dropped, 0u);
}

TEST_F(ReplaySnapshots, AStatusDoesNotWaitForSnapshots) {
  for (int i = 0; i < 40; ++i) AskSnapshot(i, uint64_t{1} << i);  // different buckets
  Ask("status", residency::Verb::kStatus, 0);
  scheduler.Serve(0);
  ASSERT_FALSE(channel.sent.empty());
  EXPECT_EQ(channel.sent.front().client, "status");
  EXPECT_TRUE(channel.sent.front().status);
  EXPECT_EQ(snapshots(), 1u);  // the call of Serve made one snapshot
  ServeUntil(41);
  EXPECT_EQ(snapshots(), 40u);
}

TEST_F(ReplaySnapshots, FewSnapshotsAreInMemoryAndSlowReadersMakeRoom) {
  channel.keeps_charges = true;
  for (int i = 0; i < 5; ++i) AskSnapshot(i, ~(uint64_t{1} << i));
  for (int i = 0; i < 100; ++i) scheduler.Serve(i);
  EXPECT_EQ(snapshots(), ReplayScheduler::kMaxSnapshots);
  const auto served = [&] {
    std::map<std::string, int> clients;
    for (const Sent& each : channel.sent) ++clients[each.client];
    return clients.size();
  };
  EXPECT_EQ(served(), 2u);
  EXPECT_GT(scheduler.WaitMs(100), 0);  // no busy loop
  now_us = ReplayScheduler::kSnapshotHoldUs;
  for (int i = 0; i < 100; ++i) scheduler.Serve(now_us += 10'000);
  EXPECT_EQ(served(), 4u);
  EXPECT_EQ(scheduler.counters().dropped, 2u);
}

// Each of three clients always has two open requests for snapshots. The three clients request
// different buckets.
TEST_F(ReplaySnapshots, ALaterRequestForASnapshotDoesNotOvertake) {
  std::array<size_t, 3> asked{};
  const auto serve = [&] {
    for (size_t i = 0; i < asked.size(); ++i) {
      const std::string client = "hostile" + std::to_string(i);
      for (; asked[i] < channel.EndsOf(client) + 2; ++asked[i]) {
        Ask(client, residency::Verb::kSnapshot, ~(uint64_t{1} << i));
      }
    }
    scheduler.Serve(now_us += 500);
  };
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 10 + round; ++i) serve();
    const std::string client = "good" + std::to_string(round);
    const uint64_t before = snapshots();
    Ask(client, residency::Verb::kSnapshot);
    for (int i = 0; i < 1000 && channel.EndsOf(client) == 0; ++i) serve();
    ASSERT_EQ(channel.EndsOf(client), 1u) << round;
    ASSERT_LE(snapshots() - before, 2 * ReplayScheduler::kMaxSnapshots) << round;
  }
}

TEST_F(ReplaySnapshots, ADroppedClientGetsNoNewCredit) {
  Store();
  Store();
  channel.keeps_charges = true;
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < kMoreClientsThanPlaces; ++i) {
      AskReplay(scheduler, "c" + std::to_string(i));
      scheduler.Serve(++now_us);
    }
  }
  EXPECT_GT(scheduler.counters().dropped, 9 * kMoreClientsThanPlaces);
  EXPECT_EQ(channel.sent.size(), kMoreClientsThanPlaces) << "each client must get one reply";
  Ask("c0", residency::Verb::kSnapshot);
  scheduler.Serve(++now_us);
  EXPECT_EQ(snapshots(), 0u) << "a client without credit must take no place of a snapshot";
  channel.keeps_charges = false;
  channel.charges.clear();
  scheduler.Resume();
  ServeUntil(ReplayScheduler::kMaxClients);
  EXPECT_EQ(channel.EndsOf("c0"), 1u);
}

// The rate allows four requests at once.
TEST_F(ReplaySnapshots, ADroppedClientKeepsItsRate) {
  ReplayScheduler limited({.rate = {.requests = 1}, .credit = {}}, ring, &state, channel, [] {});
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < kMoreClientsThanPlaces; ++i) {
      AskReplay(limited, "c" + std::to_string(i));
      limited.Serve(now_us);
    }
  }
  for (size_t i = 0; i < kMoreClientsThanPlaces; ++i) {
    EXPECT_EQ(channel.EndsOf("c" + std::to_string(i)), 4u) << i;
  }
}

TEST_F(ReplaySnapshots, UnusedBudgetsOfDroppedClientsAreForgotten) {
  const auto wakes = std::make_shared<int>(0);  // each credit has a copy of the function
  ReplayScheduler limited({.rate = {.requests = 1}, .credit = {}}, ring, &state, channel,
                          [wakes] { ++*wakes; });
  for (int i = 0; i < 10000; ++i) {
    AskReplay(limited, "c" + std::to_string(i));
    limited.Serve(now_us += 10'000);
    ASSERT_LT(wakes.use_count(), 1000) << i;
  }
}

}  // namespace
}  // namespace kvcast::stream
