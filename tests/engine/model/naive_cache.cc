// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/model/naive_cache.h"

#include <algorithm>

namespace kvcast::naive {
namespace {

CacheConfig Completed(CacheConfig config) {
  config.groups = WithSharedEagle(config.groups);
  return config;
}

bool IsAligned(const GroupSpec& spec) {
  return spec.kind == SpecKind::kMamba && spec.mamba_mode == MambaMode::kAlign;
}

// Returns how many leading tokens of `n` computed tokens are never read again.
int64_t Skipped(const GroupSpec& spec, int64_t n) {
  if (n <= 0) return 0;
  if (IsWindow(spec)) {
    return std::max<int64_t>(0, n - spec.sliding_window + 1 - spec.extra_retained_tokens);
  }
  if (spec.kind == SpecKind::kChunkedLocalAttention) return FloorTo(n, spec.chunk_size);
  return spec.kind == SpecKind::kMamba ? n - 1 : 0;
}

std::vector<Blocks> PlainIds(const PrefixHit* hit, size_t groups) {
  std::vector<Blocks> tables(groups);
  if (hit == nullptr) return tables;
  for (size_t i = 0; i < hit->blocks.size(); ++i) {
    for (const BlockId block : hit->blocks[i]) tables[i].push_back(block.value);
  }
  return tables;
}

}  // namespace

Cache::Cache(const CacheConfig& config, BlockHasher hasher, const EventOptions& events)
    : config_(Completed(config)),
      grid_(Grid::Of(config_)),
      names_(std::move(hasher), grid_.hash_block_size),
      pool_(config_, names_, events),
      lookup_(config_.groups, grid_, pool_),
      cached_now_(config.groups.size()),
      to_zero_(config.groups.size()),
      copies_(config.groups.size()) {
  for (const GroupSpec& group : config_.groups) {
    drops_ |= group.eagle;
    if (group.kind != SpecKind::kSinkFullAttention) continue;
    for (int64_t i = 0; i < group.sink_tokens / group.block_size; ++i) pool_.Take();
  }
}

PrefixHit Cache::GetComputedBlocks(const CacheRequest& request) {
  const size_t groups = config_.groups.size();
  PrefixHit hit;
  hit.blocks.resize(groups);
  if (!config_.enable_caching || request.skip_prefix_lookup) return hit;
  const auto found =
      lookup_.Find(names_.ChainOf(request), static_cast<int64_t>(request.tokens.size()) - 1);
  hit.tokens = found.tokens;
  if (found.longest > found.tokens) hit.shared_prefix_boundary = found.longest;
  for (size_t i = 0; i < groups; ++i) {
    for (const Block block : found.tables[i]) hit.blocks[i].push_back(BlockId(block));
    if (request.report_hits) pool_.Report(request, i, found.tables[i], found.tokens);
  }
  return hit;
}

std::vector<int64_t> Cache::GetComputedTokensPerGroup(const CacheRequest& request) {
  if (!config_.enable_caching) return std::vector<int64_t>(config_.groups.size(), 0);
  return lookup_.FindPerGroup(names_.ChainOf(request),
                              static_cast<int64_t>(request.tokens.size()) - 1);
}

Cache::Lengths Cache::LengthsOf(const CacheRequest& request, const AllocateArgs& args) const {
  Lengths lengths;
  lengths.local = args.computed_tokens + (args.hit == nullptr ? 0 : args.hit->tokens);
  const int64_t limit = config_.max_model_len;
  lengths.total = std::min(limit, lengths.local + args.external_tokens);
  lengths.main = std::min(limit, lengths.total + args.new_tokens);
  lengths.slots = std::min(limit, lengths.total + args.new_tokens + args.lookahead_tokens);
  lengths.encoder = args.encoder_tokens;
  lengths.prefill =
      std::max(request.prompt_tokens, static_cast<int64_t>(request.tokens.size()) - 1);
  return lengths;
}

int64_t Cache::Cap(size_t group) const {
  const GroupSpec& spec = config_.groups[group];
  const int64_t limit = config_.max_model_len;
  if (IsWindow(spec)) {
    const int64_t tokens =
        spec.sliding_window - 1 + spec.extra_retained_tokens + config_.max_in_flight_tokens;
    return CeilOf(std::min(tokens, limit), spec.block_size) + 1;
  }
  if (spec.kind == SpecKind::kChunkedLocalAttention) {
    return CeilOf(std::min(spec.chunk_size + config_.max_in_flight_tokens, limit), spec.block_size);
  }
  return INT64_MAX;
}

int64_t Cache::MambaDemand(size_t group, const Held* held, const Blocks& hits,
                           const Lengths& lengths, bool capped) const {
  const GroupSpec& spec = config_.groups[group];
  const bool ends_inside = !hits.empty() && lengths.local % spec.block_size != 0;
  const bool copy = ends_inside || (held != nullptr && held->shared_tail.has_value());
  const auto present =
      static_cast<int64_t>(hits.size() + (held == nullptr ? 0 : held->table.size()));
  const int64_t required = CeilOf(lengths.main, spec.block_size) + spec.speculative_blocks;
  if (required <= present && !copy) return 0;
  const bool first = held == nullptr || !held->started;
  int64_t demand = 1 + (copy ? 1 : 0) + (first ? spec.speculative_blocks : 0);
  if (CheckpointOf(group, held, lengths)) ++demand;
  // The loaded state and the state that the step leaves need two blocks.
  const int64_t loaded = CeilOf(lengths.total, spec.block_size);
  const bool loads = first && lengths.total > lengths.local && loaded > present;
  if (loads && !capped && CeilOf(lengths.main, spec.block_size) > loaded) ++demand;
  if (config_.rules < EngineRules::kV033) return demand;
  return std::min(demand, std::max<int64_t>(0, required - present) + (copy ? 1 : 0));
}

int64_t Cache::Demand(size_t group, const Request* request, const Blocks& hits, Lengths lengths,
                      bool capped) const {
  const GroupSpec& spec = config_.groups[group];
  const Held* held = request == nullptr ? nullptr : &request->groups[group];
  if (!IsPrefixCached(spec)) {
    const int64_t encoder = spec.kind == SpecKind::kCrossAttention ? lengths.encoder : 0;
    const auto have = static_cast<int64_t>(held == nullptr ? 0 : held->table.size());
    return std::max<int64_t>(0, CeilOf(encoder, spec.block_size) - have);
  }
  const int64_t evictable =
      std::count_if(hits.begin(), hits.end(), [&](Block block) { return pool_.IsFree(block); });
  if (spec.kind == SpecKind::kMamba) {
    // A state that is computed in this step cannot be read in the same step. The demand therefore
    // exceeds every pool.
    const Key* key = hits.empty() ? nullptr : pool_.FirstKey(hits.back());
    if (key != nullptr && cached_now_[group].contains(*key)) return config_.num_blocks + 1;
    if (IsAligned(spec)) return MambaDemand(group, held, hits, lengths, capped) + evictable;
    lengths.slots += spec.block_size * spec.speculative_blocks;
  }
  int64_t need = CeilOf(lengths.slots, spec.block_size);
  if (capped) need = std::min(need, Cap(group));
  if (held != nullptr) {
    return std::max<int64_t>(0, need - static_cast<int64_t>(held->table.size()));
  }
  const int64_t skipped = Skipped(spec, lengths.total) / spec.block_size;
  int64_t demand =
      std::max<int64_t>(0, need - std::max(skipped, static_cast<int64_t>(hits.size())));
  for (size_t i = 0; i < hits.size(); ++i) {
    if (static_cast<int64_t>(i) >= skipped && pool_.IsFree(hits[i])) ++demand;
  }
  if (!hits.empty() && lengths.local % spec.block_size != 0) ++demand;
  return demand;
}

bool Cache::Fits(const Request* request, const std::vector<Blocks>& hits, const Lengths& lengths,
                 bool capped, int64_t spare) const {
  int64_t demand = spare;
  for (size_t i = 0; i < config_.groups.size(); ++i) {
    demand += Demand(i, request, hits[i], lengths, capped);
  }
  return demand <= static_cast<int64_t>(pool_.num_free());
}

bool Cache::AllocateSlots(const CacheRequest& request, const AllocateArgs& args,
                          std::vector<Blocks>& added) {
  const size_t count = config_.groups.size();
  const std::vector<Blocks> hits = PlainIds(args.hit, count);
  const Lengths lengths = LengthsOf(request, args);
  const auto running = requests_.find(request.id);
  Request* entry = running == requests_.end() ? nullptr : &running->second;
  const bool first = entry == nullptr;
  const auto watermark =
      static_cast<int64_t>(config_.watermark * static_cast<double>(config_.num_blocks));
  const int64_t spare = args.apply_watermark ? watermark : 0;
  if (args.full_sequence_must_fit) {
    Lengths whole = lengths;
    whole.slots = whole.main =
        std::min(static_cast<int64_t>(request.tokens.size()), config_.max_model_len);
    if (!Fits(entry, hits, whole, true, spare)) return false;
  }
  if (!first) ReleaseSkipped(*entry, lengths.total - args.in_flight_tokens, request.prompt_tokens);
  if (!Fits(entry, hits, lengths, false, spare + args.reserved_blocks)) return false;

  if (first) {
    entry = &requests_[request.id];
    entry->groups.resize(count);
    entry->boundary = args.hit == nullptr ? 0 : args.hit->shared_prefix_boundary;
    for (size_t i = 0; i < count; ++i) AddHit(i, entry->groups[i], hits[i], lengths);
    for (size_t i = 0; i < count; ++i) AddExternal(i, entry->groups[i], lengths);
  }
  added.assign(count, {});
  for (size_t i = 0; i < count; ++i) AddNew(i, entry->groups[i], lengths, added[i]);
  if (!args.delay_caching) CacheBlocks(request, lengths.main);
  return true;
}

void Cache::AddHit(size_t group, Held& held, const Blocks& hits, const Lengths& lengths) {
  const GroupSpec& spec = config_.groups[group];
  const auto skipped = static_cast<size_t>(Skipped(spec, lengths.total) / spec.block_size);
  held.table.assign(skipped, 0);
  for (size_t i = skipped; i < hits.size(); ++i) {
    held.table.push_back(hits[i]);
    pool_.Adopt(hits[i]);
  }
  held.num_cached = static_cast<int64_t>(held.table.size());
  if (hits.size() <= skipped || lengths.local % spec.block_size == 0) return;
  held.shared_tail = lengths.local / spec.block_size;
  held.num_cached = *held.shared_tail;
}

void Cache::AddExternal(size_t group, Held& held, const Lengths& lengths) {
  const GroupSpec& spec = config_.groups[group];
  if (!IsPrefixCached(spec) || lengths.total == lengths.local) return;
  if (lengths.total - Skipped(spec, lengths.total) <= 0) return;
  while (static_cast<int64_t>(held.table.size()) < CeilOf(lengths.total, spec.block_size)) {
    held.table.push_back(pool_.Take());
    to_zero_[group].push_back(held.table.back());
  }
}

// Until the copy has run, the source keeps the reference of the hit and the copy has a second
// reference.
Block Cache::CopyTail(Held& held) {
  const auto index = static_cast<size_t>(*held.shared_tail);
  const Block copy = pool_.Take();
  pool_.Touch(copy);
  held.table[index] = copy;
  held.shared_tail.reset();
  return copy;
}

void Cache::AddNew(size_t group, Held& held, const Lengths& lengths, Blocks& added) {
  const GroupSpec& spec = config_.groups[group];
  if (IsAligned(spec)) return AddState(group, held, lengths, added);
  int64_t slots = lengths.slots;
  if (!IsPrefixCached(spec)) slots = spec.kind == SpecKind::kCrossAttention ? lengths.encoder : 0;
  if (spec.kind == SpecKind::kMamba) slots += spec.block_size * spec.speculative_blocks;
  if (held.shared_tail) {
    const Block source = held.table[static_cast<size_t>(*held.shared_tail)];
    added.push_back(CopyTail(held));
    copies_[group].push_back({source, added.back()});
  }
  while (static_cast<int64_t>(held.table.size()) < CeilOf(slots, spec.block_size)) {
    held.table.push_back(pool_.Take());
    added.push_back(held.table.back());
    to_zero_[group].push_back(held.table.back());
  }
}

void Cache::AddState(size_t group, Held& held, const Lengths& lengths, Blocks& added) {
  const GroupSpec& spec = config_.groups[group];
  const int64_t drafts = spec.speculative_blocks;
  const int64_t required = CeilOf(lengths.main, spec.block_size) + drafts;
  const auto before = static_cast<int64_t>(held.table.size());
  held.checkpoint = CheckpointOf(group, &held, lengths);
  const bool started = std::exchange(held.started, true);
  if (required <= before && !held.shared_tail) return;
  if (started) {
    held.last_state = before - 1 - drafts;
  } else if (before > 0) {
    held.last_state = before - 1;
  }
  // Index of the first new state: the checkpoint, or the running state.
  const int64_t state = required - drafts - (held.checkpoint ? 2 : 1);
  while (static_cast<int64_t>(held.table.size()) < state) held.table.push_back(0);
  for (int64_t i = before - drafts; started && i < before; ++i) {
    if (i < 0 || i >= state) continue;
    held.table.push_back(held.table[static_cast<size_t>(i)]);
    held.table[static_cast<size_t>(i)] = 0;
  }
  if (held.shared_tail) {
    const Block source = held.table[static_cast<size_t>(*held.shared_tail)];
    if (started) {
      // The owner keeps its block. The cache entry moves to the copy.
      held.shared_tail.reset();
      const Block copy = pool_.Take();
      pool_.MoveKeys(source, copy);
      pool_.Touch(source);
      copies_[group].push_back({source, copy});
      if (const Key* key = pool_.FirstKey(copy)) cached_now_[group].insert(*key);
    } else {
      added.push_back(CopyTail(held));
      copies_[group].push_back({source, added.back()});
    }
  }
  while (static_cast<int64_t>(held.table.size()) < required) held.table.push_back(pool_.Take());
  added.insert(added.end(), held.table.begin() + before, held.table.end());
}

void Cache::ReleaseSkipped(Request& request, int64_t processed, int64_t prompt) {
  for (size_t i = 0; i < config_.groups.size(); ++i) {
    const GroupSpec& spec = config_.groups[i];
    Held& held = request.groups[i];
    if (IsFull(spec)) {
      if (spec.reference_window == 0 || prompt == 0) continue;
      const int64_t window = std::max(prompt, processed - spec.reference_window);
      Release(held, CeilOf(prompt, spec.block_size), window / spec.block_size);
    } else if (IsAligned(spec) && config_.rules >= EngineRules::kV033) {
      Blocks states;
      const auto end = std::min(Skipped(spec, processed) / spec.block_size,
                                static_cast<int64_t>(held.table.size()));
      for (int64_t j = end - 1; j >= 0; --j) {
        states.push_back(std::exchange(held.table[static_cast<size_t>(j)], 0));
      }
      pool_.Free(states);
      continue;
    } else {
      Release(held, 0, Skipped(spec, processed) / spec.block_size);
    }
    if (!IsAligned(spec) || !held.last_state) continue;
    if (*held.last_state < CeilOf(processed, spec.block_size) - 1) {
      Release(held, *held.last_state, *held.last_state + 1);
    }
  }
}

void Cache::Release(Held& held, int64_t first, int64_t last) {
  last = std::min(last, static_cast<int64_t>(held.table.size()));
  Blocks released;
  for (int64_t i = last - 1; i >= first && held.table[static_cast<size_t>(i)] != 0; --i) {
    released.push_back(std::exchange(held.table[static_cast<size_t>(i)], 0));
  }
  pool_.Free(released);
}

void Cache::Free(const CacheRequest& request, bool ended) {
  const auto running = requests_.find(request.id);
  if (running == requests_.end()) return;
  const bool hinted = ended && request.will_not_return_after.has_value();
  const int64_t kept =
      std::max(request.will_not_return_after.value_or(0), request.shared_prefix_boundary);
  for (size_t group = 0; group < running->second.groups.size(); ++group) {
    const int64_t block_size = config_.groups[group].block_size;
    Blocks early;
    Blocks usual;
    const Blocks& table = running->second.groups[group].table;
    for (size_t i = table.size(); i-- > 0;) {
      const int64_t begin = static_cast<int64_t>(i) * block_size;
      (hinted && begin >= kept ? early : usual).push_back(table[i]);
    }
    pool_.Free(early, /*early=*/true);
    pool_.Free(usual);
  }
  requests_.erase(running);
}

void Cache::BeginStep() {
  for (auto& keys : cached_now_) keys.clear();
}

Blocks Cache::TakeBlocksToZero() {
  Blocks all;
  for (size_t i = 0; i < to_zero_.size(); ++i) {
    const Blocks taken = std::exchange(to_zero_[i], {});
    if (!config_.zero_new_blocks || config_.groups[i].kind == SpecKind::kMamba) continue;
    all.insert(all.end(), taken.begin(), taken.end());
  }
  return all;
}

std::vector<std::pair<Block, Block>> Cache::TakeCopies() {
  std::vector<std::pair<Block, Block>> all;
  for (auto& copies : copies_) {
    all.insert(all.end(), copies.begin(), copies.end());
    copies.clear();
  }
  return all;
}

void Cache::ReleaseCopies(const std::vector<std::pair<Block, Block>>& copies) {
  Blocks blocks;
  for (const auto& [source, target] : copies) blocks.insert(blocks.end(), {source, target});
  pool_.Free(blocks);
}

Blocks Cache::Table(const std::string& request, size_t group) const {
  const auto running = requests_.find(request);
  return running == requests_.end() ? Blocks() : running->second.groups[group].table;
}

int64_t Cache::CommonPrefixBlocks(const std::string& request, size_t group) const {
  if (!IsFull(config_.groups[group])) return 0;
  int64_t common = 0;
  for (const Block block : Table(request, group)) {
    if (block == 0 || pool_.refs(block) != static_cast<int64_t>(requests_.size())) break;
    ++common;
  }
  return common;
}

std::vector<std::pair<Digest, int64_t>> Cache::CachedKeys(size_t group) const {
  std::vector<std::pair<Digest, int64_t>> keys;
  for (const auto& [prefix, copies] : pool_.CachedPrefixes(group)) {
    keys.emplace_back(names_.digest(prefix), copies);
  }
  return keys;
}

}  // namespace kvcast::naive
