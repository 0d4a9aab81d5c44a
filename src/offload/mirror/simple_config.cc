// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "src/offload/mirror/simple_impl.h"

namespace kvcast {

namespace {

engine::PoolOptions HostPoolOptions(const SimpleOffloadConfig& config) {
  engine::PoolOptions options;
  options.num_blocks = config.num_cpu_blocks;
  options.hash_block_size = config.cache.hash_block_size;
  options.events = config.events;
  if (config.compatible) return options;
  options.medium = config.medium;
  options.events.name_cleared_tier = true;
  return options;
}

Status Invalid(const std::string& message) { return {StatusCode::kInvalidArgument, message}; }

}  // namespace

int64_t CpuBlocksFor(int64_t capacity_bytes, int64_t gpu_bytes, int64_t gpu_blocks) {
  if (gpu_bytes <= 0) return 1;
  const auto blocks = static_cast<unsigned __int128>(capacity_bytes) *
                      static_cast<unsigned __int128>(gpu_blocks) /
                      static_cast<unsigned __int128>(gpu_bytes);
  const auto most = static_cast<unsigned __int128>(std::numeric_limits<int64_t>::max());
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(blocks, most)));
}

int64_t LazyTargetFree(const CacheConfig& config) {
  int64_t blocks = 0;
  for (const GroupSpec& spec : config.groups) {
    if (spec.kind == SpecKind::kMamba) {
      blocks += 2;
    } else if (IsWindowKind(spec.kind)) {
      blocks += CeilDiv(spec.sliding_window, spec.block_size) + 1;
    } else if (IsCacheableKind(spec.kind)) {
      blocks += CeilDiv(config.max_in_flight_tokens, spec.block_size);
    }
  }
  return 2 * blocks;
}

SimpleOffload::Impl::Impl(SimpleOffloadConfig valid, GpuBlockPool& gpu_block_pool)
    : config(std::move(valid)),
      gpu(gpu_block_pool),
      cpu(HostPoolOptions(config)),
      // Only whole blocks are copied, so hits end where blocks of all groups end.
      lookup(config.cache, cpu, config.cache.scheduler_block_size) {}

Result<std::unique_ptr<SimpleOffload>> SimpleOffload::Create(const SimpleOffloadConfig& config,
                                                             GpuBlockPool& gpu) {
  Result<CacheConfig> cache = ValidateCacheConfig(config.cache);
  if (!cache.ok()) return cache.status();
  SimpleOffloadConfig valid = config;
  valid.cache = *std::move(cache);
  const auto& groups = valid.cache.groups;
  if (std::none_of(groups.begin(), groups.end(),
                   [](const GroupSpec& spec) { return IsFullKind(spec.kind); })) {
    return Invalid("groups: no group is full attention");
  }
  constexpr int64_t kMostBlocks = std::numeric_limits<uint32_t>::max() / 2;
  if (config.num_cpu_blocks < 1 || config.num_cpu_blocks > kMostBlocks) {
    return Invalid("num_cpu_blocks is not in 1.." + std::to_string(kMostBlocks));
  }
  if (config.cache.chain_form.lookahead != 0) {
    return Invalid("chain_form.lookahead is not 0");  // vLLM's pool has hashes without lookahead
  }
  if (config.num_workers < 1) return Invalid("num_workers is below 1");
  if (config.lazy_target_free < 0) return Invalid("lazy_target_free is negative");
  if (config.lazy_target_free == 0) valid.lazy_target_free = LazyTargetFree(valid.cache);
  return std::unique_ptr<SimpleOffload>(
      new SimpleOffload(std::make_unique<Impl>(std::move(valid), gpu)));
}

}  // namespace kvcast
