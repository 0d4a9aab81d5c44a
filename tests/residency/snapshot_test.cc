// Reading a snapshot of a mirror gives the same state. The reader detects an incomplete snapshot.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "src/residency/mirror.h"
#include "src/residency/snapshot_reader.h"
#include "src/residency/snapshot_writer.h"

namespace kvcast::residency {
namespace {

BlockStored Store(std::vector<uint64_t> hashes, std::optional<uint64_t> parent = std::nullopt,
                  int64_t group = 0, const char* medium = kMediumGpu) {
  BlockStored event;
  for (const uint64_t hash : hashes) event.block_hashes.emplace_back(hash);
  if (parent) event.parent_block_hash = BlockHash(*parent);
  event.block_size = 16;
  event.medium = medium;
  event.group_idx = group;
  event.kv_cache_spec_kind = "full_attention";
  event.token_ids.emplace();
  return event;
}

BlockRemoved Remove(std::vector<uint64_t> hashes, int64_t group = 0) {
  BlockRemoved event;
  for (const uint64_t hash : hashes) event.block_hashes.emplace_back(hash);
  event.medium = kMediumGpu;
  event.group_idx = group;
  return event;
}

template <typename... Events>
void Apply(Mirror& mirror, Events... events) {
  EventBatch batch;
  (batch.events.emplace_back(std::move(events)), ...);
  mirror.Apply(batch);
}

std::vector<EventBatch> ReadAll(const std::vector<Payload>& parts, SnapshotReader& reader) {
  std::vector<EventBatch> batches(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_TRUE(reader.Read(*parts[i], batches[i]).ok());
  }
  return batches;
}

TEST(Mirror, ARepeatedStoreIsACopy) {
  Mirror mirror;
  Apply(mirror, Store({1, 2}), Store({1, 2}), Remove({1}));
  EXPECT_EQ(mirror.blocks(), 2u);
  EXPECT_EQ(mirror.unknown_removes(), 0u);
}

// The engine has deleted the block with the first remove.
TEST(Mirror, ARepeatedStoreIsNoCopyIfRepeatsAreRefreshes) {
  Mirror mirror(/*repeats_are_refreshes=*/true);
  Apply(mirror, Store({1, 2}), Store({1, 2}), Remove({1}));
  EXPECT_EQ(mirror.blocks(), 1u);
  Mirror other;
  Apply(other, Store({2}));
  EXPECT_EQ(mirror.digest().Totals(), other.digest().Totals());
}

TEST(Snapshot, AChainIsOneStore) {
  Mirror mirror;
  Apply(mirror, Store({1, 2}), Store({3, 4}, 2));
  SnapshotReader reader;
  const auto batches = ReadAll(WriteSnapshot(mirror, {}), reader);
  ASSERT_EQ(batches.size(), 1u);
  ASSERT_EQ(batches[0].events.size(), 1u);
  const auto& stored = std::get<BlockStored>(batches[0].events[0]);
  EXPECT_EQ(stored.block_hashes.size(), 4u);
  EXPECT_FALSE(stored.parent_block_hash);
  EXPECT_TRUE(reader.Finish(mirror.digest().Totals()).ok());
}

TEST(Snapshot, ParentsComeFirst) {
  Mirror mirror;
  Apply(mirror, Store({1, 2, 3}), Store({4}, 2), Store({5}, 4), Store({6}, 1));
  SnapshotReader reader;
  std::set<uint64_t> seen;
  for (const EventBatch& batch : ReadAll(WriteSnapshot(mirror, {}), reader)) {
    for (const Event& event : batch.events) {
      const auto& stored = std::get<BlockStored>(event);
      if (stored.parent_block_hash) {
        EXPECT_TRUE(seen.contains(stored.parent_block_hash->integer()));
      }
      for (const BlockHash& hash : stored.block_hashes) seen.insert(hash.integer());
    }
  }
  EXPECT_EQ(seen.size(), 6u);
}

TEST(Snapshot, CopiesAreStoresOfTheirOwn) {
  Mirror mirror;
  Apply(mirror, Store({1, 2}), Store({2}, 1), Store({2}, 1), Remove({2}));
  SnapshotReader reader;
  ReadAll(WriteSnapshot(mirror, {}), reader);
  EXPECT_EQ(reader.copies(), 3u);
  EXPECT_TRUE(reader.Finish(mirror.digest().Totals()).ok());
}

TEST(Snapshot, ACycleOfParentsEnds) {
  Mirror mirror;
  Apply(mirror, Store({1}, 2), Store({2}, 1), Store({3}, 3));
  SnapshotReader reader;
  ReadAll(WriteSnapshot(mirror, {}), reader);
  EXPECT_TRUE(reader.Finish(mirror.digest().Totals()).ok());
}

TEST(Snapshot, RandomStatesAreReadBack) {
  std::mt19937 random(1);
  const auto roll = [&random](int sides) {
    return std::uniform_int_distribution<int>(0, sides - 1)(random);
  };
  for (int run = 0; run < 50; ++run) {
    Mirror mirror;
    for (int i = 0; i < 300; ++i) {
      const auto hash = static_cast<uint64_t>(roll(60));
      const int group = roll(3);
      switch (roll(6)) {
        case 0:
          Apply(mirror, Remove({hash}, group));
          break;
        case 1:
          if (roll(20) == 0) Apply(mirror, AllBlocksCleared());
          break;
        default:
          Apply(mirror, Store({hash, hash + 100}, roll(60), group, roll(2) ? kMediumGpu : "CPU"));
      }
    }
    SnapshotReader reader;
    ReadAll(WriteSnapshot(mirror, {}), reader);
    EXPECT_TRUE(reader.Finish(mirror.digest().Totals()).ok()) << run;
  }
}

TEST(Snapshot, EqualMirrorsHaveEqualSnapshots) {
  std::vector<BlockStored> stores;
  for (uint64_t i = 0; i < 300; ++i) {
    stores.push_back(Store({7 * i, (7 * i) << 56, i << 60 | 1}, i / 2));
    stores.push_back(Store({i}));
    const std::vector<uint8_t> bytes(i % 40, static_cast<uint8_t>(i));
    stores.back().block_hashes[0] = BlockHash::FromBytes(bytes);
  }
  Mirror forward;
  for (const BlockStored& store : stores) Apply(forward, store);
  // The stores of a hash that is stored twice keep their order.
  std::ranges::stable_sort(stores, [](const BlockStored& a, const BlockStored& b) {
    return a.block_hashes.size() < b.block_hashes.size();
  });
  Mirror other;
  for (const BlockStored& store : stores) Apply(other, store);
  const auto texts = [](const Mirror& mirror) {
    std::vector<std::vector<uint8_t>> parts;
    for (const Payload& part : WriteSnapshot(mirror, {})) parts.push_back(*part);
    return parts;
  };
  EXPECT_EQ(texts(forward), texts(other));
}

TEST(SnapshotWriter, WritesInSmallSteps) {
  Mirror mirror;
  std::vector<uint64_t> hashes(1000);
  uint64_t made = 0;
  for (int i = 0; i < 100; ++i) {
    for (uint64_t& hash : hashes) hash = ++made * 0x9E3779B97F4A7C15;
    Apply(mirror, Store(hashes));
  }
  for (const bool whole : {true, false}) {
    SnapshotOptions options;
    if (!whole) options.buckets.reset(0);
    SnapshotWriter writer(mirror.Copy(options.buckets), options);
    Apply(mirror, Remove({0x9E3779B97F4A7C15}));  // after the copy
    std::vector<Payload> parts;
    size_t steps = 0;
    for (bool more = true; more; ++steps) {
      const size_t before = parts.size();
      more = writer.Step(parts);
      EXPECT_LE(parts.size(), before + 3) << steps;
    }
    EXPECT_GT(steps, 50u);
    SnapshotReader reader;
    ReadAll(parts, reader);
    if (whole) {
      EXPECT_EQ(reader.copies(), made);
    }
    EXPECT_FALSE(writer.Step(parts));
    Apply(mirror, Store({0x9E3779B97F4A7C15}));
  }
}

TEST(Snapshot, EveryMissingPartIsNoticed) {
  Mirror mirror;
  std::vector<uint64_t> hashes(3 * kSnapshotBatchHashes);
  for (size_t i = 0; i < hashes.size(); ++i) hashes[i] = i;
  Apply(mirror, Store(hashes));
  const std::vector<Payload> parts = WriteSnapshot(mirror, {});
  ASSERT_EQ(parts.size(), 3u);
  for (size_t missing = 0; missing < parts.size(); ++missing) {
    std::vector<Payload> others = parts;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(missing));
    SnapshotReader reader;
    ReadAll(others, reader);
    EXPECT_FALSE(reader.Finish(mirror.digest().Totals()).ok());
  }
}

TEST(Snapshot, APartThatCameTwiceIsNoticed) {
  Mirror mirror;
  Apply(mirror, Store({1, 2, 3}));
  std::vector<Payload> parts = WriteSnapshot(mirror, {});
  parts.push_back(parts[0]);
  SnapshotReader reader;
  ReadAll(parts, reader);
  EXPECT_FALSE(reader.Finish(mirror.digest().Totals()).ok());
}

TEST(Snapshot, ASnapshotMayHaveOnlySomeBuckets) {
  Mirror mirror;
  std::vector<uint64_t> hashes(500);
  for (size_t i = 0; i < hashes.size(); ++i) hashes[i] = i;
  Apply(mirror, Store(hashes));
  SnapshotOptions options;
  options.buckets.reset();
  options.buckets.set(DigestBucketOf(BlockHash(uint64_t{7})));
  SnapshotReader reader;
  size_t found = 0;
  for (const EventBatch& batch : ReadAll(WriteSnapshot(mirror, options), reader)) {
    for (const Event& event : batch.events) {
      for (const BlockHash& hash : std::get<BlockStored>(event).block_hashes) {
        EXPECT_TRUE(options.buckets.test(DigestBucketOf(hash)));
        found += hash == BlockHash(uint64_t{7});
      }
    }
  }
  EXPECT_EQ(found, 1u);
}

TEST(Snapshot, ASnapshotOfSomeBucketsHasFewStores) {
  Mirror mirror;
  std::vector<uint64_t> hashes(4000);
  for (size_t i = 0; i < hashes.size(); ++i) hashes[i] = i;
  Apply(mirror, Store(hashes));
  Apply(mirror, Store({1, 2, 3}));
  SnapshotOptions options;
  options.buckets.reset(0);
  SnapshotReader reader;
  size_t stores = 0;
  for (const EventBatch& batch : ReadAll(WriteSnapshot(mirror, options), reader)) {
    for (const Event& event : batch.events) {
      EXPECT_FALSE(std::get<BlockStored>(event).parent_block_hash);
      ++stores;
    }
  }
  EXPECT_EQ(stores, 3u)
      << "one store for blocks with one copy, and two stores for blocks with two copies";
  DigestBuckets all = *mirror.digest().Buckets(Tier::kGpu, 0);
  all[0] = {};
  EXPECT_EQ(*reader.digest().Buckets(Tier::kGpu, 0), all);
}

TEST(SnapshotReader, TakesStoresOnly) {
  const auto refused = [](Event event) {
    EventBatch batch;
    batch.events.push_back(std::move(event));
    std::vector<uint8_t> payload;
    EXPECT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    SnapshotReader reader;
    return !reader.Read(payload, batch).ok();
  };
  EXPECT_TRUE(refused(Remove({1})));
  EXPECT_TRUE(refused(AllBlocksCleared()));
  EXPECT_TRUE(refused(Store({1}, std::nullopt, 64)));
  EXPECT_TRUE(refused(Store({1}, std::nullopt, -1)));
  EXPECT_FALSE(refused(Store({1})));
}

TEST(SnapshotReader, HasLimits) {
  Mirror mirror;
  Apply(mirror, Store({1, 2, 3}));
  const std::vector<Payload> parts = WriteSnapshot(mirror, {});
  EventBatch batch;
  SnapshotReader three({.max_copies = 3});
  EXPECT_TRUE(three.Read(*parts[0], batch).ok());
  EXPECT_EQ(three.Read(*parts[0], batch).code(), StatusCode::kLimit);
  SnapshotReader one({.max_parts = 1});
  EXPECT_TRUE(one.Read(*parts[0], batch).ok());
  EXPECT_EQ(one.Read(*parts[0], batch).code(), StatusCode::kLimit);
}

}  // namespace
}  // namespace kvcast::residency
