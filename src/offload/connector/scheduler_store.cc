// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "src/offload/connector/scheduler_impl.h"

namespace kvcast {

using offload::GroupState;
using offload::TableEntry;

StoreLimits OffloadScheduler::Impl::LimitsOf(const Request& request) const {
  return {.num_tokens = request.num_tokens(),
          .prompt_tokens = request.request->prompt_tokens,
          .prompt_only = config.prompt_only,
          .max_offload_tokens = request.options.max_offload_tokens};
}

int64_t OffloadScheduler::Impl::Storable(const Request& request, size_t group,
                                         int64_t offloadable) const {
  const OffloadGroup& rules = layout.groups[group];
  const int64_t storable =
      StorableChunks(rules, layout.blocks_per_chunk, offloadable, request.request->prompt_tokens,
                     std::ssize(request.groups[group].table), request.finished && is_v032());
  return std::min(storable, request.NumChunks(rules));
}

bool OffloadScheduler::Impl::IsComplete(const Request& request, size_t group, int64_t chunk) const {
  const OffloadGroup& rules = layout.groups[group];
  const std::vector<TableEntry>& table = request.groups[group].table;
  const int64_t end = (chunk + 1) * layout.blocks_per_chunk;
  // A chunk of states needs only its last block. Other chunks need every block. Before v0.32, vLLM
  // checks only the last block of every chunk.
  const bool last_only = (config.compatible && !is_v032()) || rules.requires_cow_source;
  for (int64_t i = last_only ? end - 1 : end - layout.blocks_per_chunk; i < end; ++i) {
    const TableEntry& entry = table[static_cast<size_t>(i)];
    if (entry.block.value == 0) return false;
    const bool may_be_lost = !config.compatible && FreesEarly(rules);
    if (may_be_lost && allocated.LastStepOf(entry.block) != entry.step) return false;
  }
  return true;
}

void OffloadScheduler::Impl::ChooseChunks(const Request& request, int64_t offloadable) {
  offer.chunks.clear();
  offer.keys.clear();
  offer.ends.clear();
  const StoreScope scope{request.request->prompt_tokens, request.request->shared_prefix_boundary};
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    if (layout.groups[g].requires_cow_source && states_handed_over()) continue;
    const int64_t storable = Storable(request, g, offloadable);
    const int64_t first = request.groups[g].next_stored_chunk;
    FillStoreMask(layout, g, first, storable, scope, offer.mask);
    for (int64_t chunk = first; chunk < storable; ++chunk) {
      const bool wanted = offer.mask[static_cast<size_t>(chunk - first)];
      if (!wanted || !IsComplete(request, g, chunk)) continue;
      offer.chunks.push_back({request.ChunkKey(layout, g, chunk), g, chunk});
      offer.keys.push_back(offer.chunks.back().key);
      offer.ends.push_back((chunk + 1) * layout.groups[g].tokens_per_chunk);
    }
  }
}

void OffloadScheduler::Impl::Store(Request& request, int64_t tokens_after) {
  const int64_t offloadable = OffloadableTokens(LimitsOf(request), tokens_after);
  ChooseChunks(request, offloadable);
  if (!offer.keys.empty()) {
    const bool room = calls.PrepareStore(request.id, offer.keys, offer.ends, offer.plan);
    TranslateEventsNow();
    if (!room) {
      ++stats.allocation_failures;
      return;
    }
  }
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    int64_t& next = request.groups[g].next_stored_chunk;
    next = std::max(next, Storable(request, g, offloadable));
  }
  if (offer.keys.empty() || offer.plan.keys.empty()) return;
  Touch(request);
  MakeStoreJob(request);
}

void OffloadScheduler::Impl::AddChunkToJob(const Request& request, size_t group, int64_t chunk,
                                           OffloadJob& job) const {
  const std::vector<TableEntry>& table = request.groups[group].table;
  const int64_t begin = chunk * layout.blocks_per_chunk;
  const int64_t end = begin + layout.blocks_per_chunk;
  // A load reads only the state at the end of a chunk.
  const bool last_only = !config.compatible && layout.groups[group].requires_cow_source;
  for (int64_t i = begin; i < end; ++i) {
    const bool copied = !last_only || i + 1 == end;
    const BlockId block = copied ? table[static_cast<size_t>(i)].block : BlockId(0);
    // A gap inside a chunk is kept, so that the blocks after the gap keep their position in the
    // chunk. With `compatible`, gaps are left out.
    if (block.value == 0 && (config.compatible || job.group_sizes[group] == 0)) continue;
    if (job.group_sizes[group]++ == 0) job.block_indices[group] = i;
    job.gpu_blocks.push_back(block);
  }
}

void OffloadScheduler::Impl::MakeStoreJob(Request& request) {
  OffloadJob job;
  job.request = request.id;
  job.store = true;
  job.group_sizes.assign(layout.groups.size(), 0);
  job.block_indices.assign(layout.groups.size(), 0);
  job.slots = offer.plan.slots;
  Job record{.request = request.id, .store = true, .keys = offer.plan.keys};
  size_t accepted = 0;  // the plan keeps the order of the candidates
  for (const StoreOffer::Chunk& candidate : offer.chunks) {
    if (accepted == offer.plan.keys.size()) break;
    if (offer.plan.keys[accepted] != candidate.key) continue;
    ++accepted;
    const size_t before = job.gpu_blocks.size();
    AddChunkToJob(request, candidate.group, candidate.chunk, job);
    if (FreesEarly(layout.groups[candidate.group])) {
      record.fenced_from_start.insert(record.fenced_from_start.end(),
                                      job.gpu_blocks.begin() + static_cast<ptrdiff_t>(before),
                                      job.gpu_blocks.end());
    }
    if (describer.Describes(candidate.group)) {
      writer.Describe(candidate.key, describer.Chunk(request, candidate.group, candidate.chunk));
    }
  }
  record.blocks = job.gpu_blocks;
  std::erase(record.blocks, BlockId(0));
  std::erase(record.fenced_from_start, BlockId(0));
  job.id = AddJob(request, std::move(record));
  plan.stores.push_back(std::move(job));
}

void OffloadScheduler::Impl::StoreStates(const OffloadStep& step) {
  for (const OffloadStep::Tail& tail : step.tails) {
    if (Request* request = Find(tail.request)) StoreState(*request, tail);
  }
}

// Makes a separate job, because the request keeps the state's block only for a short time.
void OffloadScheduler::Impl::StoreState(Request& request, const OffloadStep::Tail& tail) {
  const auto found = std::ranges::find(layout.groups, tail.group, &OffloadGroup::index);
  if (found == layout.groups.end() || !found->requires_cow_source || tail.block.value == 0) return;
  const auto group = static_cast<size_t>(found - layout.groups.begin());
  if (tail.boundary <= 0 || tail.boundary % found->tokens_per_chunk != 0 ||
      tail.boundary / found->tokens_per_chunk > request.NumChunks(*found) ||
      tail.boundary > OffloadableTokens(LimitsOf(request), request.num_tokens())) {
    return;
  }
  offer.keys.assign(1, request.PrefixKey(layout, group, tail.boundary));
  offer.ends.assign(1, tail.boundary);
  const bool room = calls.PrepareStore(request.id, offer.keys, offer.ends, offer.plan);
  TranslateEventsNow();
  stats.allocation_failures += !room;
  if (!room || offer.plan.keys.empty()) return;
  OffloadJob job;
  job.request = request.id;
  job.store = true;
  job.slots = offer.plan.slots;
  job.group_sizes.assign(layout.groups.size(), 0);
  job.block_indices.assign(layout.groups.size(), 0);
  job.group_sizes[group] = 1;
  job.block_indices[group] = tail.boundary / found->tokens_per_block - 1;
  job.gpu_blocks.assign(1, tail.block);
  if (describer.Describes(group)) {
    const int64_t chunk = tail.boundary / found->tokens_per_chunk - 1;
    writer.Describe(offer.keys[0], describer.Chunk(request, group, chunk));
  }
  AddFencedStore(request, std::move(job));
}

void OffloadScheduler::Impl::StoreTails(const OffloadStep& step) {
  std::vector<OffloadStep::Tail> tails;  // the tails of one request
  for (size_t i = 0; i < step.tails.size();) {
    const OffloadRequestId id = step.tails[i].request;
    tails.clear();
    for (; i < step.tails.size() && step.tails[i].request == id; ++i) {
      const bool inside = step.tails[i].boundary % layout.groups[0].tokens_per_block != 0;
      if (inside || !states_handed_over()) tails.push_back(step.tails[i]);
    }
    Request* request = Find(id);
    if (request == nullptr || tails.empty()) continue;
    int64_t computed = request->final_tokens;
    for (const OffloadStep::Scheduled& scheduled : step.scheduled) {
      if (scheduled.request != id) continue;
      computed = scheduled.computed_tokens + scheduled.scheduled_tokens;
    }
    StoreTail(*request, tails, computed);
  }
}

// True if the prefix end may be stored. Without a draft head, the result is always true. With a
// draft head, a prefix end is stored together with the tokens that the head reads, and only if the
// request has started a load. Otherwise the prefix end stays in the GPU cache only.
bool OffloadScheduler::Impl::IsKept(const Request& request, int64_t boundary,
                                    int64_t computed_tokens) const {
  int64_t margin = 0;
  for (const OffloadGroup& group : layout.groups) margin = std::max(margin, group.tail_margin);
  if (margin == 0) return true;
  const int64_t prompt = std::min(computed_tokens, request.request->prompt_tokens);
  return request.loaded && boundary + margin <= prompt &&
         (boundary + margin) / layout.tokens_per_hash <= std::ssize(request.request->chain);
}

BlockId OffloadScheduler::Impl::TailSource(const Request& request, size_t group,
                                           std::span<const OffloadStep::Tail> tails) const {
  for (const OffloadStep::Tail& tail : tails) {
    if (tail.group == layout.groups[group].index) return tail.block;
  }
  const OffloadGroup& rules = layout.groups[group];
  const std::vector<TableEntry>& table = request.groups[group].table;
  const int64_t index = (tails[0].boundary - 1) / rules.tokens_per_block;
  // The request overwrites the state in its table, so this state cannot be the source.
  if (rules.requires_cow_source || index >= std::ssize(table)) return BlockId(0);
  return table[static_cast<size_t>(index)].block;
}

void OffloadScheduler::Impl::StoreTail(Request& request, std::span<const OffloadStep::Tail> tails,
                                       int64_t computed_tokens) {
  const int64_t boundary = tails[0].boundary;
  const int64_t hash_block_size = layout.tokens_per_hash;
  if (!layout.supports_partial_tail || boundary <= 0 || boundary % hash_block_size != 0 ||
      boundary / hash_block_size > std::ssize(request.request->chain) ||
      boundary > OffloadableTokens(LimitsOf(request), boundary) ||
      !IsKept(request, boundary, computed_tokens)) {
    return;
  }
  offer.keys.clear();
  offer.ends.clear();
  std::vector<BlockId> sources;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    sources.push_back(TailSource(request, g, tails));
    if (sources.back().value == 0) return;  // a load needs the part of every group
    offer.keys.push_back(request.TailKey(layout, g, boundary));
    offer.ends.push_back(boundary + layout.groups[g].tail_margin);
  }
  const bool room = calls.PrepareStore(request.id, offer.keys, offer.ends, offer.plan);
  TranslateEventsNow();
  stats.allocation_failures += !room;
  if (room && !offer.plan.keys.empty()) MakeTailJob(request, boundary, sources);
}

// Adds a store job for offer.plan. The engine must not write the blocks of the job before the store
// has ended.
void OffloadScheduler::Impl::AddFencedStore(Request& request, OffloadJob job) {
  job.id = AddJob(request, {.request = request.id,
                            .store = true,
                            .keys = offer.plan.keys,
                            .blocks = job.gpu_blocks,
                            .fenced_from_start = job.gpu_blocks});
  plan.stores.push_back(std::move(job));
}

void OffloadScheduler::Impl::MakeTailJob(Request& request, int64_t boundary,
                                         std::span<const BlockId> sources) {
  OffloadJob job;
  job.request = request.id;
  job.store = true;
  job.slots = offer.plan.slots;
  size_t accepted = 0;  // the plan keeps the order of the keys
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const bool stored =
        accepted < offer.plan.keys.size() && offer.plan.keys[accepted] == offer.keys[g];
    job.group_sizes.push_back(stored ? 1 : 0);
    job.block_indices.push_back(stored ? (boundary - 1) / layout.groups[g].tokens_per_block : 0);
    if (!stored) continue;
    ++accepted;
    job.gpu_blocks.push_back(sources[g]);
    if (describer.Describes(g)) {
      const int64_t tokens = boundary + layout.groups[g].tail_margin;
      const int64_t chunk = layout.groups[g].tokens_per_chunk;
      writer.Describe(offer.keys[g], tokens % chunk == 0
                                         ? describer.Chunk(request, g, tokens / chunk - 1)
                                         : describer.Tail(request, g, tokens));
    }
  }
  AddFencedStore(request, std::move(job));
}

}  // namespace kvcast
