// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/load_rate.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "apps/engine/presets.h"
#include "kvcast/transfer/host_copy_backend.h"
#include "kvcast/transfer/host_pool.h"
#include "kvcast/transfer/transfer_engine.h"

namespace kvcast::tools {

Result<double> MeasureLoadBandwidth(size_t block_bytes) {
  constexpr size_t kPayload = size_t{64} << 20;
  constexpr size_t kRounds = 5;
  const auto num_blocks =
      static_cast<uint32_t>(std::max<size_t>(kPayload / block_bytes, 1)) + 1;  // null block
  auto gpu = HostPool::Create({.bytes = num_blocks * block_bytes});
  if (!gpu.ok()) return gpu.status();
  auto host = HostPool::Create({.bytes = num_blocks * block_bytes});
  if (!host.ok()) return host.status();
  // Write all pages: the system may map all unwritten pages to one page of zeros.
  std::memset(host->base(), 1, host->bytes());
  auto backend = MakeHostCopyBackend({.threads = 1});
  if (!backend.ok()) return backend.status();
  TransferConfig config;
  const BlockPart part{.base = gpu->base(), .block_stride = block_bytes, .row_bytes = block_bytes};
  config.groups.push_back({{{part}, num_blocks}, 1});
  config.host = {host->base(), host->bytes(), block_bytes};
  auto engine = TransferEngine::Create(std::move(config), std::move(backend).value());
  if (!engine.ok()) return engine.status();

  std::vector<BlockId> blocks;
  std::vector<SlotId> slots;
  for (uint32_t i = 1; i < num_blocks; ++i) {
    blocks.push_back(BlockId(i));
    slots.push_back(SlotId(i));
  }
  std::mt19937 random(1);
  std::shuffle(blocks.begin(), blocks.end(), random);
  std::shuffle(slots.begin(), slots.end(), random);
  const TransferGroup group{GroupIdx(0), 0, blocks, slots};
  std::array<double, kRounds> rates{};
  double busy = 0;
  for (size_t round = 0; round < kRounds; ++round) {
    (*engine)->Submit({TransferJobId(round), CopyDirection::kLoad, {&group, 1}, nullptr});
    (*engine)->WaitAll();
    const TransferStats::Lane loads = (*engine)->stats().loads;
    rates[round] = static_cast<double>(blocks.size() * block_bytes) / (loads.busy_seconds - busy);
    busy = loads.busy_seconds;
  }
  std::sort(rates.begin(), rates.end());
  return rates[kRounds / 2];
}

Result<double> LoadedBytesPerToken(const std::string& model) {
  const auto preset = FindModelPreset(model);
  if (!preset.ok()) return preset.status();
  double bytes = 0;
  for (const GroupSpec& group : preset->groups) {
    if (group.kind == SpecKind::kSlidingWindow) continue;
    bytes += static_cast<double>(preset->block_bytes) / static_cast<double>(group.block_size);
  }
  return bytes;
}

Status ResolveLoadRate(CacheOptions& options) {
  if (options.load_rate > 0 || options.cpu_blocks == 0) return {};
  const auto preset = FindModelPreset(options.model);
  if (!preset.ok()) return preset.status();
  const auto bandwidth = MeasureLoadBandwidth(preset->block_bytes);
  if (!bandwidth.ok()) return bandwidth.status();
  const auto bytes_per_token = LoadedBytesPerToken(options.model);
  if (!bytes_per_token.ok()) return bytes_per_token.status();
  options.load_rate = *bandwidth / *bytes_per_token;
  return {};
}

}  // namespace kvcast::tools
