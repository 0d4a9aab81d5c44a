// Groups with any chunk sizes share one budget. A chunk takes whole slots and wastes less than a
// page.
// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "tests/offload/offload_testing.h"

namespace kvcast::offload {
namespace {

constexpr int64_t kPage = 4096;

OffloadConfig Groups(std::vector<int64_t> chunk_bytes, int64_t capacity_bytes) {
  OffloadConfig config;
  config.chunk_bytes = std::move(chunk_bytes);
  config.capacity_bytes = capacity_bytes;
  return config;
}

TEST(Slots, EightEqualGroupsKeepAllOfABudgetOf16Chunks) {
  constexpr int64_t kChunk = 48 * 1024;
  TestOffload offload(Groups(std::vector<int64_t>(8, kChunk), 16 * kChunk));
  std::vector<OffloadKey> keys;
  for (uint32_t group = 0; group < 8; ++group) {
    for (const int64_t number : {1, 2}) keys.push_back(Key(number, group));
  }
  StorePlan plan;
  ASSERT_TRUE(offload.manager().PrepareStore(keys, plan).ok());
  offload.manager().CompleteStore(keys, true);
  EXPECT_EQ(offload.manager().num_chunks(), 16);
  for (const OffloadKey& key : keys) {
    EXPECT_EQ(offload.manager().Lookup(key, OffloadRequestId()), LookupResult::kHit);
  }
}

TEST(Slots, AChunkTakesItsOwnBytesRoundedUpToPages) {
  TestOffload offload(Groups({6 * kPage, 2 * kPage - 100, 3 * kPage + 1}, 100 * kPage));
  EXPECT_EQ(offload.manager().slot_bytes(), 2 * kPage);
  EXPECT_EQ(offload.manager().num_slots(), 50);
  EXPECT_EQ(offload.manager().slots_per_chunk(GroupIdx(0)), 3);
  EXPECT_EQ(offload.manager().slots_per_chunk(GroupIdx(1)), 1);
  EXPECT_EQ(offload.manager().slots_per_chunk(GroupIdx(2)), 2);
}

TEST(Slots, AsInVllmEveryChunkTakesTheLargest) {
  TestOffload offload(AsVllm(Groups({6 * kPage, 2 * kPage, kPage + 1}, 100 * kPage)));
  EXPECT_EQ(offload.manager().slot_bytes(), 6 * kPage);
  EXPECT_EQ(offload.manager().num_slots(), 16);
  for (uint32_t group = 0; group < 3; ++group) {
    EXPECT_EQ(offload.manager().slots_per_chunk(GroupIdx(group)), 1);
  }
}

TEST(Slots, ALargerSlotKeepsChunksInFewerPieces) {
  OffloadConfig config = Groups({5 * kPage, 3 * kPage}, 100 * kPage);
  config.slot_bytes = 4 * kPage;
  TestOffload offload(config);
  EXPECT_EQ(offload.manager().num_slots(), 25);
  EXPECT_EQ(offload.manager().slots_per_chunk(GroupIdx(0)), 2);
  EXPECT_EQ(offload.manager().slots_per_chunk(GroupIdx(1)), 1);
}

TEST(Slots, TheSlotsOfAChunkAreConsecutiveInThePlan) {
  TestOffload offload(Groups({2 * kPage, kPage}, 6 * kPage));
  StorePlan plan;
  ASSERT_TRUE(offload.manager().PrepareStore(std::vector{Key(1), Key(1, 1), Key(2)}, plan).ok());
  EXPECT_EQ(ToNumbers(plan.slots), (Numbers{0, 1, 2, 3, 4}));
  offload.manager().CompleteStore(plan.keys, true);
  std::vector<SlotId> slots;
  ASSERT_TRUE(offload.manager().PrepareLoad(std::vector{Key(2), Key(1, 1)}, slots).ok());
  EXPECT_EQ(ToNumbers(slots), (Numbers{3, 4, 2}));
}

TEST(Slots, ALargeChunkEvictsAsManySmallChunksAsItNeeds) {
  OffloadConfig config = Groups({3 * kPage, kPage}, 5 * kPage);
  TestOffload offload(AsVllm(config));  // for comparison: one slot
  EXPECT_EQ(offload.manager().num_slots(), 1);

  for (const auto policy : {EvictionPolicyKind::kLru, EvictionPolicyKind::kArc}) {
    config.policy = policy;
    TestOffload exact(config);
    StorePlan plan;
    for (const int64_t number : {1, 2, 3, 4}) {
      ASSERT_TRUE(exact.manager().PrepareStore(Keys({number}, 1), plan).ok());
      exact.manager().CompleteStore(plan.keys, true);
    }
    ASSERT_TRUE(exact.manager().PrepareStore(Keys({9}, 0), plan).ok());
    EXPECT_EQ(ToNumbers(plan.evicted), (Numbers{1, 2}));
    EXPECT_EQ(exact.manager().num_chunks(), 3);
  }
}

// Fills random groups until the first eviction. The resident chunks fit the budget, waste less than
// a page per chunk, and leave no room for the chunk that caused the eviction.
TEST(Slots, AnyMixOfSizesFillsTheBudget) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    std::vector<int64_t> sizes(static_cast<size_t>(pick(1, 6)));
    for (int64_t& size : sizes) size = pick(1, 40 * kPage);
    const int64_t budget = pick(60, 600) * kPage;
    TestOffload offload(Groups(sizes, budget));
    StorePlan plan;
    int64_t bytes = 0;
    int64_t chunks = 0;
    int64_t asked = 0;  // bytes of the chunk that found no room
    for (int64_t number = 0;; ++number) {
      const auto group = static_cast<uint32_t>(pick(0, std::ssize(sizes) - 1));
      const Status stored = offload.manager().PrepareStore(Keys({number}, group), plan);
      if (!stored.ok() || !plan.evicted.empty()) {
        asked = sizes[group];
        break;
      }
      offload.manager().CompleteStore(plan.keys, true);
      bytes += sizes[group];
      ++chunks;
      const int64_t taken = std::ssize(plan.slots) * offload.manager().slot_bytes();
      ASSERT_GE(taken, sizes[group]);
      ASSERT_LT(taken - sizes[group], kPage);
    }
    ASSERT_LE(bytes, budget);
    ASSERT_LE(offload.manager().num_slots() * offload.manager().slot_bytes(), budget);
    // The free bytes are fewer than the requested bytes, apart from partly used pages.
    const int64_t slot = offload.manager().slot_bytes();
    ASSERT_GT(bytes + chunks * kPage + asked + kPage + slot, budget);
  }
}

// Stores requests of 1 to 32 chunks. Some old requests are used again, so chunks are not evicted in
// the order of their stores.
class Churn {
 public:
  explicit Churn(const OffloadConfig& config) : offload_(config), random_(7) {}

  // Runs `jobs` stores. Returns the average number of slot runs per job.
  double RunsOfAJob(int jobs) {
    int64_t runs = 0;
    for (int i = 0; i < jobs; ++i) {
      std::vector<OffloadKey>& keys = stored_.emplace_back();
      for (int64_t n = Random(1, 32); n > 0; --n) keys.push_back(Key(next_++, Random(0, 1)));
      StorePlan plan;
      EXPECT_TRUE(offload_.manager().PrepareStore(keys, plan).ok());
      for (size_t s = 0; s < plan.slots.size(); ++s) {
        runs += s == 0 || plan.slots[s].value != plan.slots[s - 1].value + 1;
      }
      offload_.manager().CompleteStore(plan.keys, true);
      if (Random(0, 3) == 0)
        offload_.manager().Touch(stored_[static_cast<size_t>(
            Random(std::max<int64_t>(0, std::ssize(stored_) - 300), std::ssize(stored_) - 1))]);
    }
    EXPECT_TRUE(offload_.manager().CheckInvariants().ok());
    return static_cast<double>(runs) / jobs;
  }

 private:
  int64_t Random(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random_);
  }

  TestOffload offload_;
  std::mt19937_64 random_;
  std::vector<std::vector<OffloadKey>> stored_;
  int64_t next_ = 0;
};

TEST(Slots, OfAJobAreFewRunsHoweverLongMemoryHasBeenInUse) {
  const OffloadConfig config = Groups({kPage, 2 * kPage}, 8000 * kPage);
  OffloadConfig ahead = config;
  ahead.evict_ahead_bytes = config.capacity_bytes / 64;
  Churn churn(config);
  Churn evicting_ahead(ahead);
  const double fresh = churn.RunsOfAJob(200);
  const double used = churn.RunsOfAJob(3000);
  evicting_ahead.RunsOfAJob(200);
  const double used_ahead = evicting_ahead.RunsOfAJob(3000);
  RecordProperty("fresh", std::to_string(fresh));
  RecordProperty("used", std::to_string(used));
  RecordProperty("used_ahead", std::to_string(used_ahead));
  EXPECT_EQ(fresh, 1);
  EXPECT_LT(used, 5);
  EXPECT_LT(used_ahead, 3);
}

TEST(Slots, EvictingAheadMakesRoomForLaterStores) {
  OffloadConfig config = Groups({kPage}, 8 * kPage);
  config.evict_ahead_bytes = 3 * kPage;
  TestOffload offload(config);
  StorePlan plan;
  ASSERT_TRUE(offload.manager().PrepareStore(Keys({1, 2, 3, 4, 5, 6, 7, 8}), plan).ok());
  offload.manager().CompleteStore(plan.keys, true);
  ASSERT_TRUE(offload.manager().PrepareStore(Keys({9}), plan).ok());
  EXPECT_EQ(ToNumbers(plan.evicted), (Numbers{8, 7, 6, 5}));
  ASSERT_TRUE(offload.manager().PrepareStore(Keys({10, 11, 12}), plan).ok());
  EXPECT_TRUE(plan.evicted.empty());
  // If too few chunks are idle to evict ahead, the store evicts only as many chunks as it needs.
  ASSERT_TRUE(offload.manager().PrepareStore(Keys({13, 14, 15}), plan).ok());
  EXPECT_EQ(plan.evicted.size(), 3u);
}

TEST(Slots, EveryWrongSizeIsRefusedByName) {
  const auto error = [](auto change) {
    OffloadConfig config = Groups({kPage}, 4 * kPage);
    change(config);
    const auto created = OffloadManager::Create(config);
    EXPECT_FALSE(created.ok());
    return created.status().message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error([](auto& c) { c.capacity_bytes = -1; }), HasSubstr("capacity_bytes"));
  EXPECT_THAT(error([](auto& c) { c.capacity_bytes = INT64_MAX; }), HasSubstr("capacity_bytes"));
  EXPECT_THAT(error([](auto& c) { c.capacity_bytes = kPage << 32; }), HasSubstr("slot_bytes"));
  EXPECT_THAT(error([](auto& c) { c.chunk_bytes = {}; }), HasSubstr("chunk_bytes"));
  EXPECT_THAT(error([](auto& c) { c.chunk_bytes = {0}; }), HasSubstr("chunk_bytes"));
  EXPECT_THAT(error([](auto& c) {
                c.chunk_bytes = {1, int64_t{1} << 60};
              }),
              HasSubstr("chunk_bytes"));
  EXPECT_THAT(error([](auto& c) { c.page_bytes = 3000; }), HasSubstr("page_bytes"));
  EXPECT_THAT(error([](auto& c) { c.page_bytes = 0; }), HasSubstr("page_bytes"));
  EXPECT_THAT(error([](auto& c) { c.slot_bytes = 5000; }), HasSubstr("slot_bytes"));
  EXPECT_THAT(error([](auto& c) { c.evict_ahead_bytes = -1; }), HasSubstr("evict_ahead_bytes"));
  EXPECT_THAT(error([](auto& c) { c.evict_ahead_bytes = 5 * kPage; }),
              HasSubstr("evict_ahead_bytes"));
  EXPECT_THAT(error([](auto& c) { c.store_threshold = -1; }), HasSubstr("store_threshold"));
  EXPECT_THAT(error([](auto& c) { c.max_tracker_size = 0; }), HasSubstr("max_tracker_size"));
}

}  // namespace
}  // namespace kvcast::offload
