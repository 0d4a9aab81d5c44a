// Tests a replica over real sockets. A late joiner gets a snapshot or a replay. Digests find faults
// in the index, and a repair corrects the faults.
// SPDX-License-Identifier: Apache-2.0
#include "router/replica/replica.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>

#include "kvcast/stream/publisher.h"
#include "kvcast/stream/subscriber.h"
#include "tests/support/index_events.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using stream::Eventually;
using testing::Batch;
using testing::Hashes;
using testing::kWorker;
using testing::Remove;
using testing::StoreFull;

using Held = std::map<std::pair<int, uint64_t>, uint32_t>;  // (group, hash) -> copies

// Forwards the calls of the subscriber's thread to the replica.
class IndexSink final : public ReplicaSink {
 public:
  explicit IndexSink(Replica& replica) : replica_(replica) {}

  BatchResult Apply(Seq seq, std::span<const uint8_t> payload) override {
    DecodeCounts counts;
    if (!DecodeBatch(payload, WireLimits(), batch_, counts).ok()) return BatchResult::kUndecodable;
    replica_.Apply(seq.value, batch_);
    return BatchResult::kApplied;
  }
  void Reset(ResetReason reason) override { replica_.Reset(reason == ResetReason::kRestart); }
  bool TakesSnapshots() const override { return true; }
  void BeginSnapshot() override { replica_.BeginSnapshot(); }
  bool AddToSnapshot(std::span<const uint8_t> part) override {
    return replica_.AddToSnapshot(part);
  }
  bool CommitSnapshot(const PublisherStatus& status) override {
    return replica_.CommitSnapshot(status);
  }
  void DropSnapshot() override { replica_.DropSnapshot(); }
  DigestVerdict Compare(const PublisherStatus& status) override { return replica_.Compare(status); }
  bool Repairs() const override { return true; }
  uint64_t DifferingBuckets(const PublisherStatus& status) override {
    return replica_.DifferingBuckets(status);
  }
  void BeginRepair(uint64_t buckets) override { replica_.BeginRepair(buckets); }

 private:
  Replica& replica_;
  EventBatch batch_;
};

class ReplicaTest : public ::testing::Test {
 protected:
  void StartPublisher(size_t ring_batches) {
    PublisherConfig config;
    config.endpoint = config.replay_endpoint = "tcp://127.0.0.1:0";
    config.ring_batches = ring_batches;
    config.heartbeat_ms = 100;
    publisher = Publisher::Create(config).value();
  }
  void Store(uint64_t hash, int64_t group) {
    ASSERT_TRUE(publisher->Publish(Batch(StoreFull(Hashes(hash, 1), group))).ok());
    ++held[{static_cast<int>(group), hash}];
  }
  void RemoveOne(uint64_t hash, int64_t group) {
    ASSERT_TRUE(publisher->Publish(Batch(Remove(Hashes(hash, 1), group))).ok());
    if (--held[{static_cast<int>(group), hash}] == 0) held.erase({static_cast<int>(group), hash});
  }
  void Follow() {
    WorkerConfig worker = testing::Registered({});
    worker.digests = true;
    ASSERT_TRUE(index.AddWorker(kWorker, worker).ok());
    SubscriberConfig config;
    config.audit_interval_ms = 50;
    subscriber = Subscriber::Create(config).value();
    ASSERT_TRUE(subscriber
                    ->Add({kWorker, publisher->endpoint(), publisher->replay_endpoint(), ""},
                          std::make_shared<IndexSink>(replica))
                    .ok());
  }
  // Waits until the index holds exactly the published blocks. Returns false if the time runs out.
  bool Synced() const {
    return Eventually([this] {
      const SourceStatus status = subscriber->status(kWorker);
      if (status.state != SourceState::kSynced) return false;
      return status.next_seq >= publisher->next_seq().value && Contents() == held;
    });
  }
  Held Contents() const {
    Held contents;
    index.ForEachResidency(kWorker,
                           [&](Tier, uint8_t group, const BlockHash& hash, uint32_t copies) {
                             contents[{group, hash.integer()}] = copies;
                           });
    return contents;
  }
  SourceStatus status() const { return subscriber->status(kWorker); }

  std::unique_ptr<Publisher> publisher;
  PrefixIndex index;
  Replica replica{kWorker, index};
  Held held;
  std::unique_ptr<Subscriber> subscriber;  // must end before the members that its sink uses
};

// The replica compares a restored state only with a status at the sequence number of this state.
TEST(ReplicaResume, ComparesTheRestoredState) {
  PrefixIndex index;
  WorkerConfig worker = testing::Registered({});
  worker.digests = true;
  ASSERT_TRUE(index.AddWorker(kWorker, worker).ok());
  index.Apply(kWorker, Batch(StoreFull(Hashes(1, 3), 0)));
  PublisherStatus status;
  status.next_seq = 5;
  status.has_digests = true;
  for (const GroupTierDigest& digest : index.Digests(kWorker)) {
    status.groups.push_back({digest, std::nullopt});
  }
  Replica replica(kWorker, index);
  EXPECT_EQ(replica.Compare(status), DigestVerdict::kUnknown);
  replica.Resume(5, /*left_out=*/false);
  EXPECT_EQ(replica.Compare(status), DigestVerdict::kEqual);
  status.groups[0].digest.total.copies = 4;
  EXPECT_EQ(replica.Compare(status), DigestVerdict::kDiffers);
  replica.Resume(5, /*left_out=*/true);
  EXPECT_EQ(replica.Compare(status), DigestVerdict::kUnknown);
}

TEST_F(ReplicaTest, LateJoinerOfALongStreamGetsASnapshot) {
  StartPublisher(/*ring_batches=*/4);
  for (uint64_t i = 0; i < 200; ++i) Store(i % 50, static_cast<int64_t>(i % 3));
  for (uint64_t i = 0; i < 20; ++i) RemoveOne(i, static_cast<int64_t>(i % 3));
  // counters() encodes every published batch. The ring then has only the last four batches. The
  // follower can receive the earlier batches only in a snapshot. There may be heartbeats among the
  // batches.
  ASSERT_GE(publisher->counters().batches, 220u);
  Follow();
  EXPECT_TRUE(Synced());
  EXPECT_EQ(status().snapshots, 1u);
  EXPECT_EQ(status().resets, 0u);
  EXPECT_TRUE(status().extended);
  Store(1000, 0);
  EXPECT_TRUE(Synced());
}

// Row C3 of tests/RELIABILITY.md. With --gtest_repeat, each run has other batches.
TEST_F(ReplicaTest, AfterASnapshotTheStreamContinuesWithoutASecondOne) {
  static uint64_t run = 0;
  StartPublisher(/*ring_batches=*/4);
  const uint64_t stores = 20 + ++run % 50;
  for (uint64_t i = 0; i < stores; ++i) Store(i, static_cast<int64_t>((i + run) % 3));
  ASSERT_GE(publisher->counters().batches, stores);
  Follow();
  ASSERT_TRUE(Synced());
  for (uint64_t i = 0; i < 3; ++i) {
    Store(1000 + i, 0);
    ASSERT_TRUE(Synced());
  }
  EXPECT_EQ(status().snapshots, 1u);
  EXPECT_EQ(status().gaps, 0u);
  EXPECT_EQ(status().resets, 0u);
  EXPECT_EQ(status().digest_mismatches, 0u);
  EXPECT_GE(status().first_seq, stores);
}

TEST_F(ReplicaTest, LateJoinerOfAShortStreamGetsAReplay) {
  StartPublisher(/*ring_batches=*/1000);
  for (uint64_t i = 0; i < 100; ++i) Store(i, 0);
  Follow();
  EXPECT_TRUE(Synced());
  EXPECT_EQ(status().snapshots, 0u);
  EXPECT_TRUE(Eventually([this] { return status().digest_checks > 0; }));
  EXPECT_EQ(status().digest_mismatches, 0u);
}

// A replay does not contain the refused batch. The publisher's record of held blocks includes the
// events of this batch, so a snapshot includes these events too.
TEST_F(ReplicaTest, ASnapshotContainsTheEventsOfARefusedBatch) {
  StartPublisher(/*ring_batches=*/1000);
  for (uint64_t i = 0; i < 100; ++i) Store(i, 0);
  Follow();
  ASSERT_TRUE(Synced());
  BlockStored stored = StoreFull(Hashes(500, 1), 0);
  stored.lora_name = "\xff not text";
  EXPECT_FALSE(publisher->Publish(Batch(stored, Remove(Hashes(7, 1), 0))).ok());
  held[{0, 500}] = 1;
  held.erase({0, 7});
  EXPECT_TRUE(Synced());
  EXPECT_EQ(status().snapshots, 1u);
  EXPECT_EQ(status().resets, 0u);
}

// If the publisher cannot encode the tier of a block, the publisher loses its own record of held
// blocks. The publisher announces this loss, and the follower clears the worker.
TEST_F(ReplicaTest, AWorkerWithUnknownContentsIsCleared) {
  StartPublisher(/*ring_batches=*/1000);
  for (uint64_t i = 0; i < 100; ++i) Store(i, 0);
  Follow();
  ASSERT_TRUE(Synced());
  BlockStored stored = StoreFull(Hashes(500, 1), 0);
  stored.medium = "\xff not text";
  EXPECT_FALSE(publisher->Publish(Batch(stored)).ok());
  EXPECT_TRUE(Eventually([this] { return status().state == SourceState::kCleared; }))
      << SourceStateName(status().state) << " (" << SourceReasonName(status().reason) << ")";
  EXPECT_EQ(Contents(), Held{});
}

TEST_F(ReplicaTest, DamageIsFoundAndRepaired) {
  StartPublisher(/*ring_batches=*/1000);
  for (uint64_t i = 0; i < 100; ++i) Store(i, 0);
  Follow();
  ASSERT_TRUE(Synced());
  index.Apply(kWorker, Batch(Remove(Hashes(7, 3), 0), StoreFull(Hashes(5, 1), 0)));
  EXPECT_TRUE(Eventually([this] { return status().repairs == 1; }));
  EXPECT_TRUE(Synced());
  EXPECT_EQ(status().digest_mismatches, 1u);
  EXPECT_EQ(status().snapshots, 0u);
}

TEST_F(ReplicaTest, AContradictedStateIsReplaced) {
  StartPublisher(/*ring_batches=*/1000);
  for (uint64_t i = 0; i < 100; ++i) Store(i, 0);
  Follow();
  ASSERT_TRUE(Synced());
  subscriber->Contradict(kWorker);
  // A snapshot replaces the state. Exception: all batches arrived live before the subscriber
  // requested the epoch. The subscriber then resets the state and builds it from the first batch.
  EXPECT_TRUE(Eventually([this] { return status().snapshots + status().resets >= 1; }));
  EXPECT_TRUE(Synced());
}

TEST_F(ReplicaTest, MoreBlocksThanTheEngineHasAreTooMany) {
  WorkerConfig worker = testing::Registered({});
  worker.digests = true;
  ASSERT_TRUE(index.AddWorker(kWorker, worker).ok());
  replica.Apply(0, Batch(StoreFull(Hashes(1, 4), 0), StoreFull(Hashes(1, 4), 1)));
  EXPECT_FALSE(replica.Exceeds(4));
  EXPECT_TRUE(replica.Exceeds(3));
  EXPECT_FALSE(replica.Exceeds(0)) << "the engine's number of blocks is not known";
  replica.Apply(1, Batch(StoreFull(Hashes(1, 1), 1)));
  EXPECT_TRUE(replica.Exceeds(4)) << "a copy is a block too";
}

TEST_F(ReplicaTest, HeartbeatsOfASilentEngineAreReceived) {
  StartPublisher(/*ring_batches=*/1000);
  Store(1, 0);
  Follow();
  ASSERT_TRUE(Synced());
  EXPECT_TRUE(Eventually([this] { return status().next_seq >= 4; }));
  // The publisher counts a heartbeat first as a batch and then as a heartbeat.
  EXPECT_TRUE(Eventually([this] {
    const PublisherCounters counters = publisher->counters();
    return counters.heartbeats + 1 == counters.batches;
  }));
  EXPECT_TRUE(Synced());
}

// A digest that matched before a reset does not hold for the blocks after the reset.
TEST(Replica, AResetForgetsDigests) {
  PrefixIndex index;
  WorkerConfig worker = testing::Registered({});
  worker.digests = true;
  ASSERT_TRUE(index.AddWorker(kWorker, worker).ok());
  Replica replica(kWorker, index);
  PublisherStatus of_nothing;
  of_nothing.has_digests = true;
  of_nothing.next_seq = 1;
  for (const bool restart : {false, true}) {
    replica.Apply(0, {});
    EXPECT_EQ(replica.Compare(of_nothing), DigestVerdict::kEqual);
    replica.Reset(restart);
    EXPECT_EQ(replica.Compare(of_nothing), DigestVerdict::kUnknown) << restart;
  }
}

}  // namespace
}  // namespace kvcast::router
