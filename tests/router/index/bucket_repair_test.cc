// Bucket repair finds, requests and replaces the damaged buckets of the index, and changes no other
// bucket. A mirror holds the publisher's state.
// SPDX-License-Identifier: Apache-2.0
#include "router/replica/bucket_repair.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "router/replica/replica.h"
#include "src/residency/mirror.h"
#include "src/residency/snapshot_writer.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using testing::Batch;
using testing::Hashes;
using testing::kWorker;
using testing::Remove;
using testing::RemoveFrom;
using testing::StoreFull;
using testing::StoreIn;

using Content = std::map<std::tuple<Tier, uint8_t, std::string>, uint32_t>;

std::string TextOf(const BlockHash& hash) {
  if (hash.is_bytes()) return std::string(hash.bytes().begin(), hash.bytes().end());
  return std::to_string(static_cast<int>(hash.form())) + ":" + std::to_string(hash.integer());
}

class BucketRepairTest : public ::testing::Test {
 protected:
  BucketRepairTest() {
    WorkerConfig worker;
    worker.digests = true;
    EXPECT_TRUE(index.AddWorker(kWorker, worker).ok());
  }

  // Applies a batch to the publisher's mirror and to the replica.
  void Apply(const EventBatch& batch) {
    mirror.Apply(batch);
    replica.Apply(seq++, batch);
  }
  void ApplyBlocks(int64_t blocks) {
    for (int64_t first = 0; first < blocks; first += 100) {
      Apply(Batch(StoreFull(Hashes(static_cast<uint64_t>(first), 100), first / 100 % 3)));
    }
  }
  // Applies a batch only to the index, which then differs from the publisher's mirror.
  void Damage(const EventBatch& batch) { index.Apply(kWorker, batch); }

  PublisherStatus Status() const {
    PublisherStatus status;
    status.next_seq = seq;
    status.has_digests = true;
    for (const GroupTierDigest& digest : mirror.digest().Totals()) {
      status.groups.push_back({digest, *mirror.digest().Buckets(digest.tier, digest.group)});
    }
    return status;
  }
  std::vector<residency::Payload> Parts(uint64_t buckets) const {
    residency::SnapshotOptions options;
    options.buckets = residency::BucketsOf(buckets);
    return residency::WriteSnapshot(mirror, options);
  }
  bool Repair(uint64_t buckets) {
    replica.BeginRepair(buckets);
    for (const residency::Payload& part : Parts(buckets)) {
      if (!replica.AddToSnapshot(*part)) return false;
    }
    return replica.CommitSnapshot(Status());
  }
  bool Repair() { return Repair(replica.DifferingBuckets(Status())); }

  Content Held() const {
    Content content;
    index.ForEachResidency(
        kWorker, [&content](Tier tier, uint8_t group, const BlockHash& hash, uint32_t copies) {
          content[{tier, group, TextOf(hash)}] = copies;
        });
    return content;
  }
  static uint64_t MaskOf(std::span<const BlockHash> hashes) {
    BucketMask buckets;
    for (const BlockHash& hash : hashes) buckets.set(DigestBucketOf(hash));
    return residency::ArgumentOf(buckets);
  }

  residency::Mirror mirror;
  PrefixIndex index;
  Replica replica{kWorker, index};
  uint64_t seq = 0;
};

TEST_F(BucketRepairTest, EqualContentsHaveNoDifferingBuckets) {
  ApplyBlocks(1000);
  EXPECT_EQ(replica.DifferingBuckets(Status()), 0u);
}

TEST_F(BucketRepairTest, OnlyTheDamagedBucketsAreRequested) {
  ApplyBlocks(5000);
  const Content before = Held();
  for (const int64_t damaged : {1, 2, 10, 100}) {
    const std::vector<BlockHash> hashes = Hashes(200, damaged);
    Damage(Batch(Remove({hashes.begin(), hashes.begin() + damaged}, 2)));
    const uint64_t asked = replica.DifferingBuckets(Status());
    EXPECT_EQ(asked, MaskOf(hashes));
    ASSERT_NE(Held(), before);
    EXPECT_TRUE(Repair(asked));
    EXPECT_EQ(Held(), before);
    EXPECT_EQ(replica.Compare(Status()), DigestVerdict::kEqual);
  }
}

TEST_F(BucketRepairTest, ASnapshotOfFewBucketsIsSmall) {
  ApplyBlocks(4000);  // fits into one part
  EXPECT_LT(Parts(1)[0]->size(), Parts(~uint64_t{0})[0]->size() / 8);
}

TEST_F(BucketRepairTest, CorrectBlocksInADifferingBucketAreNotTouched) {
  ApplyBlocks(5000);
  Damage(Batch(Remove(Hashes(200, 7), 2), StoreFull(Hashes(100, 4), 1)));
  const IndexCounters before = index.counters(kWorker);
  ASSERT_TRUE(Repair());
  const IndexCounters after = index.counters(kWorker);
  EXPECT_EQ(after.stored_blocks - before.stored_blocks, 7u);
  EXPECT_EQ(after.removed_blocks - before.removed_blocks, 4u);
}

TEST_F(BucketRepairTest, TheNumbersOfCopiesAreRepaired) {
  Apply(Batch(StoreFull(Hashes(1, 3), 0)));
  Apply(Batch(StoreFull(Hashes(1, 2), 0)));
  Apply(Batch(StoreFull(Hashes(1, 1), 0)));  // copies of hashes 1, 2, 3: 3, 2, 1
  const Content before = Held();
  Damage(Batch(Remove(Hashes(1, 1), 0), Remove(Hashes(1, 2), 0), StoreFull(Hashes(3, 1), 0),
               StoreFull(Hashes(3, 1), 0)));  // copies: 1, 1, 3
  ASSERT_TRUE(Repair());
  EXPECT_EQ(Held(), before);
}

TEST_F(BucketRepairTest, GroupsThatOnlyTheIndexOrOnlyThePublisherHasAreRepaired) {
  Apply(Batch(StoreFull(Hashes(1, 4), 0), StoreIn(kMediumCpu, Hashes(1, 4)),
              StoreIn("DISK", Hashes(9, 2))));
  const Content before = Held();
  Damage(Batch(RemoveFrom(kMediumCpu, Hashes(1, 4)), StoreFull(Hashes(5, 2), 1),
               RemoveFrom(kMediumStorage, Hashes(9, 2))));
  ASSERT_TRUE(Repair());
  EXPECT_EQ(Held(), before);
}

TEST_F(BucketRepairTest, AllFormsOfHashes) {
  const std::vector<uint8_t> digest(32, 7);
  Apply(Batch(StoreFull(
      {BlockHash::FromUnsigned(5), BlockHash::FromSigned(-5), BlockHash::FromBytes(digest)}, 0)));
  const Content before = Held();
  Damage(Batch(AllBlocksCleared()));
  ASSERT_TRUE(Repair());
  EXPECT_EQ(Held(), before);
}

TEST_F(BucketRepairTest, AnEmptyPublisherEmptiesTheWorker) {
  Damage(Batch(StoreFull(Hashes(1, 300), 0)));
  const uint64_t differing = replica.DifferingBuckets(Status());
  ASSERT_NE(differing, 0u);
  ASSERT_TRUE(Repair(differing));
  EXPECT_TRUE(Held().empty());
}

TEST_F(BucketRepairTest, PartsOfOtherBucketsAreRefused) {
  ApplyBlocks(1000);
  replica.BeginRepair(1);
  EXPECT_FALSE(replica.AddToSnapshot(*Parts(2)[0]));
}

TEST_F(BucketRepairTest, ARepairWithAMissingPartChangesNothing) {
  ApplyBlocks(1000);
  Damage(Batch(Remove(Hashes(200, 7), 2)));
  const Content damaged = Held();
  replica.BeginRepair(replica.DifferingBuckets(Status()));
  EXPECT_FALSE(replica.CommitSnapshot(Status()));
  EXPECT_EQ(Held(), damaged);
}

TEST_F(BucketRepairTest, ErrorsInOtherBucketsRefuseTheRepair) {
  ApplyBlocks(1000);
  Damage(Batch(Remove(Hashes(200, 1), 2)));
  const uint64_t differing = replica.DifferingBuckets(Status());
  Damage(Batch(Remove(Hashes(201, 60), 2)));
  const Content damaged = Held();
  EXPECT_FALSE(Repair(differing));
  EXPECT_EQ(Held(), damaged);
}

TEST_F(BucketRepairTest, BlocksThatTheIndexDoesNotTakeFailTheRepair) {
  WorkerConfig worker;
  worker.digests = true;
  worker.groups = {testing::Full()};
  index.RemoveWorker(kWorker);
  ASSERT_TRUE(index.AddWorker(kWorker, worker).ok());
  Apply(Batch(StoreFull(Hashes(1, 4), 0), StoreFull(Hashes(5, 4), 1)));  // the index has no group 1
  EXPECT_FALSE(Repair());
}

// The publisher counts hit reports as copies. An index with HitReports::kExpected leaves hit
// reports out.
TEST_F(BucketRepairTest, EventsThatTheIndexLeavesOutAreNoMismatch) {
  WorkerConfig worker;
  worker.digests = true;
  worker.groups = {testing::Full()};
  worker.hit_reports = HitReports::kExpected;
  index.RemoveWorker(kWorker);
  ASSERT_TRUE(index.AddWorker(kWorker, worker).ok());
  BlockStored store = StoreFull(Hashes(1, 4), 0);
  store.token_ids.emplace(64, 1);
  Apply(Batch(store));
  EXPECT_EQ(replica.Compare(Status()), DigestVerdict::kEqual);
  Apply(Batch(store));
  EXPECT_EQ(replica.Compare(Status()), DigestVerdict::kUnknown);
}

// The publisher counts hit reports as copies. A repair may therefore add blocks that the engine has
// evicted.
TEST_F(BucketRepairTest, ARepairedWorkerIsNotCertain) {
  const auto certain = [this] { return index.Match(Hashes(1, 1), 16, 20).at(0).certain; };
  ApplyBlocks(1000);
  EXPECT_TRUE(certain());
  Damage(Batch(Remove(Hashes(200, 7), 2)));
  ASSERT_TRUE(Repair());
  EXPECT_FALSE(certain());
  Apply(Batch(AllBlocksCleared()));
  EXPECT_TRUE(certain());
}

TEST_F(BucketRepairTest, ADroppedRepairDoesNotChangeTheNextSnapshot) {
  ApplyBlocks(1000);
  const Content before = Held();
  Damage(Batch(Remove(Hashes(200, 7), 2)));
  replica.BeginRepair(replica.DifferingBuckets(Status()));
  replica.DropSnapshot();
  replica.BeginSnapshot();
  for (const residency::Payload& part : Parts(~uint64_t{0})) {
    ASSERT_TRUE(replica.AddToSnapshot(*part));
  }
  EXPECT_TRUE(replica.CommitSnapshot(Status()));
  EXPECT_EQ(Held(), before);
}

TEST_F(BucketRepairTest, ARepairDropsAnUnfinishedSnapshot) {
  ApplyBlocks(1000);
  const Content before = Held();
  Damage(Batch(Remove(Hashes(200, 7), 2)));
  replica.BeginSnapshot();
  ASSERT_TRUE(replica.AddToSnapshot(*Parts(~uint64_t{0})[0]));
  EXPECT_TRUE(Repair());
  EXPECT_EQ(Held(), before);
  EXPECT_TRUE(index.HiddenDigests(kWorker).empty());
}

}  // namespace
}  // namespace kvcast::router
