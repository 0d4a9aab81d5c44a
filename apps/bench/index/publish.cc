// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/bench/index/churn.h"
#include "apps/bench/index/commands.h"
#include "apps/bench/index/report.h"
#include "apps/support/fail.h"
#include "apps/support/forked_process.h"
#include "apps/support/samples.h"
#include "kvcast/stream/publisher.h"
#include "kvcast/stream/subscriber.h"
#include "kvcast/wire/wire.h"

namespace kvcast::bench {
namespace {

using tools::ForkedProcess;
using tools::PipeEnd;

constexpr double kPublishTargetUs = 5;
constexpr uint64_t kHeldBlocks = 4096;
constexpr int kWarmUpSeconds = 1;

constexpr char kPublishMethod[] =
    "The time of Publisher::Publish on the engine's thread, on a fixed schedule. A batch\n"
    "contains token ids. After the first 4,096 blocks, a batch removes as many blocks as it\n"
    "stores. Each batch is made before its call, and this time is not measured. The publisher\n"
    "uses TCP, replay and the extension. nobody: no subscriber. follower: a subscriber in\n"
    "another process receives each batch. stalled: the subscriber's sink blocks at the first\n"
    "batch. encode: the time of EncodeBatch for a copy, right after the call. In a publisher,\n"
    "another thread encodes.";

enum class Audience { kNobody, kFollower, kStalled };

constexpr std::array<std::pair<Audience, const char*>, 3> kAudiences = {
    {{Audience::kNobody, "nobody"},
     {Audience::kFollower, "follower"},
     {Audience::kStalled, "stalled"}}};

struct Endpoints {
  std::array<char, 128> live{};
  std::array<char, 128> replay{};
};

// Runs the subscriber process. On request, the process sends the number of batches that its sink
// received.
int Follow(const PipeEnd& in, const PipeEnd& out, bool stalled) {
  Endpoints endpoints;
  if (!in.Get(endpoints, 60'000)) return 1;
  std::atomic<uint64_t> applied = 0;
  std::atomic<bool> ended = false;
  auto subscriber = Subscriber::Create({});
  if (!subscriber.ok()) return 1;
  auto sink = std::make_shared<BatchSink>([&](Seq, std::span<const uint8_t>) {
    while (stalled && !ended) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ++applied;
  });
  const Status added = (*subscriber)
                           ->Add({.worker = WorkerId(0),
                                  .endpoint = endpoints.live.data(),
                                  .replay_endpoint = endpoints.replay.data()},
                                 std::move(sink));
  if (!added.ok() || !out.Put(char{1})) return 1;
  for (uint64_t published = 0; in.Get(published, 600'000);) {
    for (int i = 0; i < 1000 && applied < published && !stalled; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (!out.Put(applied.load())) break;
  }
  ended = true;
  return 0;
}

EventBatch MakeBatch(uint64_t number, int64_t blocks) {
  const auto count = static_cast<uint64_t>(blocks);
  EventBatch batch;
  BlockStored stored;
  stored.block_size = kBlockTokens;
  stored.group_idx = 0;
  stored.kv_cache_spec_kind = "full_attention";
  stored.medium = kMediumGpu;
  stored.token_ids.emplace();
  if (number > 0) stored.parent_block_hash = BlockHash(Mix64(number * count - 1));
  for (uint64_t block = number * count; block < (number + 1) * count; ++block) {
    stored.block_hashes.emplace_back(Mix64(block));
    for (int64_t token = 0; token < kBlockTokens; ++token) {
      stored.token_ids->push_back(
          static_cast<TokenId>(Mix64(block + static_cast<uint64_t>(token)) % 128'000));
    }
    if (block < kHeldBlocks) continue;
    BlockRemoved removed;
    removed.block_hashes.emplace_back(Mix64(block - kHeldBlocks));
    removed.group_idx = 0;
    removed.medium = kMediumGpu;
    batch.events.emplace_back(std::move(removed));
  }
  batch.events.emplace_back(std::move(stored));
  return batch;
}

struct Costs {
  Samples publish;
  Samples encode;
  uint64_t batches = 0;
};

Result<Costs> PublishOnSchedule(Publisher& publisher, const PublishBenchOptions& options) {
  Costs costs;
  const int64_t warm_up = options.rate * kWarmUpSeconds;
  const int64_t total = warm_up + options.rate * options.seconds;
  costs.publish.Reserve(static_cast<size_t>(total));
  costs.encode.Reserve(static_cast<size_t>(total));
  const std::chrono::duration<double> interval(1.0 / static_cast<double>(options.rate));
  const auto start = Clock::now();
  std::vector<uint8_t> payload;
  for (int64_t i = 0; i < total; ++i) {
    EventBatch batch = MakeBatch(costs.batches++, options.blocks);
    const EventBatch same = batch;
    std::this_thread::sleep_until(
        start + std::chrono::duration_cast<Clock::duration>(interval * static_cast<double>(i)));
    const auto before = Clock::now();
    if (auto seq = publisher.Publish(std::move(batch)); !seq.ok()) return seq.status();
    const double publish = NanosecondsSince(before);
    payload.clear();
    const auto before_encode = Clock::now();
    if (Status status = EncodeBatch(same, kDefaultDialect, payload); !status.ok()) return status;
    const double encode = NanosecondsSince(before_encode);
    if (i < warm_up) continue;
    costs.encode.Add(encode);
    costs.publish.Add(publish);
  }
  return costs;
}

Status RunCase(const PublishBenchOptions& options, Audience audience, const std::string& name,
               Report& report) {
  const Status gone(StatusCode::kUnavailable, "the subscriber is gone");
  std::unique_ptr<ForkedProcess> child;
  if (audience != Audience::kNobody) {
    auto started = ForkedProcess::Start([&](const PipeEnd& in, const PipeEnd& out) {
      return Follow(in, out, audience == Audience::kStalled);
    });
    if (!started.ok()) return started.status();
    child = std::move(started).value();
  }
  auto publisher =
      Publisher::Create({.endpoint = "tcp://127.0.0.1:0", .replay_endpoint = "tcp://127.0.0.1:0"});
  if (!publisher.ok()) return publisher.status();
  if (child) {
    Endpoints endpoints;
    const auto copy = [](const std::string& text, std::array<char, 128>& to) {
      std::copy_n(text.begin(), std::min(text.size(), to.size() - 1), to.begin());
    };
    copy((*publisher)->endpoint(), endpoints.live);
    copy((*publisher)->replay_endpoint(), endpoints.replay);
    char ready = 0;
    if (!child->to().Put(endpoints) || !child->from().Get(ready, 30'000)) return gone;
  }
  const auto costs = PublishOnSchedule(**publisher, options);
  if (!costs.ok()) return costs.status();
  report.Figure(name + ".p50", costs->publish.median() / 1e3, "us");
  report.Target(name + ".p99", costs->publish.Quantile(0.99) / 1e3, "us", kPublishTargetUs);
  report.Figure(name + ".p99.9", costs->publish.Quantile(0.999) / 1e3, "us");
  report.Figure(name + ".max", costs->publish.Quantile(1) / 1e3, "us");
  report.Figure(name + ".encode_p50", costs->encode.median() / 1e3, "us");
  report.Figure(name + ".encode_p99", costs->encode.Quantile(0.99) / 1e3, "us");
  if (!child) return {};
  uint64_t applied = 0;
  const uint64_t published = costs->batches;
  if (!child->to().Put(published) || !child->from().Get(applied, 60'000)) return gone;
  if (audience == Audience::kFollower) {
    report.Target(name + ".lost", static_cast<double>(published) - static_cast<double>(applied), "",
                  0);
  }
  return {};
}

}  // namespace

int RunPublishBench(const PublishBenchOptions& options) {
  Report report("publish", kPublishMethod, options.json);
  for (const auto& [audience, name] : kAudiences) {
    const Status status = RunCase(options, audience, "publish." + std::string(name), report);
    if (!status.ok()) return tools::Fail(status);
  }
  return report.Finish();
}

}  // namespace kvcast::bench
