// SPDX-License-Identifier: Apache-2.0
#include "src/tools/host_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/check.h"

namespace kvcast::tools {
namespace {

// What a block of a group holds that ends the prefix with this digest.
uint64_t WordOf(const Digest& digest, GroupIdx group) {
  return (digest.low64() ^ (group.value + 1)) * 0x9E3779B97F4A7C15u;
}

// What a destination holds before its bytes come.
constexpr uint64_t kScribble = 0xA5A5A5A5A5A5A5A5u;

}  // namespace

Result<std::unique_ptr<HostTier>> HostTier::Create(const HostTierConfig& config,
                                                   CacheManager& cache,
                                                   std::unique_ptr<CopyBackend> backend) {
  return CreateIn(config, cache, [&backend](const TierMemoryConfig& memory) {
    return MakePlainTierMemory(memory, std::move(backend));
  });
}

Result<std::unique_ptr<HostTier>> HostTier::Create(const HostTierConfig& config,
                                                   CacheManager& cache, const CudaDevice& device) {
  return CreateIn(config, cache, [&device](const TierMemoryConfig& memory) {
    return MakeCudaTierMemory(memory, device);
  });
}

Result<std::unique_ptr<HostTier>> HostTier::CreateIn(const HostTierConfig& config,
                                                     CacheManager& cache,
                                                     const MakeMemory& make_memory) {
  if (config.block_bytes == 0 || config.block_bytes % sizeof(uint64_t) != 0) {
    return Status(StatusCode::kInvalidArgument, "block_bytes: must be whole words of 8 bytes");
  }
  SimpleOffloadConfig offload_config;
  offload_config.cache = cache.config();
  offload_config.num_cpu_blocks = config.cpu_blocks;
  offload_config.mode = config.mode;
  offload_config.events.hash_form = config.hash_form;
  auto offload = SimpleOffload::Create(offload_config, cache.gpu_blocks());
  if (!offload.ok()) return offload.status();
  auto memory = make_memory({config.block_bytes, cache.config().num_blocks, config.cpu_blocks});
  if (!memory.ok()) return memory.status();

  std::unique_ptr<CopyBackend> backend = std::move(memory->backend);
  std::unique_ptr<HostTier> tier(new HostTier(config, cache, std::move(memory).value()));
  tier->offload_ = std::move(offload).value();
  // One layout for all groups: their blocks are of one size here, as in a pool of pages.
  TransferConfig transfer;
  transfer.groups.push_back({{{{.base = tier->memory_.gpu,
                                .block_stride = config.block_bytes,
                                .row_bytes = config.block_bytes}},
                              cache.config().num_blocks},
                             1});
  transfer.host = {tier->memory_.host, tier->memory_.host_bytes, config.block_bytes};
  transfer.own_thread = false;  // every step asks for what it needs
  auto engine = TransferEngine::Create(std::move(transfer), std::move(backend));
  if (!engine.ok()) return engine.status();
  tier->transfer_ = std::move(engine).value();
  return tier;
}

void HostTier::ListBlocks(const CacheRequest& request, int64_t begin, int64_t end) {
  const CacheConfig& config = cache_.config();
  blocks_.clear();
  words_.clear();
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const GroupIdx group(static_cast<uint32_t>(g));
    const int64_t size = config.groups[g].block_size;
    const auto table = cache_.BlockTable(request, group);
    for (int64_t i = begin / size; i < std::min<int64_t>(end / size, std::ssize(table)); ++i) {
      const BlockId block = table[static_cast<size_t>(i)];
      const auto last_unit = static_cast<size_t>((i + 1) * size / config.hash_block_size - 1);
      if (block.value == 0 || last_unit >= request.chain.size()) continue;
      blocks_.push_back(block);
      words_.push_back(WordOf(request.chain[last_unit], group));
    }
  }
}

void HostTier::Compute(const CacheRequest& request, int64_t begin, int64_t end) {
  ListBlocks(request, begin, end);
  memory_.fill(blocks_, words_);
}

void HostTier::Check(const CacheRequest& request, int64_t tokens) {
  ListBlocks(request, 0, tokens);
  checked_blocks_ += std::ssize(blocks_);
  wrong_blocks_ += memory_.count_wrong(blocks_, words_);
}

TransferJobId HostTier::Submit(CopyDirection direction, const BlockPairs& pairs) {
  // The destination may hold the very bytes that are to come.
  if (direction == CopyDirection::kLoad) {
    words_.assign(pairs.gpu.size(), kScribble);
    memory_.fill(pairs.gpu, words_);
  } else {
    for (const auto& block : pairs.cpu) {
      std::memset(memory_.host + block.value * config_.block_bytes,
                  static_cast<int>(kScribble & 0xFF), config_.block_bytes);
    }
  }
  const TransferJobId job(next_job_++);
  transfer_->Submit(ToTransferJob(job, direction, pairs, lists_, memory_.computed()));
  return job;
}

bool HostTier::Finish(TransferJobId job) {
  transfer_->Wait({&job, 1});
  transfer_->Poll(results_);
  const auto of_job = [job](const TransferResult& result) { return result.id == job; };
  const auto it = std::find_if(results_.begin(), results_.end(), of_job);
  KV_CHECK(it != results_.end());
  return it->status.ok();
}

Status HostTier::AfterAlloc(const CacheRequest& request, int64_t external_tokens) {
  Status status = offload_->UpdateAfterAlloc(request, external_tokens);
  if (status.ok() && external_tokens > 0) new_loads_.push_back(request.id);
  return status;
}

void HostTier::BuildStep(std::span<const StepRequest> scheduled) {
  offload_->BuildStep(scheduled, step_);
  // Loads first: a request waits for them.
  if (step_.load_event) {
    loaded_blocks_ += std::ssize(step_.load.gpu);
    const TransferJobId job = Submit(CopyDirection::kLoad, step_.load);
    for (std::string& request : new_loads_) loads_.push_back({std::move(request), job});
    new_loads_.clear();
  }
}

void HostTier::StartStores() {
  if (step_.store_event) {
    stored_blocks_ += std::ssize(step_.store.gpu);
    stores_.push_back({*step_.store_event, Submit(CopyDirection::kStore, step_.store)});
    step_.store_event.reset();
  }
}

void HostTier::CompleteStores() {
  for (const Store& store : stores_) {
    KV_CHECK(offload_->CompleteStore(store.event, 1, Finish(store.job)).ok());
  }
  stores_.clear();
  // What nobody asks for any more.
  std::erase_if(results_, [this](const TransferResult& result) {
    return std::ranges::none_of(loads_, [&](const Load& load) { return load.job == result.id; });
  });
}

bool HostTier::CompleteLoad(const std::string& request) {
  const auto it = std::find_if(loads_.begin(), loads_.end(),
                               [&request](const Load& load) { return load.request == request; });
  KV_CHECK(it != loads_.end());
  const bool success = Finish(it->job);
  loads_.erase(it);
  KV_CHECK(offload_->CompleteLoad(request, success).ok());
  return success;
}

}  // namespace kvcast::tools
