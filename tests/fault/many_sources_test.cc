// Row E3 of tests/RELIABILITY.md: a router follows many sources. All are synced, no batch is lost,
// and each worker has exactly the blocks of its engine.
//
// 16 engines in a separate process serve all sources, because thousands of engines need more than
// one machine. KVCAST_MANY_SOURCES sets the number of sources (default: 64). A source needs
// up to eight file descriptors in this process while it joins.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/support/forked_process.h"
#include "router/service/ingest/fleet.h"
#include "tests/fault/fault_test.h"
#include "tests/support/setting.h"

namespace kvcast::stream {
namespace {

using router::Fleet;
using router::WorkerRegistration;
using tools::ForkedProcess;
using tools::PipeEnd;

constexpr size_t kEngines = 16;
constexpr uint64_t kBatches = 16;  // before the router follows, and again afterwards
constexpr uint64_t kBlocksPerBatch = 4;
constexpr uint64_t kBlocks = kBatches * kBlocksPerBatch;
constexpr int kTimeoutMs = 600'000;

size_t Sources() { return static_cast<size_t>(testing::Setting("KVCAST_MANY_SOURCES", 64)); }

struct Endpoints {
  std::array<char, 64> live{};
  std::array<char, 64> replay{};
};

uint64_t HashOf(size_t engine, uint64_t block) { return (engine + 1) << 32 | (block + 1); }

// The next blocks of a chain that no other engine has.
EventBatch BatchOf(size_t engine, uint64_t number) {
  BlockStored stored;
  const uint64_t first = number * kBlocksPerBatch;
  if (first > 0) stored.parent_block_hash = BlockHash::FromUnsigned(HashOf(engine, first - 1));
  for (uint64_t block = first; block < first + kBlocksPerBatch; ++block) {
    stored.block_hashes.push_back(BlockHash::FromUnsigned(HashOf(engine, block)));
  }
  stored.token_ids.emplace();
  stored.block_size = 16;
  stored.medium = kMediumGpu;
  stored.group_idx = 0;
  EventBatch batch;
  batch.ts = 1;
  batch.events.emplace_back(std::move(stored));
  return batch;
}

// The process of the engines. Returns the exit code.
int RunEngines(const PipeEnd& in, const PipeEnd& out) {
  std::vector<std::unique_ptr<Publisher>> publishers;
  const auto publish = [&](uint64_t first, uint64_t end) {
    for (uint64_t number = first; number < end; ++number) {
      for (size_t engine = 0; engine < kEngines; ++engine) {
        if (!publishers[engine]->Publish(BatchOf(engine, number)).ok()) return false;
      }
    }
    return true;
  };
  for (size_t engine = 0; engine < kEngines; ++engine) {
    auto publisher = Publisher::Create({.endpoint = "tcp://127.0.0.1:0",
                                        .replay_endpoint = "tcp://127.0.0.1:0",
                                        .shares_threads = true});
    if (!publisher.ok()) return 1;
    publishers.push_back(std::move(publisher).value());
  }
  if (!publish(0, kBatches)) return 1;
  for (const auto& publisher : publishers) {
    Endpoints endpoints;
    publisher->endpoint().copy(endpoints.live.data(), endpoints.live.size() - 1);
    publisher->replay_endpoint().copy(endpoints.replay.data(), endpoints.replay.size() - 1);
    if (!out.Put(endpoints)) return 1;
  }
  char byte = 0;
  if (!in.Get(byte, kTimeoutMs) || !publish(kBatches, 2 * kBatches)) return 1;
  in.Get(byte, kTimeoutMs);  // the publishers answer replays until the test ends
  return 0;
}

class ManySourcesTest : public ::testing::Test {
 protected:
  void StartEngines() {
    auto started = ForkedProcess::Start(RunEngines);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    process = std::move(started).value();
    for (Endpoints& each : endpoints) ASSERT_TRUE(process->from().Get(each, kTimeoutMs));
  }
  void FollowAll() {
    fleet = Fleet::Create({}, index, {}).value();
    for (size_t i = 0; i < sources; ++i) {
      WorkerRegistration source;
      source.worker.name = std::to_string(i);
      source.endpoint = endpoints[i % kEngines].live.data();
      source.replay_endpoint = endpoints[i % kEngines].replay.data();
      const Status added = fleet->Add(source);
      ASSERT_TRUE(added.ok()) << added.ToString();
    }
  }

  // Waits until all sources are synced and have this number of blocks.
  bool ReachAll(size_t blocks) const {
    size_t ready = 0;
    const auto reaches = [&](size_t source) {
      const WorkerId worker = WorkerOf(source);
      return fleet->stream(worker).state == SourceState::kSynced && HeldBy(worker).size() == blocks;
    };
    const auto all_are_ready = [&] {
      while (ready < sources && reaches(ready)) ++ready;
      return ready == sources;
    };
    const Stopwatch waited;
    while (waited.seconds() * 1000 < kTimeoutMs) {
      if (Eventually(all_are_ready)) return true;
    }
    return false;
  }

  void ExpectBlocksOfItsEngine(size_t source) const {
    std::set<uint64_t> expected;
    for (uint64_t block = 0; block < 2 * kBlocks; ++block) {
      expected.insert(HashOf(source % kEngines, block));
    }
    EXPECT_EQ(HeldBy(WorkerOf(source)), expected) << "source " << source;
    const SourceStatus status = fleet->stream(WorkerOf(source));
    EXPECT_EQ(status.resets, 0U) << "source " << source;
    EXPECT_EQ(status.digest_mismatches, 0U) << "source " << source;
  }

  WorkerId WorkerOf(size_t source) const { return fleet->view()->Find(std::to_string(source))->id; }
  std::set<uint64_t> HeldBy(WorkerId worker) const {
    std::set<uint64_t> held;
    index.ForEachResidency(worker, [&](Tier, uint8_t, const BlockHash& hash, uint32_t) {
      held.insert(hash.integer());
    });
    return held;
  }

  const size_t sources = Sources();
  std::unique_ptr<ForkedProcess> process;
  std::array<Endpoints, kEngines> endpoints;
  PrefixIndex index;
  std::unique_ptr<Fleet> fleet;
};

TEST_F(ManySourcesTest, EachWorkerHasTheBlocksOfItsEngine) {
  StartEngines();
  ASSERT_FALSE(HasFailure());
  const size_t before = ResidentBytes();
  const Stopwatch join;
  FollowAll();
  ASSERT_TRUE(ReachAll(kBlocks)) << "not every source is synced";
  Figure("E3", "sources", static_cast<double>(sources), 4096, "");
  Figure("E3", "time until all sources are synced", join.seconds(), 0, "s");
  Figure("E3", "memory for each source",
         static_cast<double>(ResidentBytes() - before) / static_cast<double>(sources) / 1024, 0,
         "KiB");
  const Stopwatch live;
  ASSERT_TRUE(process->to().Put(char{1}));
  ASSERT_TRUE(ReachAll(2 * kBlocks)) << "not every source has the batches that followed";
  Figure("E3", "time until the batches that followed are applied", live.seconds(), 0, "s");
  for (size_t source = 0; source < sources; ++source) ExpectBlocksOfItsEngine(source);
}

}  // namespace
}  // namespace kvcast::stream
