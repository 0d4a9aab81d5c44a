// Many clients request snapshots. The work and the memory of the publisher stay bounded. A request
// for a status does not wait for snapshots.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "src/residency/extension.h"
#include "src/stream/publish/replay_scheduler.h"

namespace kvcast::stream {
namespace {

struct Sent {
  std::string client;
  bool end = false;
  bool status = false;  // END with a status
};

class Channel final : public ReplyChannel {
 public:
  bool Send(const std::string& client, uint64_t seq, Payload payload,
            std::shared_ptr<void> charge) override {
    sent.push_back({client, seq == kEndSeq, seq == kEndSeq && !payload->empty()});
    if (keeps_charges) charges.push_back(std::move(charge));
    return true;
  }
  size_t Ends() const {
    return static_cast<size_t>(
        std::count_if(sent.begin(), sent.end(), [](const Sent& each) { return each.end; }));
  }
  std::vector<Sent> sent;
  bool keeps_charges = false;  // clients do not read
  std::vector<std::shared_ptr<void>> charges;
};

struct ReplaySnapshots : ::testing::Test {
  ReplaySnapshots() { Store(); }
  void Store() {
    BlockStored stored;
    for (uint64_t i = 0; i < 100; ++i) stored.block_hashes.push_back(BlockHash(next_hash++));
    stored.block_size = 16;
    stored.medium = "GPU";
    EventBatch batch;
    batch.events.emplace_back(std::move(stored));
    ring.Append(std::move(batch));
  }
  void Ask(const std::string& client, residency::Verb verb, uint64_t argument = UINT64_MAX) {
    const auto request = residency::EncodeRequest({.verb = verb, .argument = argument});
    scheduler.AddRequest({reinterpret_cast<const uint8_t*>(client.data()), client.size()}, request);
  }
  void AskSnapshot(int client, uint64_t argument = UINT64_MAX) {
    Ask("s" + std::to_string(client), residency::Verb::kSnapshot, argument);
  }
  uint64_t snapshots() const { return scheduler.counters().snapshots; }

  uint64_t next_hash = 1;
  ReplayRing ring{1000, SIZE_MAX};
  PublisherState state{residency::Epoch(), ring, kDefaultDialect, /*data_parallel_rank=*/0};
  Channel channel;
  ReplayScheduler scheduler{
      {.rate = {}, .credit = {.replies = 1, .bytes = SIZE_MAX}}, ring, &state, channel, [] {}};
};

TEST_F(ReplaySnapshots, ClientsThatAskBeforeTheSnapshotIsMadeShareOneSnapshot) {
  for (int i = 0; i < 48; ++i) AskSnapshot(i);
  for (int i = 0; i < 10 && channel.Ends() < 48; ++i) scheduler.Serve(i);
  EXPECT_EQ(channel.Ends(), 48u);
  for (const Sent& each : channel.sent) EXPECT_EQ(each.end, each.status);
  EXPECT_EQ(snapshots(), 1u);
}

// A client that asks later may already have batches that the snapshot does not contain.
TEST_F(ReplaySnapshots, ALaterRequestGetsANewSnapshot) {
  AskSnapshot(0);
  scheduler.Serve(0);
  Store();
  AskSnapshot(1);
  scheduler.Serve(1);
  scheduler.Serve(2);
  EXPECT_EQ(snapshots(), 2u);
  EXPECT_EQ(channel.Ends(), 2u);
}

TEST_F(ReplaySnapshots, AStatusDoesNotWaitForSnapshots) {
  for (int i = 0; i < 40; ++i) AskSnapshot(i, uint64_t{1} << i);  // different buckets
  Ask("status", residency::Verb::kStatus, 0);
  scheduler.Serve(0);
  ASSERT_FALSE(channel.sent.empty());
  EXPECT_EQ(channel.sent.front().client, "status");
  EXPECT_TRUE(channel.sent.front().status);
  EXPECT_EQ(snapshots(), 1u);  // the call of Serve made one snapshot
  for (int i = 1; i < 200 && channel.Ends() < 41; ++i) scheduler.Serve(i);
  EXPECT_EQ(channel.Ends(), 41u);
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
  int64_t now_us = ReplayScheduler::kSnapshotHoldUs;
  for (int i = 0; i < 10; ++i) scheduler.Serve(now_us += 100'000);
  EXPECT_EQ(served(), 4u);
  EXPECT_EQ(scheduler.counters().dropped, 2u);
}

}  // namespace
}  // namespace kvcast::stream
