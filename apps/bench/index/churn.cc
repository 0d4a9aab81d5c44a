// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/index/churn.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

namespace kvcast::bench {
namespace {

// The maximum number of blocks that an engine schedules in one step.
constexpr int64_t kStepBlocks = 8192 / kBlockTokens;

uint64_t Unsigned(int64_t value) { return static_cast<uint64_t>(value); }

constexpr uint64_t kVocabulary = 151'936;

// Returns one token of a block. The token depends only on the block hash and the position.
TokenId TokenOf(uint64_t hash, int64_t position) {
  const uint64_t mixed = Mix64(hash + Unsigned(position));
  return static_cast<TokenId>(mixed % kVocabulary);
}

}  // namespace

Churn::Churn(const ChurnConfig& config)
    : config_(config),
      holders_(Unsigned(config.holders)),
      workers_(Unsigned(config.workers)),
      blocks_(Unsigned(config.blocks)) {
  // live_ is a multiple of `grain`, so that the worker of a turn holds the chain that it evicts.
  const uint64_t grain = workers_ / std::gcd(workers_, holders_);
  const uint64_t wanted = Unsigned(config.residencies) / (blocks_ * holders_);
  live_ = std::max<uint64_t>(wanted / grain, 1) * grain;
  lag_ = std::max<uint64_t>(live_ / (16 * holders_), 1);
  if ((holders_ - 1) * lag_ > live_ / 2) lag_ = 0;
}

Churn::Turn Churn::At(uint64_t turn) const {
  const uint64_t rank = turn % holders_;
  const uint64_t round = turn / holders_;
  const uint64_t chain = round + (holders_ - 1 - rank) * lag_;
  Turn made{.worker = WorkerOf(chain, rank), .stored = chain, .removed = std::nullopt};
  if (round >= live_) made.removed = chain - live_;
  return made;
}

Churn::Range Churn::FullyHeld(uint64_t turn, uint64_t margin) const {
  const uint64_t round = turn / holders_;
  // The holders with rank 0 evict a chain first. The holders with the last rank store it last.
  const uint64_t first = round + (holders_ - 1) * lag_ - live_ + margin;
  return {std::min(first, round - 1), round - 1};
}

TurnBatches::TurnBatches(const Churn& churn, Removes removes) : churn_(churn), removes_(removes) {
  for (int64_t done = 0; done < churn.config().blocks; done += kStepBlocks) {
    const int64_t blocks = std::min(kStepBlocks, churn.config().blocks - done);
    filling_.push_back(StepShape(blocks, false));
    steady_.push_back(StepShape(blocks, true));
  }
}

EventBatch TurnBatches::StepShape(int64_t blocks, bool with_removes) const {
  const int64_t groups = churn_.config().groups;
  EventBatch batch;
  const auto add_removed = [&](int64_t group, int64_t hashes) {
    BlockRemoved removed;
    removed.block_hashes.resize(Unsigned(hashes));
    removed.medium = kMediumGpu;
    removed.group_idx = group;
    batch.events.emplace_back(std::move(removed));
  };
  const int64_t removed_at_once = removes_ == Removes::kEach ? 1 : blocks;
  for (int64_t i = 0; with_removes && i < blocks; i += removed_at_once) {
    for (int64_t group = 0; group < groups; ++group) add_removed(group, removed_at_once);
  }
  for (int64_t group = 0; group < groups; ++group) {
    BlockStored stored;
    stored.block_hashes.resize(Unsigned(blocks));
    stored.token_ids.emplace(Unsigned(blocks * kBlockTokens));
    stored.block_size = kBlockTokens;
    stored.medium = kMediumGpu;
    stored.group_idx = group;
    stored.kv_cache_spec_kind = group == 0 ? "full_attention" : "sliding_window";
    if (group > 0) stored.kv_cache_spec_sliding_window = 1024;
    batch.events.emplace_back(std::move(stored));
  }
  return batch;
}

std::vector<EventBatch>& TurnBatches::Make(const Churn::Turn& turn) {
  std::vector<EventBatch>& batches = turn.removed ? steady_ : filling_;
  const auto groups = Unsigned(churn_.config().groups);
  const auto last = Unsigned(churn_.config().blocks) - 1;
  uint64_t before = 0;
  for (EventBatch& batch : batches) {
    std::vector<uint64_t> removed(groups, before);
    uint64_t blocks = 0;
    for (Event& event : batch.events) {
      if (auto* remove_event = std::get_if<BlockRemoved>(&event)) {
        uint64_t& removed_blocks = removed[Unsigned(*remove_event->group_idx)];
        for (BlockHash& hash : remove_event->block_hashes) {
          hash = BlockHash(churn_.HashOf(*turn.removed, last - removed_blocks++));
        }
        continue;
      }
      auto& stored = std::get<BlockStored>(event);
      blocks = stored.block_hashes.size();
      for (uint64_t i = 0; i < blocks; ++i) {
        const uint64_t hash = churn_.HashOf(turn.stored, before + i);
        stored.block_hashes[i] = BlockHash(hash);
        TokenId* const tokens = &(*stored.token_ids)[i * Unsigned(kBlockTokens)];
        for (int64_t j = 0; j < kBlockTokens; ++j) tokens[j] = TokenOf(hash, j);
      }
      stored.parent_block_hash.reset();
      if (before > 0) stored.parent_block_hash = BlockHash(churn_.HashOf(turn.stored, before - 1));
    }
    before += blocks;
  }
  return batches;
}

void TurnBatches::AppendOps(const Churn::Turn& turn, std::vector<ResidencyOp>& ops) const {
  const auto groups = Unsigned(churn_.config().groups);
  const auto total = Unsigned(churn_.config().blocks);
  const auto step_blocks = Unsigned(kStepBlocks);
  for (uint64_t before = 0; before < total; before += step_blocks) {
    const uint64_t blocks = std::min(step_blocks, total - before);
    const auto add = [&](uint64_t hash, uint64_t group, bool erase) {
      ops.push_back({hash, turn.worker.value, static_cast<uint8_t>(group), erase});
    };
    // A remove event with several hashes contains blocks of one group.
    const uint64_t run = removes_ == Removes::kEach ? 1 : blocks;
    for (uint64_t i = 0; turn.removed && i < blocks; i += run) {
      for (uint64_t group = 0; group < groups; ++group) {
        for (uint64_t k = i; k < i + run; ++k) {
          add(churn_.HashOf(*turn.removed, total - 1 - before - k), group, true);
        }
      }
    }
    for (uint64_t group = 0; group < groups; ++group) {
      for (uint64_t i = 0; i < blocks; ++i) {
        add(churn_.HashOf(turn.stored, before + i), group, false);
      }
    }
  }
}

int64_t TurnBatches::ops(const Churn::Turn& turn) const {
  return churn_.config().blocks * churn_.config().groups * (turn.removed ? 2 : 1);
}

}  // namespace kvcast::bench
