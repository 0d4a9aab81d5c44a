// SPDX-License-Identifier: Apache-2.0
#include "kvcast/engine/cache_manager.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "src/base/check.h"
#include "src/engine/annotate.h"
#include "src/engine/group_managers.h"
#include "src/engine/managed_blocks.h"
#include "src/engine/prefix_lookup.h"
#include "src/engine/table_audit.h"
#include "src/wire/batch_encoder.h"

namespace kvcast {

using engine::RequestSlot;
using engine::SlotDemand;

namespace {

engine::PoolOptions PoolOptionsOf(const CacheConfig& config, const EventOptions& events) {
  engine::PoolOptions options;
  options.num_blocks = config.num_blocks;
  options.hash_block_size = config.hash_block_size;
  options.enable_caching = config.enable_caching;
  options.lookahead = config.chain_form.lookahead;
  options.events = events;
  options.reuse_uncached_first = config.rules >= EngineRules::kMain2026August;
  return options;
}

// True if no count is negative and there is work. From kV032 on, a call that adopts a hit needs no
// other work.
bool AreTokensValid(const AllocateArgs& args, EngineRules rules) {
  constexpr int64_t kMost = int64_t{1} << 40;  // sums of such counts do not overflow
  const int64_t tokens[] = {args.computed_tokens,  args.new_tokens,      args.lookahead_tokens,
                            args.in_flight_tokens, args.external_tokens, args.encoder_tokens};
  const bool in_range = std::all_of(std::begin(tokens), std::end(tokens),
                                    [](int64_t count) { return count >= 0 && count <= kMost; });
  const bool adopts = rules >= EngineRules::kV032 && args.hit != nullptr && args.hit->tokens > 0;
  return in_range && args.reserved_blocks >= 0 &&
         (args.new_tokens + args.external_tokens > 0 || adopts);
}

// True if the tables of the hit cover its tokens, with blocks that exist.
bool IsHitValid(const PrefixHit& hit, const CacheConfig& config) {
  if (hit.tokens == 0 && hit.blocks.empty()) return true;
  if (hit.tokens < 0 || hit.blocks.size() != config.groups.size()) return false;
  for (size_t i = 0; i < hit.blocks.size(); ++i) {
    const GroupSpec& spec = config.groups[i];
    const int64_t blocks = TakesPart(spec) ? CeilDiv(hit.tokens, spec.block_size) : 0;
    if (static_cast<int64_t>(hit.blocks[i].size()) != blocks) return false;
    for (const BlockId block : hit.blocks[i]) {
      if (block.value >= static_cast<uint64_t>(config.num_blocks)) return false;
    }
  }
  return true;
}

// A hit with tokens is allowed only in the first call for a request, and only if no tokens were
// computed before.
bool AreArgsValid(const AllocateArgs& args, bool first, const CacheConfig& config) {
  if (!AreTokensValid(args, config.rules)) return false;
  if (args.hit == nullptr) return true;
  const bool at_start = first && args.computed_tokens == 0;
  return (at_start || args.hit->tokens == 0) && IsHitValid(*args.hit, config);
}

// A hit has no blocks for a group outside prefix caching. Only the replayed tokens fill the blocks
// of such a group, so the group's window must not be longer than these tokens.
Status CheckReplay(const CacheConfig& config) {
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const GroupSpec& group = config.groups[i];
    if (group.prefix_cacheable || !IsCacheableKind(group.kind)) continue;
    const std::string name = "groups[" + std::to_string(i) + "].prefix_cacheable";
    if (IsWindowKind(group.kind) && config.replay_tokens >= group.sliding_window) continue;
    return {StatusCode::kInvalidArgument,
            name + " must be true, except for windows of at most replay_tokens tokens"};
  }
  return {};
}

}  // namespace

class CacheManager::Impl {
 public:
  Impl(CacheConfig valid, BlockHasher block_hasher, const EventOptions& events)
      : config(std::move(valid)),
        hasher(std::move(block_hasher)),
        pool(PoolOptionsOf(config, events)),
        managers(config, pool),
        lookup(config, pool),
        watermark_blocks(
            static_cast<int64_t>(config.watermark * static_cast<double>(config.num_blocks))) {}

  void ExtendChain(CacheRequest& request) {
    if (!config.enable_caching) return;
    hasher.ExtendChain(request.tokens, config.hash_block_size, request.hash_inputs, request.chain,
                       config.chain_form);
  }

  SlotDemand DemandOf(const CacheRequest& request, const AllocateArgs& args) const {
    const int64_t limit = config.max_model_len;
    SlotDemand demand;
    demand.local_computed = args.computed_tokens + (args.hit == nullptr ? 0 : args.hit->tokens);
    demand.total_computed = std::min(demand.local_computed + args.external_tokens, limit);
    demand.main_tokens = std::min(demand.total_computed + args.new_tokens, limit);
    demand.tokens =
        std::min(demand.total_computed + args.new_tokens + args.lookahead_tokens, limit);
    demand.encoder_tokens = args.encoder_tokens;
    demand.prefill_tokens = std::max(request.prompt_tokens, std::ssize(request.tokens) - 1);
    return demand;
  }

  // The admission check: true if the pool has room for all known tokens of the request, at the peak
  // of the request's demand.
  bool WholeSequenceFits(RequestSlot slot, const CacheRequest& request, const AllocateArgs& args,
                         SlotDemand demand) const {
    demand.tokens = std::min(static_cast<int64_t>(request.tokens.size()), config.max_model_len);
    demand.main_tokens = demand.tokens;
    demand.apply_admission_cap = true;
    const int64_t spare = args.apply_watermark ? watermark_blocks : 0;
    return managers.BlocksToAllocate(slot, args.hit, demand) + spare <= pool.num_free();
  }

  bool StepFits(RequestSlot slot, const AllocateArgs& args, const SlotDemand& demand) const {
    const int64_t spare = args.apply_watermark ? watermark_blocks : 0;
    return managers.BlocksToAllocate(slot, args.hit, demand) + spare <=
           pool.num_free() - args.reserved_blocks;
  }

  bool Admit(RequestSlot slot, const CacheRequest& request, const AllocateArgs& args,
             const SlotDemand& demand) {
    if (args.full_sequence_must_fit && !WholeSequenceFits(slot, request, args, demand)) {
      return false;
    }
    // The skipped blocks are released even if the step does not fit, because no step reads them
    // again.
    managers.RemoveSkipped(slot, demand.total_computed - args.in_flight_tokens,
                           request.prompt_tokens);
    return StepFits(slot, args, demand);
  }

  void Allocate(RequestSlot slot, bool first, CacheRequest& request, const AllocateArgs& args,
                const SlotDemand& demand, std::vector<std::vector<BlockId>>& added) {
    if (first) {
      managers.AddComputed(slot, args.hit, demand);
      request.shared_prefix_boundary = args.hit == nullptr ? 0 : args.hit->shared_prefix_boundary;
    }
    managers.AllocateNew(slot, demand, added);
    if (!config.enable_caching || args.delay_caching) return;
    // Drafts may be rejected, so they are not cached.
    const auto known = static_cast<int64_t>(request.tokens.size());
    managers.CacheBlocks(slot, request, std::min(demand.main_tokens, known));
  }

  template <typename Visit>
  void DrainEvents(const Visit& visit) {
    pool.events().Drain([this, &visit](auto& event) {
      if constexpr (std::is_same_v<decltype(event), BlockStored&>) {
        KV_CHECK(engine::Annotate(config.groups, event).ok());
      }
      visit(event);
    });
  }

  CacheConfig config;
  BlockHasher hasher;
  engine::BlockPool pool;
  engine::GroupManagers managers;
  engine::PrefixLookup lookup;
  engine::RequestSlots slots;
  engine::ManagedBlocks blocks{pool, managers, slots};
  int64_t watermark_blocks;
  std::vector<std::vector<BlockId>> unreported;  // scratch memory, kept for its capacity
};

Result<std::unique_ptr<CacheManager>> CacheManager::Create(const CacheConfig& config,
                                                           BlockHasher hasher,
                                                           const EventOptions& events) {
  Result<CacheConfig> valid = ValidateCacheConfig(config);
  if (!valid.ok()) return valid.status();
  if (ReservedBlocks(*valid) > valid->num_blocks) {
    return Status(StatusCode::kInvalidArgument, "num_blocks is too small for the sink tokens");
  }
  if (Status status = CheckReplay(*valid); !status.ok()) return status;
  auto impl = std::make_unique<Impl>(*std::move(valid), std::move(hasher), events);
  return std::unique_ptr<CacheManager>(new CacheManager(std::move(impl)));
}

CacheManager::CacheManager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CacheManager::~CacheManager() = default;

const CacheConfig& CacheManager::config() const { return impl_->config; }

CacheUsage CacheManager::usage() const {
  return {impl_->pool.num_blocks() - 1, impl_->pool.num_free()};
}

void CacheManager::BeginStep() { impl_->managers.BeginStep(); }

PrefixHit CacheManager::GetComputedBlocks(CacheRequest& request) {
  PrefixHit hit;
  hit.blocks.resize(impl_->config.groups.size());
  if (!impl_->config.enable_caching || request.skip_prefix_lookup) return hit;
  impl_->ExtendChain(request);
  hit = impl_->lookup.Find(request.chain, static_cast<int64_t>(request.tokens.size()) - 1);
  hit.replay_tokens = std::min(hit.tokens, impl_->config.replay_tokens);
  if (hit.shared_prefix_boundary == 0) {
    const int64_t hashed = std::ssize(request.chain) * impl_->config.hash_block_size;
    const int64_t grid = HitAlignment(impl_->config);
    const int64_t hinted = std::min(request.keep_prefix_tokens, hashed) / grid * grid;
    if (hinted > hit.tokens) hit.shared_prefix_boundary = hinted;
  }
  if (!request.report_hits) return hit;
  for (size_t i = 0; i < hit.blocks.size(); ++i) {
    const int64_t block_size = impl_->config.groups[i].block_size;
    // If the hit ends inside a block, the cache may hold only a part of this block.
    const int64_t whole = std::min(std::ssize(hit.blocks[i]), hit.tokens / block_size);
    impl_->pool.ReportBlocks(request, GroupIdx(static_cast<uint32_t>(i)), block_size,
                             std::span(hit.blocks[i]).first(static_cast<size_t>(whole)));
  }
  return hit;
}

std::vector<int64_t> CacheManager::GetComputedTokensPerGroup(CacheRequest& request) {
  if (!impl_->config.enable_caching) return std::vector<int64_t>(impl_->config.groups.size(), 0);
  impl_->ExtendChain(request);
  return impl_->lookup.FindPerGroup(request.chain, static_cast<int64_t>(request.tokens.size()) - 1);
}

bool CacheManager::AllocateSlots(CacheRequest& request, const AllocateArgs& given,
                                 std::vector<std::vector<BlockId>>* new_blocks) {
  const bool first = !impl_->slots.Find(request.id).has_value();
  AllocateArgs args = given;
  PrefixHit none;
  if (given.hit != nullptr && given.hit->replay_tokens > 0 && given.hit->computed_tokens() == 0) {
    none.shared_prefix_boundary = given.hit->shared_prefix_boundary;
    args.hit = &none;
  }
  if (!AreArgsValid(args, first, impl_->config)) return false;
  impl_->ExtendChain(request);
  const RequestSlot slot = impl_->slots.Acquire(request.id);
  const SlotDemand demand = impl_->DemandOf(request, args);
  if (!impl_->Admit(slot, request, args, demand)) {
    if (first) impl_->slots.Release(request.id);
    return false;
  }
  auto& added = new_blocks == nullptr ? impl_->unreported : *new_blocks;
  if (new_blocks == nullptr) {
    for (auto& blocks : added) blocks.clear();
  }
  added.resize(impl_->config.groups.size());
  impl_->Allocate(slot, first, request, args, demand, added);
  return true;
}

void CacheManager::CacheBlocks(CacheRequest& request, int64_t computed_tokens) {
  const auto slot = impl_->slots.Find(request.id);
  if (!slot || !impl_->config.enable_caching) return;
  impl_->ExtendChain(request);
  const auto known = static_cast<int64_t>(request.tokens.size());
  impl_->managers.CacheBlocks(*slot, request, std::min(computed_tokens, known));
}

std::vector<BlockCopy> CacheManager::TakeCopies() {
  std::vector<BlockCopy> copies;
  impl_->managers.TakeCopies(copies);
  return copies;
}

void CacheManager::ReleaseCopies(std::span<const BlockCopy> copies) {
  std::vector<BlockId> blocks;
  for (const BlockCopy& copy : copies) blocks.insert(blocks.end(), {copy.source, copy.target});
  impl_->pool.Free(blocks);
}

std::vector<BlockId> CacheManager::TakeBlocksToZero() {
  std::vector<BlockId> blocks;
  impl_->managers.TakeBlocksToZero(blocks);
  return blocks;
}

bool CacheManager::CanEverFit(int64_t total_tokens, int64_t encoder_tokens) const {
  // Bounds encoder_tokens, so that the arithmetic of RequiredBlocks cannot overflow.
  if (encoder_tokens > std::numeric_limits<int32_t>::max()) return false;
  return RequiredBlocks(impl_->config, std::max<int64_t>(total_tokens, 0),
                        std::max<int64_t>(encoder_tokens, 0)) <= impl_->config.num_blocks;
}

void CacheManager::Free(CacheRequest& request, bool ended) {
  const auto slot = impl_->slots.Find(request.id);
  if (!slot) return;
  int64_t kept_tokens = std::numeric_limits<int64_t>::max();
  if (ended && request.will_not_return_after) {
    // The shared prefix in a group may be longer than the prefix in the router's hint.
    kept_tokens =
        std::max({*request.will_not_return_after, request.shared_prefix_boundary, int64_t{0}});
  }
  impl_->managers.Free(*slot, kept_tokens);
  impl_->slots.Release(request.id);
}

bool CacheManager::ResetPrefixCache() { return impl_->pool.Reset(); }

Status CacheManager::EvictBlocks(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    if (block.value < static_cast<uint64_t>(impl_->pool.num_blocks())) continue;
    return {StatusCode::kInvalidArgument, "no such block: " + std::to_string(block.value)};
  }
  impl_->pool.Evict(blocks);
  return {};
}

std::vector<Event> CacheManager::TakeEvents() {
  std::vector<Event> events;
  events.reserve(pending_events());
  impl_->DrainEvents([&events](const auto& event) { engine::AppendEvents(event, events); });
  return events;
}

Result<size_t> CacheManager::TakePayload(double ts, std::optional<int64_t> data_parallel_rank,
                                         Dialect dialect, std::vector<uint8_t>& payload) {
  const size_t count = pending_events();
  if (count == 0) return count;
  wire::BatchEncoder encoder(dialect, ts, count, payload);
  impl_->DrainEvents([&encoder](const auto& event) {
    if constexpr (std::is_same_v<decltype(event), const BlockRemoved&>) {
      encoder.AddEachHash(event);
    } else {
      encoder.Add(event);
    }
  });
  if (Status status = encoder.Finish(data_parallel_rank); !status.ok()) return status;
  return count;
}

GpuBlockPool& CacheManager::gpu_blocks() { return impl_->blocks; }

size_t CacheManager::pending_events() const { return impl_->pool.events().size(); }

std::span<const BlockId> CacheManager::BlockTable(const CacheRequest& request,
                                                  GroupIdx group) const {
  return impl_->blocks.BlockTable(request, group);
}

int64_t CacheManager::CommonPrefixBlocks(const CacheRequest& request, GroupIdx group) const {
  if (group.value >= impl_->managers.size()) return 0;
  if (!IsFullKind(impl_->config.groups[group.value].kind)) return 0;
  int64_t common = 0;
  for (const BlockId block : BlockTable(request, group)) {
    const uint32_t holders = impl_->pool.ref_count(block) - impl_->blocks.pins(block);
    if (holders != impl_->slots.size()) break;
    ++common;
  }
  return common;
}

std::vector<CachedKey> CacheManager::CachedKeys(GroupIdx group) const {
  return engine::CachedKeysOf(impl_->pool, group);
}

Status CacheManager::CheckInvariants() const {
  const Status pool = impl_->pool.CheckInvariants();
  return pool.ok() ? engine::AuditTables(impl_->pool, impl_->managers, impl_->slots) : pool;
}

}  // namespace kvcast
