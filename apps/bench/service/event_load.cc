// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/event_load.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <variant>

#include "kvcast/core/event.h"
#include "kvcast/stream/publisher.h"

namespace kvcast::tools {
namespace {

using Clock = std::chrono::steady_clock;

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// One engine. It stores one prompt after another, a few blocks per step.
class Engine {
 public:
  Engine(const EventLoadConfig& config, const std::vector<LoadPrompt>& prompts, int number)
      : config_(config),
        prompts_(prompts),
        prompt_(static_cast<size_t>(number) * prompts.size() /
                static_cast<size_t>(config.workers)) {}

  bool full() const { return held_.size() >= static_cast<size_t>(config_.prompts_held); }

  EventBatch Step() {
    EventBatch batch;
    const LoadPrompt& prompt = prompts_[prompt_];
    const size_t count =
        std::min(static_cast<size_t>(config_.blocks_per_store), prompt.hashes.size() - stored_);
    if (full()) batch.events.emplace_back(Remove(count));
    batch.events.emplace_back(Store(prompt, count));
    stored_ += count;
    if (stored_ == prompt.hashes.size()) {
      held_.push_back(std::exchange(prompt_, (prompt_ + 1) % prompts_.size()));
      if (held_.size() > static_cast<size_t>(config_.prompts_held)) held_.pop_front();
      stored_ = 0;
    }
    batch.ts = WallSeconds();
    return batch;
  }

 private:
  BlockStored Store(const LoadPrompt& prompt, size_t count) const {
    BlockStored stored;
    stored.block_size = kLoadBlockSize;
    stored.group_idx = 0;
    stored.kv_cache_spec_kind = "full_attention";
    stored.medium = "GPU";
    if (stored_ > 0) stored.parent_block_hash = BlockHash(prompt.hashes[stored_ - 1]);
    const auto first = static_cast<std::ptrdiff_t>(stored_);
    const auto end = first + static_cast<std::ptrdiff_t>(count);
    for (auto i = first; i < end; ++i)
      stored.block_hashes.emplace_back(prompt.hashes[static_cast<size_t>(i)]);
    stored.token_ids.emplace(prompt.tokens.begin() + first * kLoadBlockSize,
                             prompt.tokens.begin() + end * kLoadBlockSize);
    return stored;
  }

  // Removes the last `count` held blocks of the oldest prompt. The same step stores `count` new
  // blocks.
  BlockRemoved Remove(size_t count) const {
    const std::vector<uint64_t>& oldest = prompts_[held_.front()].hashes;
    const auto end = oldest.end() - static_cast<std::ptrdiff_t>(stored_);
    BlockRemoved removed;
    removed.group_idx = 0;
    removed.medium = "GPU";
    for (auto it = end - static_cast<std::ptrdiff_t>(count); it != end; ++it) {
      removed.block_hashes.emplace_back(*it);
    }
    return removed;
  }

  const EventLoadConfig& config_;
  const std::vector<LoadPrompt>& prompts_;
  size_t prompt_;            // index of the prompt that is being stored
  size_t stored_ = 0;        // stored blocks of that prompt
  std::deque<size_t> held_;  // complete prompts, the oldest first
};

uint64_t BlockOps(const EventBatch& batch) {
  uint64_t ops = 0;
  for (const Event& event : batch.events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) ops += stored->block_hashes.size();
    if (const auto* removed = std::get_if<BlockRemoved>(&event))
      ops += removed->block_hashes.size();
  }
  return ops;
}

}  // namespace

std::vector<LoadPrompt> MakeLoadPrompts(const EventLoadConfig& config) {
  std::mt19937_64 random(1);
  auto hasher = BlockHasher::FromSeed(HashAlgorithm::kSha256, kDefaultHashSeed).value();
  std::vector<LoadPrompt> prompts(static_cast<size_t>(config.prompts));
  for (LoadPrompt& prompt : prompts) {
    const auto tokens = static_cast<size_t>(config.blocks_per_prompt * kLoadBlockSize);
    for (size_t i = 0; i < tokens; ++i) {
      prompt.tokens.push_back(static_cast<TokenId>(random() % 128'000));
    }
    std::vector<Digest> digests;
    hasher.ExtendChain(prompt.tokens, kLoadBlockSize, {}, digests);
    for (const Digest& digest : digests) {
      prompt.hashes.push_back(ToEventHash(digest, EventHashForm::kInt64).integer());
    }
  }
  return prompts;
}

LoadEndpoints EndpointsOf(const Publisher& publisher) {
  LoadEndpoints endpoints;
  publisher.endpoint().copy(endpoints.endpoint.data(), endpoints.endpoint.size() - 1);
  publisher.replay_endpoint().copy(endpoints.replay.data(), endpoints.replay.size() - 1);
  return endpoints;
}

int PublishLoad(const EventLoadConfig& config, const std::vector<LoadPrompt>& prompts,
                const PipeEnd& in, const PipeEnd& out) {
  std::vector<std::unique_ptr<Publisher>> publishers;
  std::vector<Engine> engines;
  for (int i = 0; i < config.workers; ++i) {
    auto publisher = Publisher::Create({.endpoint = "tcp://127.0.0.1:0",
                                        .replay_endpoint = "tcp://127.0.0.1:0",
                                        .shares_threads = true});
    if (!publisher.ok()) return 1;
    if (!out.Put(EndpointsOf(**publisher))) return 1;
    publishers.push_back(std::move(publisher).value());
    engines.emplace_back(config, prompts, i);
  }
  char byte = 0;
  if (!in.Get(byte, kPipeTimeoutMs)) return 1;
  LoadCount count;
  const auto publish = [&](size_t worker) {
    EventBatch batch = engines[worker].Step();
    const uint64_t ops = BlockOps(batch);
    count.block_ops += ops;
    ++count.batches;
    return publishers[worker]->Publish(std::move(batch)).ok() ? ops : 0;
  };
  for (size_t worker = 0; worker < engines.size(); ++worker) {
    while (!engines[worker].full()) {
      if (publish(worker) == 0) return 1;
    }
  }
  if (!out.Put(count)) return 1;
  // A late batch is published immediately: the benchmark offers the configured rate.
  const Clock::time_point start = Clock::now();
  uint64_t offered = 0;
  for (size_t worker = 0;; worker = (worker + 1) % engines.size()) {
    const std::chrono::duration<double> due(static_cast<double>(offered) / config.block_ops_per_s);
    std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(due));
    const uint64_t ops = publish(worker);
    if (ops == 0) return 1;
    offered += ops;
    if (!in.Ready()) continue;
    if (!in.Get(byte, kPipeTimeoutMs)) return 0;
    if (!out.Put(count)) return 1;
  }
}

}  // namespace kvcast::tools
