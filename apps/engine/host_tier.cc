// SPDX-License-Identifier: Apache-2.0
#include "apps/engine/host_tier.h"

#include <algorithm>
#include <utility>

#include "apps/engine/connector_tier.h"
#include "apps/engine/mirror_tier.h"

namespace kvcast::tools {
namespace {

// Returns the 64-bit word that a block of `group` holds. `digest` is the hash of the prefix that
// ends with the block.
uint64_t WordOf(const Digest& digest, GroupIdx group) {
  return (digest.low64() ^ (group.value + 1)) * 0x9E3779B97F4A7C15u;
}

// Calls `call` with the configured scheduler.
template <typename Scheduler, typename Call>
auto On(const Scheduler& scheduler, const Call& call) {
  return std::visit([&call](const auto& tier) { return call(*tier); }, scheduler);
}

}  // namespace

std::optional<OffloadKind> ParseOffloadKind(std::string_view name) {
  if (name == "eager") return OffloadKind::kMirrorEager;
  if (name == "lazy") return OffloadKind::kMirrorLazy;
  if (name == "connector") return OffloadKind::kConnector;
  return std::nullopt;
}

OffloadRule OffloadRuleOf(OffloadKind kind) {
  return kind == OffloadKind::kConnector ? OffloadRule::kOffloadScheduler
                                         : OffloadRule::kMirroredPool;
}

HostTier::HostTier(CacheManager& cache, Scheduler scheduler)
    : cache_(cache),
      scheduler_(std::move(scheduler)),
      copies_(*On(scheduler_, [](auto& tier) { return &tier.copies(); })) {}
HostTier::~HostTier() = default;

Result<std::unique_ptr<HostTier>> HostTier::Make(const HostTierConfig& config, CacheManager& cache,
                                                 const TierCopies::MakeMemory& make_memory) {
  if (config.block_bytes == 0 || config.block_bytes % sizeof(uint64_t) != 0) {
    return Status(StatusCode::kInvalidArgument, "block_bytes: must be a positive multiple of 8");
  }
  if (config.kind == OffloadKind::kConnector) {
    auto tier = ConnectorTier::Create(config, cache, make_memory);
    if (!tier.ok()) return tier.status();
    return std::unique_ptr<HostTier>(new HostTier(cache, std::move(tier).value()));
  }
  auto tier = MirrorTier::Create(config, cache, make_memory);
  if (!tier.ok()) return tier.status();
  return std::unique_ptr<HostTier>(new HostTier(cache, std::move(tier).value()));
}

Result<std::unique_ptr<HostTier>> HostTier::Create(const HostTierConfig& config,
                                                   CacheManager& cache,
                                                   std::unique_ptr<CopyBackend> backend) {
  return Make(config, cache, [&backend](const TierMemoryConfig& memory) {
    return MakePlainTierMemory(memory, std::move(backend));
  });
}

Result<std::unique_ptr<HostTier>> HostTier::Create(const HostTierConfig& config,
                                                   CacheManager& cache, const CudaDevice& device) {
  return Make(config, cache, [&device](const TierMemoryConfig& memory) {
    return MakeCudaTierMemory(memory, device);
  });
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
  copies_.Fill(blocks_, words_);
}

void HostTier::Check(const CacheRequest& request, int64_t tokens) {
  ListBlocks(request, 0, tokens);
  checked_blocks_ += std::ssize(blocks_);
  wrong_blocks_ += copies_.CountWrong(blocks_, words_);
}

std::optional<int64_t> HostTier::Match(const CacheRequest& request, int64_t local_tokens,
                                       int64_t now_ms) {
  return On(scheduler_, [&](auto& tier) { return tier.Match(request, local_tokens, now_ms); });
}

Status HostTier::AfterAlloc(const CacheRequest& request, int64_t external_tokens) {
  return On(scheduler_, [&](auto& tier) { return tier.AfterAlloc(request, external_tokens); });
}

void HostTier::Preempt(const CacheRequest& request, int64_t computed_tokens) {
  On(scheduler_, [&](auto& tier) { tier.Preempt(request, computed_tokens); });
}

void HostTier::Finish(const CacheRequest& request, int64_t computed_tokens) {
  On(scheduler_, [&](auto& tier) { tier.Finish(request, computed_tokens); });
}

void HostTier::BuildStep(std::span<const TierRequest> scheduled) {
  On(scheduler_, [&](auto& tier) { tier.BuildStep(scheduled); });
}

void HostTier::EndStep() {
  On(scheduler_, [](auto& tier) { tier.EndStep(); });
}

void HostTier::CompleteStores() {
  On(scheduler_, [](auto& tier) { tier.CompleteStores(); });
}

bool HostTier::CompleteLoad(const CacheRequest& request) {
  return On(scheduler_, [&](auto& tier) { return tier.CompleteLoad(request); });
}

bool HostTier::has_pending_work() const {
  return On(scheduler_, [](const auto& tier) { return tier.has_pending_work(); });
}

std::vector<Event> HostTier::TakeEvents() {
  return On(scheduler_, [](auto& tier) { return tier.TakeEvents(); });
}

int64_t HostTier::held_blocks() const {
  return On(scheduler_, [](const auto& tier) { return tier.held_blocks(); });
}

Status HostTier::CheckInvariants() const {
  return On(scheduler_, [](const auto& tier) { return tier.CheckInvariants(); });
}

}  // namespace kvcast::tools
