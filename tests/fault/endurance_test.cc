// Row E1 of tests/RELIABILITY.md: 16 sources with all faults at random. A synced source is never
// wrong, every source is synced in the end, and memory and file descriptors stay flat.
//
// KVCAST_ENDURANCE_SECONDS sets the time of the run (default: 15). Memory is judged only if the run
// takes at least five minutes.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "router/service/ingest/fleet.h"
#include "src/base/sanitizers.h"
#include "tests/fault/fault_test.h"
#include "tests/support/setting.h"

namespace kvcast::stream {
namespace {

using router::Fleet;
using router::FleetWorker;
using router::WorkerRegistration;

#if defined(KVCAST_ADDRESS_SANITIZER) || defined(KVCAST_THREAD_SANITIZER)
constexpr double kBatchesPerSecond = 500;
#else
constexpr double kBatchesPerSecond = 4000;
#endif
constexpr size_t kSources = 16;
constexpr double kJudgedSeconds = 300;
constexpr double kMaxMibPerMinute = 1;
constexpr size_t kGroups = 2;
constexpr std::array<size_t, kGroups> kCapacity = {400, 60};  // blocks

double RunSeconds() {
  return static_cast<double>(testing::Setting("KVCAST_ENDURANCE_SECONDS", 15));
}

double ResidentMib() { return static_cast<double>(ResidentBytes()) / (1 << 20); }

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(open), end(open)));
}

// The blocks of one engine, and the batches that change them. The content is the oracle.
class Pool {
 public:
  using Content = std::set<std::pair<uint8_t, uint64_t>>;  // group, hash

  explicit Pool(uint64_t seed) : random_(seed) {}

  EventBatch Step() {
    EventBatch batch;
    batch.ts = 1;
    for (uint8_t group = 0; group < kGroups; ++group) {
      Store(group, batch);
      Evict(group, batch);
    }
    return batch;
  }
  EventBatch Clear() {
    EventBatch batch;
    batch.ts = 1;
    batch.events.emplace_back(AllBlocksCleared());
    content_.clear();
    for (auto& order : order_) order.clear();
    return batch;
  }
  const Content& content() const { return content_; }

 private:
  void Store(uint8_t group, EventBatch& batch) {
    BlockStored stored;
    const uint64_t blocks = 1 + random_() % 4;
    if (!order_[group].empty() && random_() % 4 != 0) {
      stored.parent_block_hash = BlockHash::FromUnsigned(order_[group].back());
    }
    for (uint64_t i = 0; i < blocks; ++i) {
      const uint64_t hash = random_();
      stored.block_hashes.push_back(BlockHash::FromUnsigned(hash));
      order_[group].push_back(hash);
      content_.emplace(group, hash);
    }
    stored.token_ids.emplace();
    stored.block_size = 16;
    stored.medium = kMediumGpu;
    stored.group_idx = group;
    batch.events.emplace_back(std::move(stored));
  }
  void Evict(uint8_t group, EventBatch& batch) {
    BlockRemoved removed;
    while (order_[group].size() > kCapacity[group]) {
      const uint64_t hash = order_[group].front();
      order_[group].pop_front();
      content_.erase({group, hash});
      removed.block_hashes.push_back(BlockHash::FromUnsigned(hash));
    }
    if (removed.block_hashes.empty()) return;
    removed.medium = kMediumGpu;
    removed.group_idx = group;
    batch.events.emplace_back(std::move(removed));
  }

  std::mt19937_64 random_;
  std::array<std::deque<uint64_t>, kGroups> order_;  // oldest block first
  Content content_;
};

// An engine, its publisher, and the network to the router.
struct Engine {
  Engine(std::string its_name, uint64_t seed)
      : name(std::move(its_name)),
        pool(seed),
        publisher(MakePublisher(Config())),
        network(*publisher) {}
  ~Engine() { ExpectNoFlood(); }

  static PublisherConfig Config() {
    PublisherConfig config = TestPublisherConfig();
    config.ring_batches = 500;
    return config;
  }
  void Publish(EventBatch batch) { EXPECT_TRUE(publisher->Publish(std::move(batch)).ok()); }
  // No follower sends more than a few bytes.
  void ExpectNoFlood() const { EXPECT_EQ(publisher->counters().flooding_peers, 0u); }
  void Restart(uint64_t seed) {
    pool = Pool(seed);
    auto next = MakePublisher(Config());
    network.SwitchTo(*next);
    ExpectNoFlood();
    publisher = std::move(next);
  }
  WorkerRegistration registration() const {
    WorkerRegistration source;
    source.worker.name = name;
    source.endpoint = network.live.endpoint();
    source.replay_endpoint = network.replay.endpoint();
    return source;
  }

  const std::string name;
  Pool pool;
  std::unique_ptr<Publisher> publisher;
  Network network;
  bool followed = false;
  double stalled_until = 0;  // seconds of the run
};

class EnduranceTest : public ::testing::Test {
 protected:
  EnduranceTest() {
    fleet = Fleet::Create({}, index, {}).value();
    for (size_t i = 0; i < kSources; ++i) {
      engines.push_back(std::make_unique<Engine>("engine-" + std::to_string(i), random()));
      Join(*engines.back());
    }
  }

  void Join(Engine& engine) {
    const Status added = fleet->Add(engine.registration());
    ASSERT_TRUE(added.ok()) << added.ToString();
    engine.followed = true;
  }
  void Leave(Engine& engine) {
    ASSERT_TRUE(fleet->Remove(engine.name).ok());
    engine.followed = false;
  }

  enum class Fault { kRestart, kCut, kStall, kRefuse, kLeaveOrJoin, kClear, kBurst, kDelay };
  static constexpr uint64_t kFaults = 8;
  void InjectFault(Engine& engine, Fault fault) {
    ++faults[static_cast<size_t>(fault)];
    switch (fault) {
      case Fault::kRestart:
        return engine.Restart(random());
      case Fault::kCut:
        return engine.network.Cut();
      case Fault::kStall:
        engine.network.Stall(true);
        engine.stalled_until = since.seconds() + static_cast<double>(random() % 4000) * 1e-3;
        return;
      case Fault::kRefuse: {
        EventBatch batch = engine.pool.Step();
        BlockStored bad;
        bad.token_ids.emplace();
        bad.lora_name = "\xff";  // not UTF-8
        batch.events.emplace_back(std::move(bad));
        EXPECT_FALSE(engine.publisher->Publish(std::move(batch)).ok());
        return;
      }
      case Fault::kLeaveOrJoin:
        return engine.followed ? Leave(engine) : Join(engine);
      case Fault::kClear:
        return engine.Publish(engine.pool.Clear());
      case Fault::kBurst:
        for (int i = 0; i < 700; ++i) engine.Publish(engine.pool.Step());  // more than the ring
        return;
      case Fault::kDelay:
        return engine.network.live.Delay(std::chrono::milliseconds(random() % 60));
    }
  }

  // True if the source is synced at the publisher's sequence number, and its state does not change
  // during the call. Compares the content of such a source with the pool. Only heartbeats are
  // published at the same time.
  bool IsSynced(const Engine& engine) {
    const auto worker = fleet->view()->Find(engine.name);
    const SourceStatus before = fleet->stream(worker->id);
    if (before.state != SourceState::kSynced) return false;
    if (before.next_seq != engine.publisher->next_seq().value) return false;
    Pool::Content held;
    index.ForEachResidency(worker->id, [&](Tier, uint8_t group, const BlockHash& hash, uint32_t) {
      held.emplace(group, hash.integer());
    });
    const SourceStatus after = fleet->stream(worker->id);
    const bool unchanged = after.state == before.state && after.resets == before.resets &&
                           after.snapshots == before.snapshots &&
                           after.reconnects == before.reconnects;
    if (!unchanged) return false;
    ++comparisons;
    EXPECT_EQ(held == engine.pool.content(), true)
        << engine.name << " is synced with " << held.size() << " blocks instead of "
        << engine.pool.content().size();
    return true;
  }

  void Tick() {
    const double now = since.seconds();
    for (const auto& engine : engines) {
      if (engine->stalled_until > 0 && now >= engine->stalled_until) {
        engine->network.Stall(false);
        engine->stalled_until = 0;
      }
      if (engine->followed) IsSynced(*engine);
    }
    InjectFault(*engines[random() % kSources], static_cast<Fault>(random() % kFaults));
  }

  void EndFaults() {
    for (const auto& engine : engines) {
      engine->network.Stall(false);
      engine->network.live.Delay({});
      if (!engine->followed) Join(*engine);
    }
  }

  PrefixIndex index;
  std::mt19937_64 random{1};
  std::vector<std::unique_ptr<Engine>> engines;
  std::unique_ptr<Fleet> fleet;
  std::array<uint64_t, kFaults> faults{};
  uint64_t comparisons = 0;
  const Stopwatch since;
};

// The slope of a least-squares line through the samples (minutes, MiB).
double SlopeOf(const std::vector<std::pair<double, double>>& samples) {
  double x = 0;
  double y = 0;
  for (const auto& [minutes, mib] : samples) {
    x += minutes / static_cast<double>(samples.size());
    y += mib / static_cast<double>(samples.size());
  }
  double xy = 0;
  double xx = 0;
  for (const auto& [minutes, mib] : samples) {
    xy += (minutes - x) * (mib - y);
    xx += (minutes - x) * (minutes - x);
  }
  return xx > 0 ? xy / xx : 0;
}

TEST_F(EnduranceTest, NoSyncedSourceIsWrongAndMemoryStaysFlat) {
  const double seconds = RunSeconds();
  const double warm_up = seconds / 3;
  const auto all_are_synced = [&] {
    return std::ranges::all_of(engines, [&](const auto& engine) { return IsSynced(*engine); });
  };
  ASSERT_TRUE(Eventually(all_are_synced));
  const size_t descriptors = OpenDescriptors();
  std::vector<std::pair<double, double>> samples;
  uint64_t batches = 0;
  double next_tick = 0;
  double next_sample = warm_up;
  while (since.seconds() < seconds && !HasFailure()) {
    const double now = since.seconds();
    while (static_cast<double>(batches) < now * kBatchesPerSecond) {
      Engine& engine = *engines[batches++ % kSources];
      engine.Publish(engine.pool.Step());
    }
    if (now >= next_tick) {
      Tick();
      next_tick = now + 0.1;
    }
    if (now >= next_sample) {
      samples.emplace_back(now / 60, ResidentMib());
      next_sample = now + 1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EndFaults();
  EXPECT_TRUE(Eventually(all_are_synced)) << "not every source is synced in the end";
  // libzmq closes the sockets of the last requests on a thread of its own.
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() <= descriptors + kSources; }))
      << "descriptors leak: " << OpenDescriptors() << ", at the start " << descriptors;
  const double slope = SlopeOf(samples);
  if (seconds >= kJudgedSeconds) {
    EXPECT_LE(slope, kMaxMibPerMinute) << "memory grows";
  }
  uint64_t fault_count = 0;
  for (const uint64_t count : faults) fault_count += count;
  Figure("E1", "batches", static_cast<double>(batches), kBatchesPerSecond * seconds, "");
  Figure("E1", "faults", static_cast<double>(fault_count), 0, "");
  Figure("E1", "comparisons of a synced source", static_cast<double>(comparisons), 0, "");
  Figure("E1", "memory at the end", ResidentMib(), 0, "MiB");
  Figure("E1", "growth of memory", slope, kMaxMibPerMinute, "MiB/min");
  Figure("E1", "descriptors more than at the start",
         static_cast<double>(OpenDescriptors()) - static_cast<double>(descriptors), 0, "");
}

}  // namespace
}  // namespace kvcast::stream
