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

void Fill(std::span<std::byte> bytes, uint64_t word) {
  for (size_t at = 0; at + sizeof(word) <= bytes.size(); at += sizeof(word)) {
    const uint64_t here = word + at;
    std::memcpy(&bytes[at], &here, sizeof(here));
  }
}

bool Holds(std::span<const std::byte> bytes, uint64_t word) {
  for (size_t at = 0; at + sizeof(word) <= bytes.size(); at += sizeof(word)) {
    const uint64_t here = word + at;
    if (std::memcmp(&bytes[at], &here, sizeof(here)) != 0) return false;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<HostTier>> HostTier::Create(const HostTierConfig& config,
                                                   CacheManager& cache,
                                                   std::unique_ptr<CopyBackend> backend) {
  if (config.block_bytes == 0 || config.block_bytes % sizeof(uint64_t) != 0) {
    return Status(StatusCode::kInvalidArgument, "block_bytes: must be whole words of 8 bytes");
  }
  const auto pool_of = [&config](int64_t blocks) {
    return HostPool::Create(
        {.bytes = static_cast<size_t>(blocks) * config.block_bytes, .threads = 1});
  };
  auto gpu = pool_of(cache.config().num_blocks);
  if (!gpu.ok()) return gpu.status();
  SimpleOffloadConfig offload_config;
  offload_config.cache = cache.config();
  offload_config.num_cpu_blocks = config.cpu_blocks;
  offload_config.mode = config.mode;
  offload_config.events.hash_form = config.hash_form;
  auto offload = SimpleOffload::Create(offload_config, cache.gpu_blocks());
  if (!offload.ok()) return offload.status();
  auto host = pool_of(config.cpu_blocks);
  if (!host.ok()) return host.status();

  std::unique_ptr<HostTier> tier(
      new HostTier(config, cache, std::move(gpu).value(), std::move(host).value()));
  tier->offload_ = std::move(offload).value();
  // One layout for all groups: their blocks are of one size here, as in a pool of pages.
  TransferConfig transfer;
  transfer.groups.push_back({{{{.base = tier->gpu_.base(),
                                .block_stride = config.block_bytes,
                                .row_bytes = config.block_bytes}},
                              cache.config().num_blocks},
                             1});
  transfer.host = {tier->host_.base(), tier->host_.bytes(), config.block_bytes};
  transfer.own_thread = false;  // every step asks for what it needs
  auto engine = TransferEngine::Create(std::move(transfer), std::move(backend));
  if (!engine.ok()) return engine.status();
  tier->transfer_ = std::move(engine).value();
  return tier;
}

// Calls visit(block, word) for the whole blocks that end in (begin, end].
template <typename Visit>
void HostTier::ForEachBlock(const CacheRequest& request, int64_t begin, int64_t end,
                            const Visit& visit) {
  const CacheConfig& config = cache_.config();
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const GroupIdx group(static_cast<uint32_t>(g));
    const int64_t size = config.groups[g].block_size;
    const auto table = cache_.BlockTable(request, group);
    for (int64_t i = begin / size; i < std::min<int64_t>(end / size, std::ssize(table)); ++i) {
      const BlockId block = table[static_cast<size_t>(i)];
      const auto last_unit = static_cast<size_t>((i + 1) * size / config.hash_block_size - 1);
      if (block.value == 0 || last_unit >= request.chain.size()) continue;
      visit(block, WordOf(request.chain[last_unit], group));
    }
  }
}

void HostTier::Compute(const CacheRequest& request, int64_t begin, int64_t end) {
  ForEachBlock(request, begin, end,
               [this](BlockId block, uint64_t word) { Fill(BytesOf(gpu_, block), word); });
}

void HostTier::Check(const CacheRequest& request, int64_t tokens) {
  ForEachBlock(request, 0, tokens, [this](BlockId block, uint64_t word) {
    ++checked_blocks_;
    if (!Holds(BytesOf(gpu_, block), word)) ++wrong_blocks_;
  });
}

TransferJobId HostTier::Submit(CopyDirection direction, const BlockPairs& pairs) {
  const bool load = direction == CopyDirection::kLoad;
  for (size_t i = 0; i < pairs.cpu.size(); ++i) {
    // The destination may hold the very bytes that are to come.
    const auto bytes = load ? BytesOf(gpu_, pairs.gpu[i]) : BytesOf(host_, pairs.cpu[i]);
    std::memset(bytes.data(), 0xA5, bytes.size());
  }
  const TransferJobId job(next_job_++);
  transfer_->Submit(ToTransferJob(job, direction, pairs, lists_));
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
