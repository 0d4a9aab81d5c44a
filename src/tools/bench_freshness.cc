// SPDX-License-Identifier: Apache-2.0
#include "src/tools/bench_freshness.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kvcast/prefix_index.h"
#include "kvcast/publisher.h"
#include "kvcast/subscriber.h"
#include "kvcast/wire.h"
#include "src/tools/forked_process.h"

namespace kvcast::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBlockSize = 16;
// Blocks that a source holds: older ones are removed.
constexpr size_t kHeldBlocks = 4096;
constexpr int kWarmUpSeconds = 1;
constexpr int kPatienceSeconds = 10;

// One clock for both processes.
double Now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

Quantiles QuantilesOf(std::vector<float>& seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double q) {
    return static_cast<double>(
        seconds[static_cast<size_t>(q * static_cast<double>(seconds.size() - 1))]);
  };
  return {at(0.5), at(0.99), at(0.999), at(1)};
}

// What one publisher holds and says.
class Source {
 public:
  Source(int number, int blocks) : random_(static_cast<uint64_t>(number)), blocks_(blocks / 2) {}

  EventBatch Next() {
    EventBatch batch;
    BlockStored stored;
    stored.block_size = kBlockSize;
    stored.group_idx = 0;
    stored.kv_cache_spec_kind = "full_attention";
    stored.medium = "GPU";
    if (!held_.empty()) stored.parent_block_hash = BlockHash(held_.back());
    stored.token_ids.emplace();
    for (int i = 0; i < blocks_; ++i) {
      held_.push_back(random_());
      stored.block_hashes.emplace_back(held_.back());
      for (int64_t token = 0; token < kBlockSize; ++token) {
        stored.token_ids->push_back(static_cast<TokenId>(random_() % 128000));
      }
    }
    batch.events.emplace_back(std::move(stored));
    if (held_.size() > kHeldBlocks) {
      BlockRemoved removed;
      removed.group_idx = 0;
      removed.medium = "GPU";
      for (int i = 0; i < blocks_; ++i) {
        removed.block_hashes.emplace_back(held_.front());
        held_.pop_front();
      }
      batch.events.emplace_back(std::move(removed));
    }
    batch.ts = Now();
    return batch;
  }

 private:
  std::mt19937_64 random_;
  const int blocks_;
  std::deque<uint64_t> held_;
};

struct Published {
  uint64_t batches = 0;
  double seconds = 0;
  Quantiles publish;
};

// The publishers' process: tells its endpoints, waits for a byte, publishes, tells what it did, and
// answers replays until the other side is gone.
int PublishAll(const FreshnessConfig& config, const PipeEnd& in, const PipeEnd& out) {
  std::vector<std::unique_ptr<Publisher>> publishers;
  std::vector<Source> sources;
  for (int i = 0; i < config.sources; ++i) {
    auto publisher = Publisher::Create({.endpoint = "tcp://127.0.0.1:0",
                                        .replay_endpoint = "tcp://127.0.0.1:0",
                                        .shares_io_thread = true});
    if (!publisher.ok()) return 1;
    std::array<char, 128> endpoints{};
    const std::string text = (*publisher)->endpoint() + "\n" + (*publisher)->replay_endpoint();
    std::copy_n(text.begin(), std::min(text.size(), endpoints.size() - 1), endpoints.begin());
    if (!out.Write(endpoints.data(), endpoints.size())) return 1;
    publishers.push_back(std::move(publisher).value());
    sources.emplace_back(i, config.blocks_per_batch);
  }
  char go = 0;
  if (!in.Read(&go, 1, 60'000)) return 1;

  const auto total = static_cast<uint64_t>(config.sources) *
                     static_cast<uint64_t>(config.batches_per_s) *
                     static_cast<uint64_t>(kWarmUpSeconds + config.seconds);
  const double interval = 1.0 / (static_cast<double>(config.sources) * config.batches_per_s);
  std::vector<float> costs;
  costs.reserve(total);
  const double start = Now();
  for (uint64_t i = 0; i < total; ++i) {
    const double due = start + static_cast<double>(i) * interval;
    // Late ones follow at once: the rate is offered, not what the machine happens to take.
    if (const double early = due - Now(); early > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(early));
    }
    const size_t source = i % sources.size();
    EventBatch batch = sources[source].Next();
    const double before = Now();
    if (!publishers[source]->Publish(std::move(batch)).ok()) return 1;
    costs.push_back(static_cast<float>(Now() - before));
  }
  const Published published{total, Now() - start, QuantilesOf(costs)};
  if (!out.Write(&published, sizeof(published))) return 1;
  in.Read(&go, 1, 60'000);
  return 0;
}

// The router's process: index, subscriber, and a thread that asks all the time.
class Watcher {
 public:
  explicit Watcher(const FreshnessConfig& config) : config_(config) {}
  ~Watcher() {
    stopping_ = true;
    if (asking_.joinable()) asking_.join();
  }

  Status Start(const std::vector<std::array<char, 128>>& endpoints) {
    samples_.reserve(static_cast<size_t>(config_.sources) *
                     static_cast<size_t>(config_.batches_per_s) *
                     static_cast<size_t>(config_.seconds + 1));
    auto made = Subscriber::Create(
        {}, {.on_batch = [this](WorkerId worker, Seq,
                                std::span<const uint8_t> payload) { OnBatch(worker, payload); },
             .on_reset = [this](WorkerId worker, ResetReason) { index_.RestartWorker(worker); }});
    if (!made.ok()) return made.status();
    subscriber_ = std::move(made).value();
    for (size_t i = 0; i < endpoints.size(); ++i) {
      const std::string text = endpoints[i].data();
      const WorkerId worker(static_cast<uint32_t>(i));
      if (Status status = index_.AddWorker(worker, {.name = "source"}); !status.ok()) return status;
      const size_t cut = text.find('\n');
      Status status = subscriber_->Add({.worker = worker,
                                        .endpoint = text.substr(0, cut),
                                        .replay_endpoint = text.substr(cut + 1)});
      if (!status.ok()) return status;
    }
    return {};
  }

  bool WaitForConnections() const {
    const double deadline = Now() + kPatienceSeconds;
    for (;;) {
      int synced = 0;
      for (int i = 0; i < config_.sources; ++i) {
        const auto state = subscriber_->status(WorkerId(static_cast<uint32_t>(i))).state;
        synced += state == SourceState::kSynced ? 1 : 0;
      }
      if (synced == config_.sources) return true;
      if (Now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  void Measure() {
    begin_ = Now() + kWarmUpSeconds;
    asking_ = std::thread([this] { Ask(); });
  }
  // Waits until so many batches have come, or none comes any more.
  void WaitFor(uint64_t batches) {
    uint64_t before = applied_;
    double since = Now();
    while (applied_ < batches && Now() - since < kPatienceSeconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (std::exchange(before, applied_.load()) != before) since = Now();
    }
  }

  FreshnessResult Result() {
    stopping_ = true;
    asking_.join();
    subscriber_.reset();
    FreshnessResult result;
    result.applied = applied_;
    result.queries = queries_;
    result.visible = QuantilesOf(samples_);
    return result;
  }
  uint64_t gaps() const {
    uint64_t gaps = 0;
    for (int i = 0; i < config_.sources; ++i) {
      gaps += subscriber_->status(WorkerId(static_cast<uint32_t>(i))).gaps;
    }
    return gaps;
  }

 private:
  void OnBatch(WorkerId worker, std::span<const uint8_t> payload) {
    const DecodeOptions needed{.token_ids = false, .merge_removes = true};
    if (!DecodeBatch(payload, WireLimits(), needed, batch_, counts_).ok()) return;
    index_.Apply(worker, batch_);
    const double now = Now();
    if (batch_.ts >= begin_) samples_.push_back(static_cast<float>(now - batch_.ts));
    ++applied_;
  }

  // Prompts of 64 blocks, a thousand times a second.
  void Ask() {
    std::mt19937_64 random(1);
    std::vector<BlockHash> chain(64);
    while (!stopping_) {
      for (BlockHash& hash : chain) hash = BlockHash(random());
      (void)index_.Match(chain, kBlockSize, 64 * kBlockSize);
      ++queries_;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const FreshnessConfig& config_;
  PrefixIndex index_;
  EventBatch batch_;
  DecodeCounts counts_;
  std::vector<float> samples_;  // the subscriber's thread alone, until it has ended
  std::atomic<double> begin_ = 1e300;
  std::atomic<uint64_t> applied_ = 0;
  std::atomic<bool> stopping_ = false;
  uint64_t queries_ = 0;
  std::thread asking_;
  std::unique_ptr<Subscriber> subscriber_;  // last: its thread uses the rest
};

}  // namespace

Result<FreshnessResult> RunFreshnessBench(const FreshnessConfig& config) {
  const auto broken = [](const char* what) { return Status(StatusCode::kUnavailable, what); };
  const auto child =
      ForkedProcess::Start([&](const PipeEnd& from_router, const PipeEnd& to_router) {
        setpriority(PRIO_PROCESS, 0, config.publishers_nice);
        return PublishAll(config, from_router, to_router);
      });
  if (!child.ok()) return child.status();
  const PipeEnd& out = (*child)->to();
  const PipeEnd& in = (*child)->from();

  std::vector<std::array<char, 128>> endpoints(static_cast<size_t>(config.sources));
  for (auto& endpoint : endpoints) {
    if (!in.Read(endpoint.data(), endpoint.size(), 30'000)) return broken("no publisher came up");
  }
  Watcher watcher(config);
  if (Status status = watcher.Start(endpoints); !status.ok()) return status;
  if (!watcher.WaitForConnections()) return broken("not every source could be followed");
  watcher.Measure();
  const char go = 1;
  if (!out.Write(&go, 1)) return broken("the publishers are gone");
  Published published;
  const int patience_ms = (kWarmUpSeconds + config.seconds + 60) * 1000;
  if (!in.Read(&published, sizeof(published), patience_ms)) return broken("publishing failed");
  watcher.WaitFor(published.batches);
  const uint64_t gaps = watcher.gaps();
  FreshnessResult result = watcher.Result();
  result.published = published.batches;
  result.gaps = gaps;
  result.publish = published.publish;
  result.rate = static_cast<double>(published.batches) / published.seconds;
  return result;
}

}  // namespace kvcast::tools
