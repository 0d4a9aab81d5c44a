// The transfer engine orders jobs and batches. The test decides when the backend ends a batch.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "kvcast/transfer/transfer_engine.h"
#include "tests/support/deferred_backend.h"
#include "tests/support/pools.h"

namespace kvcast {
namespace {

using testing::AddressOf;
using testing::BlockMajor;
using testing::DeferredBackend;
using ::testing::ElementsAre;
using testing::FillWith;
using ::testing::IsEmpty;
using testing::kLoad;
using testing::kStore;
using ::testing::UnorderedElementsAre;

std::vector<BlockId> Blocks(std::initializer_list<uint32_t> ids) {
  return {reinterpret_cast<const BlockId*>(ids.begin()),
          reinterpret_cast<const BlockId*>(ids.end())};
}
std::vector<SlotId> Slots(std::initializer_list<uint32_t> ids) {
  return {reinterpret_cast<const SlotId*>(ids.begin()), reinterpret_cast<const SlotId*>(ids.end())};
}

class TransferEngineTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 64;  // bytes of a block and of a slot

  TransferEngineTest() {
    config_.groups.push_back({BlockMajor(gpu_, 32, kBytes), 1});
    FillWith(gpu_, 1);
    FillWith(host_, 2);
    config_.host = {host_.data(), host_.size(), kBytes};
    config_.own_thread = false;
  }

  void Start() {
    auto backend = std::make_unique<DeferredBackend>();
    backend_ = backend.get();
    auto engine = TransferEngine::Create(config_, std::move(backend));
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = std::move(engine).value();
  }

  void Submit(uint64_t id, CopyDirection direction, const std::vector<BlockId>& blocks,
              const std::vector<SlotId>& slots, uint32_t first_block = 0) {
    const TransferGroup group{GroupIdx(0), first_block, blocks, slots};
    engine_->Submit({TransferJobId(id), direction, {&group, 1}, nullptr});
  }

  // Returns the jobs that have ended since the previous call: "3" for job 3 if it succeeded, and
  // "3: ERROR" if it failed.
  std::vector<std::string> TakeEnded() {
    std::vector<TransferResult> results;
    engine_->Poll(results);
    std::vector<std::string> names;
    for (const TransferResult& result : results) {
      names.push_back(std::to_string(result.id.value));
      if (!result.status.ok()) names.back() += ": " + result.status.message();
    }
    return names;
  }

  bool SlotHolds(size_t slot, size_t block) const {
    return std::equal(&gpu_[block * kBytes], &gpu_[block * kBytes] + kBytes, &host_[slot * kBytes]);
  }

  std::vector<std::byte> gpu_;
  std::vector<std::byte> host_ = std::vector<std::byte>(32 * kBytes);
  TransferConfig config_;
  DeferredBackend* backend_ = nullptr;
  std::unique_ptr<TransferEngine> engine_;
};

TEST_F(TransferEngineTest, AJobEndsWhenItsBytesHaveArrived) {
  Start();
  Submit(7, kStore, Blocks({5, 9}), Slots({2, 3}));
  EXPECT_THAT(TakeEnded(), IsEmpty());
  EXPECT_EQ(engine_->jobs_under_way(), 1u);
  backend_->FinishAll();
  EXPECT_THAT(TakeEnded(), ElementsAre("7"));
  EXPECT_TRUE(SlotHolds(2, 5) && SlotHolds(3, 9));
  EXPECT_EQ(engine_->jobs_under_way(), 0u);
  EXPECT_THAT(TakeEnded(), IsEmpty());
  EXPECT_EQ(engine_->stats().stores.blocks, 2u);
  EXPECT_EQ(engine_->stats().stores.bytes, 2 * kBytes);
  EXPECT_EQ(engine_->stats().loads.jobs, 0u);
}

TEST_F(TransferEngineTest, NullBlocksArePassedOverAndTheirPlaceWithThem) {
  Start();
  Submit(1, kStore, Blocks({0, 4, 0, 6}), Slots({10, 11, 12, 13}));
  backend_->FinishAll();
  EXPECT_THAT(TakeEnded(), ElementsAre("1"));
  EXPECT_TRUE(SlotHolds(11, 4) && SlotHolds(13, 6));
  EXPECT_FALSE(SlotHolds(10, 0) || SlotHolds(12, 0));
  EXPECT_EQ(engine_->stats().stores.blocks, 2u);
}

TEST_F(TransferEngineTest, BlocksOfAChunkAreAdjacentInItsSlots) {
  // A chunk of 3 blocks of 64 bytes takes 2 slots of 100 bytes, which are not adjacent here.
  config_.groups[0].blocks_per_chunk = 3;
  config_.host = {host_.data(), host_.size(), 100};
  Start();
  Submit(1, kStore, Blocks({20, 21, 22, 23, 24}), Slots({9, 1, 4, 6}), 1);
  backend_->FinishAll();
  EXPECT_THAT(TakeEnded(), ElementsAre("1"));
  const auto chunk_byte = [&](size_t chunk, size_t offset) {
    const size_t slots[2][2] = {{9, 1}, {4, 6}};
    return host_[slots[chunk][offset / 100] * 100 + offset % 100];
  };
  for (size_t block = 20; block < 25; ++block) {
    const size_t index = block - 20 + 1;
    for (size_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(chunk_byte(index / 3, index % 3 * kBytes + i), gpu_[block * kBytes + i]) << block;
    }
  }
  EXPECT_EQ(engine_->stats().stores.blocks, 5u);
}

TEST_F(TransferEngineTest, AJobHasAllGroupsOfARequest) {
  std::vector<std::byte> other_gpu;
  config_.groups.push_back({testing::LayerMajor(other_gpu, 8, 4, 16), 1});
  FillWith(other_gpu, 3);
  Start();
  const auto blocks = Blocks({3});
  const auto slot_a = Slots({0});
  const auto slot_b = Slots({1});
  const TransferGroup groups[] = {{GroupIdx(0), 0, blocks, slot_a},
                                  {GroupIdx(1), 0, blocks, slot_b}};
  engine_->Submit({TransferJobId(1), kLoad, groups, nullptr});
  backend_->FinishAll();
  EXPECT_THAT(TakeEnded(), ElementsAre("1"));
  EXPECT_TRUE(SlotHolds(0, 3));
  for (size_t i = 0; i < kBytes; ++i) {
    EXPECT_EQ(*AddressOf(config_.groups[1].layout, 3, i), host_[kBytes + i]);
  }
}

TEST_F(TransferEngineTest, LoadsOvertakeStores) {
  config_.max_batch_bytes = kBytes;  // a batch per block
  config_.batches_in_flight = 1;
  Start();
  Submit(1, kStore, Blocks({1, 2, 3}), Slots({1, 2, 3}));
  Submit(2, kLoad, Blocks({11}), Slots({11}));
  // The load does not wait for the store's batches.
  ASSERT_EQ(backend_->batches.size(), 2u);
  EXPECT_EQ(backend_->batches[1].direction, kLoad);
  backend_->Finish(1);
  EXPECT_THAT(TakeEnded(), ElementsAre("2"));
  engine_->WaitAll();
  EXPECT_THAT(TakeEnded(), ElementsAre("1"));
}

TEST_F(TransferEngineTest, WhileLoadsWaitStoresGoOneByOne) {
  config_.max_batch_bytes = kBytes;  // a batch per block
  config_.batches_in_flight = 2;
  Start();
  const auto running = [this](CopyDirection direction) {
    return std::ranges::count(backend_->batches, direction, &DeferredBackend::Batch::direction);
  };
  Submit(1, kLoad, Blocks({1, 3, 5}), Slots({1, 3, 5}));
  Submit(2, kStore, Blocks({11, 13, 15}), Slots({11, 13, 15}));
  EXPECT_EQ(running(kLoad), 2);
  EXPECT_EQ(running(kStore), 1);
  backend_->Finish(0);
  EXPECT_THAT(TakeEnded(), IsEmpty());
  EXPECT_EQ(running(kLoad), 2) << "the last load batch has started";
  EXPECT_EQ(running(kStore), 2);
  engine_->WaitAll();
  EXPECT_THAT(TakeEnded(), UnorderedElementsAre("1", "2"));
}

TEST_F(TransferEngineTest, NoCopyGoesFromOneRegionIntoTheNext) {
  config_.host.region_bytes = RegionBytes(kBytes, 5 * kBytes - 1);
  ASSERT_EQ(config_.host.region_bytes, 4 * kBytes);
  ASSERT_EQ(Regions(config_.host).size(), 8u);
  for (const CopyDirection direction : {kLoad, kStore}) {
    Start();
    std::vector<BlockId> blocks;
    std::vector<SlotId> slots;
    for (uint32_t i = 2; i < 15; ++i) {
      blocks.push_back(BlockId(i));
      slots.push_back(SlotId(i));
    }
    Submit(1, direction, blocks, slots);
    ASSERT_EQ(backend_->batches.size(), 1u);
    std::vector<size_t> sizes;
    for (const CopyOp& op : backend_->batches[0].ops) sizes.push_back(op.bytes() / kBytes);
    EXPECT_THAT(sizes, ElementsAre(2, 4, 4, 3));
    engine_->WaitAll();
    EXPECT_THAT(TakeEnded(), ElementsAre("1"));
    for (size_t i = 2; i < 15; ++i) EXPECT_TRUE(SlotHolds(i, i)) << i;
    engine_.reset();
  }
}

// A chunk of several slots may lie in two regions.
TEST_F(TransferEngineTest, ABlockOfSeveralSlotsMayLieInTwoRegions) {
  config_.host.slot_bytes = kBytes / 4;
  config_.host.region_bytes = kBytes / 4 * 3;
  Start();
  Submit(1, kStore, Blocks({7}), Slots({1, 2, 3, 4}));
  ASSERT_EQ(backend_->batches.size(), 1u);
  EXPECT_EQ(backend_->batches[0].ops.size(), 2u);
  engine_->WaitAll();
  EXPECT_THAT(TakeEnded(), ElementsAre("1"));
  EXPECT_TRUE(std::equal(&gpu_[7 * kBytes], &gpu_[8 * kBytes], &host_[kBytes / 4]));
}

TEST(Regions, AreWholeSlotsAndTheLastOneMayBeShorter) {
  EXPECT_EQ(RegionBytes(12, 100), 96u);
  EXPECT_EQ(RegionBytes(12, 5), 12u);
  std::vector<std::byte> memory(100);
  HostLayout host{memory.data(), memory.size(), 12};
  ASSERT_EQ(Regions(host).size(), 1u);
  EXPECT_EQ(Regions(host)[0].size(), 100u);
  host.region_bytes = 48;
  const auto regions = Regions(host);
  ASSERT_EQ(regions.size(), 3u);
  EXPECT_EQ(regions[1].data(), memory.data() + 48);
  EXPECT_EQ(regions[2].size(), 4u);
}

TEST_F(TransferEngineTest, JobsOfADirectionStartInOrder) {
  config_.batches_in_flight = 1;
  Start();
  Submit(1, kStore, Blocks({1}), Slots({1}));
  Submit(2, kStore, Blocks({2}), Slots({2}));
  ASSERT_EQ(backend_->batches.size(), 1u);
  EXPECT_EQ(backend_->batches[0].ops[0].src, &gpu_[kBytes]);
  backend_->Finish(0);
  EXPECT_THAT(TakeEnded(), ElementsAre("1"));
  ASSERT_EQ(backend_->batches.size(), 1u);
  EXPECT_EQ(backend_->batches[0].ops[0].src, &gpu_[2 * kBytes]);
}

TEST_F(TransferEngineTest, JobsMayEndInAnyOrder) {
  Start();
  Submit(1, kStore, Blocks({1}), Slots({1}));
  Submit(2, kStore, Blocks({2}), Slots({2}));
  ASSERT_EQ(backend_->batches.size(), 2u);
  backend_->Finish(1);
  EXPECT_THAT(TakeEnded(), ElementsAre("2"));
  backend_->Finish(0);
  EXPECT_THAT(TakeEnded(), ElementsAre("1"));
}

TEST_F(TransferEngineTest, AFailedBatchFailsItsJobAndNoOther) {
  config_.max_batch_bytes = kBytes;
  config_.batches_in_flight = 2;
  Start();
  Submit(1, kStore, Blocks({1, 2, 3, 4}), Slots({1, 3, 5, 7}));
  Submit(2, kStore, Blocks({9}), Slots({9}));
  ASSERT_EQ(backend_->batches.size(), 2u);
  backend_->Fail(0);
  // The other running batch still writes. The job has therefore not ended, and starts no more
  // batches.
  EXPECT_THAT(TakeEnded(), IsEmpty());
  EXPECT_EQ(engine_->jobs_under_way(), 2u);
  backend_->Finish(0);
  EXPECT_THAT(TakeEnded(), ElementsAre("1: the copy backend failed"));
  backend_->FinishAll();
  EXPECT_THAT(TakeEnded(), ElementsAre("2"));
  EXPECT_EQ(engine_->stats().stores.failed_jobs, 1u);
  EXPECT_EQ(engine_->stats().stores.batches, 3u);
}

TEST_F(TransferEngineTest, ABatchThatIsRefusedFailsItsJob) {
  Start();
  backend_->refuse_next = 1;
  Submit(1, kLoad, Blocks({1}), Slots({1}));
  EXPECT_THAT(TakeEnded(), ElementsAre("1: refused"));
  Submit(2, kLoad, Blocks({1}), Slots({1}));
  backend_->FinishAll();
  EXPECT_THAT(TakeEnded(), ElementsAre("2"));
}

TEST_F(TransferEngineTest, AnInvalidJobEndsWithAnErrorAndCopiesNothing) {
  Start();
  Submit(1, kStore, Blocks({1, 32}), Slots({1, 2}));
  Submit(2, kStore, Blocks({1, 2}), Slots({1}));
  Submit(3, kStore, Blocks({1}), Slots({1}), 1);
  Submit(4, kStore, Blocks({1, 2}), Slots({5, 5}));
  Submit(5, kStore, Blocks({1}), Slots({32}));
  Submit(6, kLoad, Blocks({2, 3, 2}), Slots({5, 6, 7}));
  const auto blocks = Blocks({1});
  const auto slots = Slots({1});
  const TransferGroup group{GroupIdx(1), 0, blocks, slots};
  engine_->Submit({TransferJobId(7), kStore, {&group, 1}, nullptr});
  const auto first = Blocks({4, 5});
  const auto second = Blocks({6, 5});
  const auto two_slots = Slots({5, 6});
  const std::array<TransferGroup, 2> entries = {TransferGroup{GroupIdx(0), 0, first, two_slots},
                                                TransferGroup{GroupIdx(0), 0, second, two_slots}};
  engine_->Submit({TransferJobId(8), kLoad, entries, nullptr});
  EXPECT_THAT(backend_->batches, IsEmpty());
  EXPECT_THAT(
      TakeEnded(),
      ElementsAre("1: block 32: is not in the pool",
                  "2: group 0: the numbers of slots and blocks do not match",
                  "3: group 0: first_block is not in the first chunk",
                  "4: slot 5: is a destination twice", "5: block 1: its slot is not in host memory",
                  "6: block 2: is a destination twice", "7: group 1: does not exist",
                  "8: block 5: is a destination twice"));
}

// The address of slot 2^31 exceeds 64 bits. The backend of this test copies nothing.
TEST_F(TransferEngineTest, ASlotWhoseAddressOverflowsIsNotInHostMemory) {
  config_.host.bytes = config_.host.slot_bytes = size_t{1} << 33;
  Start();
  Submit(1, kStore, Blocks({1}), Slots({1u << 31}));
  EXPECT_THAT(backend_->batches, IsEmpty());
  EXPECT_THAT(TakeEnded(), ElementsAre("1: block 1: its slot is not in host memory"));
}

TEST_F(TransferEngineTest, AnEmptyJobEnds) {
  Start();
  engine_->Submit({TransferJobId(1), kStore, {}, nullptr});
  Submit(2, kLoad, Blocks({0}), Slots({1}));
  EXPECT_THAT(TakeEnded(), ElementsAre("1", "2"));
}

TEST_F(TransferEngineTest, ALaneIsBusyWhileItHasJobs) {
  Start();
  EXPECT_EQ(engine_->stats().stores.busy_seconds, 0);
  Submit(1, kStore, Blocks({1}), Slots({1}));
  Submit(2, kStore, Blocks({2}), Slots({2}));
  backend_->FinishAll();
  EXPECT_THAT(TakeEnded(), ElementsAre("1", "2"));
  const double busy = engine_->stats().stores.busy_seconds;
  EXPECT_GT(busy, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto start = std::chrono::steady_clock::now();
  Submit(3, kStore, Blocks({3}), Slots({3}));
  backend_->FinishAll();
  EXPECT_THAT(TakeEnded(), ElementsAre("3"));
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - start;
  EXPECT_GT(engine_->stats().stores.busy_seconds, busy);
  EXPECT_LE(engine_->stats().stores.busy_seconds, busy + since.count());
  EXPECT_EQ(engine_->stats().loads.busy_seconds, 0);
}

TEST_F(TransferEngineTest, WaitReturnsWhenTheNamedJobsHaveEnded) {
  Start();
  Submit(1, kStore, Blocks({1}), Slots({1}));
  Submit(2, kStore, Blocks({2}), Slots({2}));
  Submit(3, kLoad, Blocks({3}), Slots({3}));
  const TransferJobId first(1);
  engine_->Wait({&first, 1});
  EXPECT_TRUE(SlotHolds(1, 1));
  EXPECT_EQ(engine_->jobs_under_way(), 2u);
  engine_->WaitAll();
  EXPECT_EQ(engine_->jobs_under_way(), 0u);
  EXPECT_THAT(TakeEnded(), ElementsAre("1", "2", "3"));
}

TEST_F(TransferEngineTest, TheEndWaitsForWhatRunsAndDropsTheRest) {
  config_.batches_in_flight = 1;
  Start();
  Submit(1, kStore, Blocks({1}), Slots({1}));
  Submit(2, kStore, Blocks({2}), Slots({2}));
  engine_.reset();
  EXPECT_TRUE(SlotHolds(1, 1));
  EXPECT_FALSE(SlotHolds(2, 2));
}

TEST_F(TransferEngineTest, ErrorsOfTheConfigurationNameTheField) {
  const auto error = [](TransferConfig config) {
    return TransferEngine::Create(std::move(config), std::make_unique<DeferredBackend>())
        .status()
        .message();
  };
  const auto with = [&](auto change) {
    TransferConfig config = config_;
    change(config);
    return error(config);
  };
  EXPECT_EQ(error({}), "groups: is empty");
  EXPECT_EQ(with([](auto& c) { c.groups[0].blocks_per_chunk = 0; }),
            "groups[0].blocks_per_chunk: must be positive");
  EXPECT_EQ(with([](auto& c) { c.groups[0].layout.num_blocks = 0; }),
            "groups[0].layout.num_blocks: must be positive");
  EXPECT_EQ(with([](auto& c) { c.host.base = nullptr; }), "host.base: must not be null");
  EXPECT_EQ(with([](auto& c) { c.host.slot_bytes = 0; }), "host.slot_bytes: must be positive");
  EXPECT_EQ(with([](auto& c) { c.host.region_bytes = kBytes + 1; }),
            "host.region_bytes: must be a multiple of host.slot_bytes");
  EXPECT_EQ(with([](auto& c) { c.store_batches_beside_loads = 0; }),
            "store_batches_beside_loads: must be positive");
  EXPECT_EQ(with([](auto& c) { c.max_batch_bytes = 0; }), "max_batch_bytes: must be positive");
  EXPECT_EQ(with([](auto& c) { c.max_batch_ops = 0; }), "max_batch_ops: must be positive");
  EXPECT_EQ(with([](auto& c) { c.batches_in_flight = 0; }), "batches_in_flight: must be positive");
  EXPECT_EQ(TransferEngine::Create(config_, nullptr).status().message(),
            "backend: must not be null");
}

}  // namespace
}  // namespace kvcast
