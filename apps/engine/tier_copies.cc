// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/tier_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/check.h"

namespace kvcast::tools {
namespace {

constexpr uint64_t kOverwriteWord = 0xA5A5A5A5A5A5A5A5u;

}  // namespace

Result<std::unique_ptr<TierCopies>> TierCopies::Create(const TierCopiesConfig& config,
                                                       const MakeMemory& make_memory) {
  auto memory = make_memory(config.memory);
  if (!memory.ok()) return memory.status();
  std::unique_ptr<CopyBackend> backend = std::move(memory->backend);
  std::unique_ptr<TierCopies> copies(new TierCopies(config, std::move(memory).value()));
  const size_t block_bytes = config.memory.block_bytes;
  TransferConfig transfer;
  const GroupLayout blocks = {
      {{.base = copies->memory_.gpu, .block_stride = block_bytes, .row_bytes = block_bytes}},
      config.memory.gpu_blocks};
  transfer.groups.assign(config.groups, {blocks, config.blocks_per_chunk});
  transfer.host = {copies->memory_.host, copies->memory_.host_bytes, config.slot_bytes};
  transfer.own_thread = false;  // a step waits for its jobs
  auto engine = TransferEngine::Create(std::move(transfer), std::move(backend));
  if (!engine.ok()) return engine.status();
  copies->engine_ = std::move(engine).value();
  return copies;
}

void TierCopies::Fill(std::span<const BlockId> blocks, std::span<const uint64_t> words) {
  memory_.fill(blocks, words);
}

int64_t TierCopies::CountWrong(std::span<const BlockId> blocks, std::span<const uint64_t> words) {
  return memory_.count_wrong(blocks, words);
}

void TierCopies::OverwriteDestination(const TransferJob& job) {
  for (const TransferGroup& group : job.groups) {
    if (job.direction == CopyDirection::kStore) {
      for (const SlotId slot : group.slots) {
        std::memset(memory_.host + slot.value * config_.slot_bytes,
                    static_cast<int>(kOverwriteWord & 0xFF), config_.slot_bytes);
      }
    } else {
      overwrite_words_.assign(group.blocks.size(), kOverwriteWord);
      memory_.fill(group.blocks, overwrite_words_);
    }
  }
}

void TierCopies::Submit(TransferJob job) {
  OverwriteDestination(job);
  int64_t& moved = job.direction == CopyDirection::kStore ? stored_blocks_ : loaded_blocks_;
  for (const TransferGroup& group : job.groups) {
    moved += std::ssize(group.blocks) - std::ranges::count(group.blocks, BlockId(0));
  }
  job.after = memory_.computed();
  engine_->Submit(job);
}

bool TierCopies::Finish(TransferJobId job) {
  engine_->Wait({&job, 1});
  engine_->Poll(results_);
  const auto it = std::ranges::find(results_, job, &TransferResult::id);
  KV_CHECK(it != results_.end());
  const bool success = it->status.ok();
  results_.erase(it);
  return success;
}

}  // namespace kvcast::tools
